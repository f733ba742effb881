"""`graph`: who waits for what, as text for people and as nodes and edges for programs.

Each is made in two steps, so that no read transaction lasts while somebody looks at files and repositories: first what
the store knows, then, with what was seen outside, what is said of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rota.core.artifact import Need, Outside, fact_of
from rota.core.fact import Fact
from rota.core.graph import (
    SHOWN,
    After,
    Caption,
    Drawing,
    Graph,
    Link,
    Mark,
    Needed,
    Vertex,
    draw,
    show_line,
    state_of,
)
from rota.core.status import WAITING, Status
from rota.ids import JobId, show_job
from rota.store.graph import Legend
from rota.store.session import Looking, Reader
from rota.view.job import Sight, waits_of
from rota.wire.graph import AfterForm, GraphForm, LinkForm, NodeForm, PictureForm

EMPTY = "Outcome: No scheduled jobs"
MOST_LINES = 500
MOST_DRAWN = 20_000
"""Jobs that are read for the text: those on its lines are described, the others are only counted."""
MOST_LISTED = 100_000
"""Jobs that are read for nodes and edges."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    with_ended: bool = False
    focus: JobId | None = None
    max_depth: int = 3


class Leaves(msgspec.Struct, frozen=True, kw_only=True):
    """Artifacts that nobody makes."""

    watched: frozenset[Need]
    """A job waits for them, so that they are looked at all the time."""
    others: frozenset[Need]

    def unseen(self, outside: Outside) -> set[Fact]:
        """What has to be looked at now to know which of them are there."""
        watched = {fact_of(need, outside.places) for need in self.watched if not need.is_declared}
        others = {fact_of(need, outside.places) for need in self.others if not need.is_declared}
        return {fact for fact in (watched - outside.seen.keys()) | others if fact is not None}

    def presence(self, outside: Outside) -> dict[Need, bool | None]:
        return {need: outside.presence(need) for need in self.watched | self.others}


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The text, but for what is to be looked at outside."""

    drawing: Drawing
    captions: Mapping[JobId, Caption]
    leaves: Leaves

    def said(self, outside: Outside) -> PictureForm:
        presence = self.leaves.presence(outside)
        lines = [show_line(line, self.captions, presence) for line in self.drawing.lines]
        return PictureForm(text="\n".join(lines) or EMPTY, left_out=self.drawing.left_out)


class Adjacency(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes and edges, but for what is to be looked at outside."""

    graph: Graph
    legends: Mapping[JobId, Legend]
    waits: Mapping[JobId, str]
    leaves: Leaves

    def said(self, outside: Outside) -> GraphForm:
        presence = self.leaves.presence(outside)
        nodes = [
            NodeForm(
                id=show_job(job),
                status=vertex.status.shown.value,
                command=shlex.join(self.legends[job].command) if job in self.legends else "",
                wait=self.waits.get(job),
            )
            for job, vertex in self.graph.nodes.items()
        ]
        edges = [_edge(job, link, presence) for job in self.graph.nodes for link in self.graph.links.get(job, ())]
        return GraphForm(nodes=nodes, edges=edges, left_out=self.graph.left_out or msgspec.UNSET)


def picture(reader: Reader, wanted: Wanted, sight: Sight) -> Picture:
    return picture_of(reader, _graph(reader, wanted, MOST_DRAWN), sight, max_depth=wanted.max_depth)


def picture_of(
    reader: Looking, graph: Graph, sight: Sight, *, max_depth: int, names: Mapping[JobId, str] = {}
) -> Picture:
    """`names` has what those are called that nobody knows by their ids."""
    drawing = draw(graph, max_depth=max_depth, most=MOST_LINES)
    met = [line.vertex for line in drawing.lines if line.vertex is not None and line.mark is not Mark.AGAIN]
    legends = reader.legends(met)
    waits = _waits(reader, met, legends, sight)
    captions = {
        job: msgspec.structs.replace(each.caption, wait=waits.get(job), plan=_plan(each.caption.plan, names.get(job)))
        for job, each in legends.items()
    }
    return Picture(drawing=drawing, captions=captions, leaves=_leaves(graph, met))


def adjacency(reader: Reader, wanted: Wanted, sight: Sight) -> Adjacency:
    return adjacency_of(reader, _graph(reader, wanted, MOST_LISTED), sight)


def _plan(plan: str | None, name: str | None) -> str | None:
    return plan if name in (None, plan) else name if plan is None else f"{name}: {plan}"


def adjacency_of(reader: Looking, graph: Graph, sight: Sight) -> Adjacency:
    vertices = graph.nodes.values()
    legends = reader.legends(vertices)
    waits = _waits(reader, vertices, legends, sight)
    return Adjacency(graph=graph, legends=legends, waits=waits, leaves=_leaves(graph, vertices))


def _edge(job: JobId, link: Link, presence: Mapping[Need, bool | None]) -> LinkForm:
    source = show_job(job)
    match link:
        case After():
            to = link.predecessor if link.to is None else link.to.job
            return LinkForm(source=source, to=show_job(to), after=AfterForm(policy=link.policy.value))
        case Needed(to=Vertex(job=maker)):
            return LinkForm(source=source, to=show_job(maker), artifact=link.label)
        case Needed():
            state = state_of(presence.get(link.need))
            return LinkForm(source=source, to=f"artifact:{link.label}", artifact=link.label, state=state)


def _waits(
    reader: Looking, vertices: Iterable[Vertex], legends: Mapping[JobId, Legend], sight: Sight
) -> dict[JobId, str]:  # fmt: skip
    """As `why` says it; a blocked job keeps its text."""
    waits: dict[JobId, str] = {}
    waiting = []
    for vertex in vertices:
        if vertex.status in WAITING:
            waiting.append(vertex.job)
        elif vertex.status is Status.BLOCKED_BY_DEPENDENCY and vertex.job in legends:
            waits[vertex.job] = legends[vertex.job].reason or ""
    return waits | {job: wait.detail for job, wait in waits_of(reader, waiting, sight).items()}


def _leaves(graph: Graph, vertices: Iterable[Vertex]) -> Leaves:
    watched: set[Need] = set()
    others: set[Need] = set()
    for vertex in vertices:
        for link in graph.links.get(vertex.job, ()):
            if isinstance(link, Needed) and link.to is None:
                (watched if vertex.status in WAITING else others).add(link.need)
    return Leaves(watched=frozenset(watched), others=frozenset(others - watched))


def _graph(reader: Reader, wanted: Wanted, most: int) -> Graph:
    if wanted.focus is not None:
        return _around(reader, wanted.focus, wanted, most)
    found = reader.vertices(with_ended=wanted.with_ended, limit=most)
    counts = reader.counts() if len(found) == most else {}
    statuses = Status if wanted.with_ended else SHOWN
    left_out = max(0, sum(counts.get(status, 0) for status in statuses) - most)
    nodes = _in_order(found)
    return Graph(nodes=nodes, links=reader.links_of(nodes.values()), left_out=left_out)


def _in_order(vertices: Iterable[Vertex]) -> dict[JobId, Vertex]:
    return {vertex.job: vertex for vertex in sorted(vertices, key=lambda vertex: vertex.job)}


def _around(reader: Reader, job: JobId, wanted: Wanted, most: int) -> Graph:
    """The last job of its chain, what it hangs on and what hangs on it, as many steps away as was asked for."""
    focus = reader.last_vertex(job)
    if focus is None:
        raise reader.no_such_job(job)
    circle = _Circle(focus, most)
    links: dict[JobId, Sequence[Link]] = {}
    frontier = [focus]
    for _ in range(wanted.max_depth):
        found = reader.links_of(frontier)
        links.update(found)
        targets = {link.to for each in found.values() for link in each if link.to is not None}
        frontier = circle.add(to for to in targets if wanted.with_ended or to.status in SHOWN)
    rim, frontier = frontier, [focus]
    for _ in range(wanted.max_depth):
        frontier = circle.add(reader.consumers_of(frontier, with_ended=wanted.with_ended, limit=most + 1))
        rim += frontier
    cut = set()
    for each, found_links in reader.links_of(rim).items():
        links[each] = [link for link in found_links if link.to is not None and link.to.job in circle.nodes]
        if len(links[each]) < len(found_links):
            cut.add(each)
    nodes = _in_order(circle.nodes.values())
    return Graph(nodes=nodes, links=links, cut=frozenset(cut), focus=focus.job, left_out=circle.left_out)


class _Circle:
    """The jobs around one, while there is room."""

    def __init__(self, focus: Vertex, most: int) -> None:
        self.nodes = {focus.job: focus}
        self.left_out = 0
        self._most = most

    def add(self, found: Iterable[Vertex]) -> list[Vertex]:
        """Of these the ones that are new."""
        new = [vertex for job, vertex in _in_order(found).items() if job not in self.nodes]
        room = self._most - len(self.nodes)
        self.nodes.update((vertex.job, vertex) for vertex in new[:room])
        self.left_out += len(new[room:])
        return new[:room]
