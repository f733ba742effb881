"""The dependency graph, as text and as nodes and edges.

Each is made in two steps, so that no read transaction is open while files and repositories are probed: a draft from the
store, and then the rendering of the draft with the observations.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rota.db.session import AnyReader, Reader
from rota.graph.model import (
    DEFAULT_STATUSES,
    ArtifactLink,
    Caption,
    DependencyLink,
    Drawing,
    Graph,
    LineMark,
    Link,
    Vertex,
    artifact_state,
    draw,
    format_line,
)
from rota.graph.repository import VertexDetails
from rota.graph.schemas import GraphDependency, GraphDrawing, GraphEdge, GraphNode, GraphView
from rota.ids import JobId, format_job_id
from rota.jobs.queries import ViewContext, explain_waits_of_ids
from rota.kernel.artifacts import ArtifactNeed, Observations, fact_for_need
from rota.kernel.facts import Fact
from rota.kernel.status import WAITING, Status

EMPTY_TEXT = "Outcome: No scheduled jobs"
MAX_LINES = 500
MAX_DRAWN_JOBS = 20_000
"""Maximum number of jobs to read for the text. Jobs on its lines are described; the others only count."""
MAX_LISTED_JOBS = 100_000
"""Maximum number of jobs to read for nodes and edges."""


class GraphOptions(msgspec.Struct, frozen=True, kw_only=True):
    with_ended: bool = False
    focus: JobId | None = None
    max_depth: int = 3


class UnproducedArtifacts(msgspec.Struct, frozen=True, kw_only=True):
    """Artifacts that no job produces."""

    watched: frozenset[ArtifactNeed]
    """Artifacts that a waiting job needs. The engine probes them continuously."""
    unwatched: frozenset[ArtifactNeed]
    """Other artifacts. Their facts are probed for each graph."""

    def facts_to_probe(self, observations: Observations) -> set[Fact]:
        """Return the facts to probe before the presence of each artifact is known."""
        watched = {fact_for_need(need, observations.paths) for need in self.watched if not need.is_declared}
        unwatched = {fact_for_need(need, observations.paths) for need in self.unwatched if not need.is_declared}
        return {fact for fact in (watched - observations.observed.keys()) | unwatched if fact is not None}

    def presence(self, observations: Observations) -> dict[ArtifactNeed, bool | None]:
        return {need: observations.presence(need) for need in self.watched | self.unwatched}


class DrawingDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The text without the state of the outside world."""

    drawing: Drawing
    captions: Mapping[JobId, Caption]
    unproduced: UnproducedArtifacts

    def render(self, observations: Observations) -> GraphDrawing:
        presence = self.unproduced.presence(observations)
        lines = [format_line(line, self.captions, presence) for line in self.drawing.lines]
        return GraphDrawing(text="\n".join(lines) or EMPTY_TEXT, skipped=self.drawing.skipped)


class GraphDraft(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes and edges without the state of the outside world."""

    graph: Graph
    details: Mapping[JobId, VertexDetails]
    waits: Mapping[JobId, str]
    errors: Mapping[JobId, str]
    """Errors in stored records."""
    unproduced: UnproducedArtifacts

    def render(self, observations: Observations) -> GraphView:
        presence = self.unproduced.presence(observations)
        nodes = [
            GraphNode(
                id=format_job_id(job),
                status=vertex.status.public.value,
                command=shlex.join(self.details[job].command) if job in self.details else "",
                wait=self.waits.get(job),
                unreadable=self.errors.get(job, msgspec.UNSET),
            )
            for job, vertex in self.graph.nodes.items()
        ]
        edges = [
            _render_edge(job, link, presence) for job in self.graph.nodes for link in self.graph.links.get(job, ())
        ]
        return GraphView(nodes=nodes, edges=edges, skipped=self.graph.skipped or msgspec.UNSET)


def draft_drawing(reader: Reader, options: GraphOptions, context: ViewContext) -> DrawingDraft:
    return draft_drawing_of(reader, _read_graph(reader, options, MAX_DRAWN_JOBS), context, max_depth=options.max_depth)


def draft_drawing_of(
    reader: AnyReader, graph: Graph, context: ViewContext, *, max_depth: int, display_names: Mapping[JobId, str] = {}
) -> DrawingDraft:
    """Make the draft of a graph. `display_names` has names for jobs that have no permanent id."""
    drawing = draw(graph, max_depth=max_depth, max_lines=MAX_LINES)
    drawn = [line.vertex for line in drawing.lines if line.vertex is not None and line.mark is not LineMark.REPEATED]
    details = reader.graph.details(drawn)
    waits = _wait_texts(reader, drawn, details, context)
    errors = reader.jobs.record_errors([vertex.job for vertex in drawn])
    captions = {
        job: msgspec.structs.replace(
            vertex.caption,
            wait=waits.get(job),
            plan=_caption_plan(vertex.caption.plan, display_names.get(job)),
            unreadable=errors.get(job),
        )
        for job, vertex in details.items()
    }
    return DrawingDraft(drawing=drawing, captions=captions, unproduced=_find_unproduced(graph, drawn))


def draft_graph(reader: Reader, options: GraphOptions, context: ViewContext) -> GraphDraft:
    return draft_graph_of(reader, _read_graph(reader, options, MAX_LISTED_JOBS), context)


def _caption_plan(plan: str | None, name: str | None) -> str | None:
    return plan if name in (None, plan) else name if plan is None else f"{name}: {plan}"


def draft_graph_of(reader: AnyReader, graph: Graph, context: ViewContext) -> GraphDraft:
    vertices = graph.nodes.values()
    details = reader.graph.details(vertices)
    waits = _wait_texts(reader, vertices, details, context)
    errors = reader.jobs.record_errors([vertex.job for vertex in vertices])
    return GraphDraft(
        graph=graph, details=details, waits=waits, errors=errors, unproduced=_find_unproduced(graph, vertices)
    )


def _render_edge(job: JobId, link: Link, presence: Mapping[ArtifactNeed, bool | None]) -> GraphEdge:
    source = format_job_id(job)
    match link:
        case DependencyLink():
            to = link.predecessor if link.target is None else link.target.job
            return GraphEdge(source=source, to=format_job_id(to), after=GraphDependency(policy=link.policy.value))
        case ArtifactLink(target=Vertex(job=producer)):
            return GraphEdge(source=source, to=format_job_id(producer), artifact=link.label)
        case ArtifactLink():
            state = artifact_state(presence.get(link.need))
            return GraphEdge(source=source, to=f"artifact:{link.label}", artifact=link.label, state=state)


def _wait_texts(
    reader: AnyReader, vertices: Iterable[Vertex], details: Mapping[JobId, VertexDetails], context: ViewContext
) -> dict[JobId, str]:
    """Return the wait reasons as `why` gives them. Blocked jobs keep their reasons."""
    waits: dict[JobId, str] = {}
    waiting = []
    for vertex in vertices:
        if vertex.status in WAITING:
            waiting.append(vertex.job)
        elif vertex.status is Status.BLOCKED_BY_DEPENDENCY and vertex.job in details:
            waits[vertex.job] = details[vertex.job].reason or ""
    return waits | {job: wait.detail for job, wait in explain_waits_of_ids(reader, waiting, context).items()}


def _find_unproduced(graph: Graph, vertices: Iterable[Vertex]) -> UnproducedArtifacts:
    watched: set[ArtifactNeed] = set()
    unwatched: set[ArtifactNeed] = set()
    for vertex in vertices:
        for link in graph.links.get(vertex.job, ()):
            if isinstance(link, ArtifactLink) and link.target is None:
                (watched if vertex.status in WAITING else unwatched).add(link.need)
    return UnproducedArtifacts(watched=frozenset(watched), unwatched=frozenset(unwatched - watched))


def _read_graph(reader: Reader, options: GraphOptions, limit: int) -> Graph:
    if options.focus is not None:
        return _read_neighborhood(reader, options.focus, options, limit)
    vertices = reader.graph.vertices(with_ended=options.with_ended, limit=limit)
    counts = reader.jobs.count_by_status() if len(vertices) == limit else {}
    statuses = Status if options.with_ended else DEFAULT_STATUSES
    skipped = max(0, sum(counts.get(status, 0) for status in statuses) - limit)
    nodes = _sort_by_job(vertices)
    return Graph(nodes=nodes, links=reader.graph.links_of(nodes.values()), skipped=skipped)


def _sort_by_job(vertices: Iterable[Vertex]) -> dict[JobId, Vertex]:
    return {vertex.job: vertex for vertex in sorted(vertices, key=lambda vertex: vertex.job)}


def _read_neighborhood(reader: Reader, job: JobId, options: GraphOptions, limit: int) -> Graph:
    """Read the last job of the chain with its upstream and downstream jobs, up to the requested depth."""
    focus = reader.graph.last_vertex(job)
    if focus is None:
        raise reader.jobs.not_found(job)
    neighborhood = _Neighborhood(focus, limit)
    links: dict[JobId, Sequence[Link]] = {}
    frontier = [focus]
    for _ in range(options.max_depth):
        frontier_links = reader.graph.links_of(frontier)
        links.update(frontier_links)
        targets = {
            link.target for job_links in frontier_links.values() for link in job_links if link.target is not None
        }
        frontier = neighborhood.add(to for to in targets if options.with_ended or to.status in DEFAULT_STATUSES)
    outer, frontier = frontier, [focus]
    for _ in range(options.max_depth):
        frontier = neighborhood.add(reader.graph.consumers_of(frontier, with_ended=options.with_ended, limit=limit + 1))
        outer += frontier
    truncated = set()
    for outer_job, all_links in reader.graph.links_of(outer).items():
        links[outer_job] = [
            link for link in all_links if link.target is not None and link.target.job in neighborhood.nodes
        ]
        if len(links[outer_job]) < len(all_links):
            truncated.add(outer_job)
    nodes = _sort_by_job(neighborhood.nodes.values())
    return Graph(
        nodes=nodes, links=links, truncated=frozenset(truncated), focus=focus.job, skipped=neighborhood.skipped
    )


class _Neighborhood:
    """The jobs around a focus, up to a limit."""

    def __init__(self, focus: Vertex, limit: int) -> None:
        self.nodes = {focus.job: focus}
        self.skipped = 0
        self._limit = limit

    def add(self, candidates: Iterable[Vertex]) -> list[Vertex]:
        """Add the new jobs among the candidates while there is room, and return them."""
        new = [vertex for job, vertex in _sort_by_job(candidates).items() if job not in self.nodes]
        room = self._limit - len(self.nodes)
        self.nodes.update((vertex.job, vertex) for vertex in new[:room])
        self.skipped += len(new[room:])
        return new[:room]
