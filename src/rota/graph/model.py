"""The job graph as ASCII trees, each job above the jobs and artifacts that it depends on.

    job-4 WAITING_ON_DEPS [merge] [wait: waiting on job job-2]
    |-- after:success -> job-2 RUNNING [left]
    |   `-- after:success -> job-1 COMPLETED [plan]
    `-- after:success -> job-3 RUNNING [right]
        `-- after:success -> job-1 COMPLETED (see above)

A tree begins at a job without dependents in the graph. A tree that reaches `max_depth` continues as a tree of its own,
so that every job and every edge is drawn; `...` marks a node with more dependencies than are drawn. A job is described
at its first occurrence. Trees are ordered by job number, so the oldest jobs come first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Literal

import msgspec

from rota.ids import JobId, format_job_id
from rota.kernel.artifacts import ArtifactNeed, PinnedHead
from rota.kernel.edges import DependencyPolicy
from rota.kernel.locks import Lock, LockMode
from rota.kernel.status import ACTIVE, Status

DEFAULT_STATUSES = ACTIVE | {Status.BLOCKED_BY_DEPENDENCY}
"""Statuses in a graph unless all jobs are requested."""
_MAX_NAME_LENGTH = 100
_SHORT_OID_LENGTH = 8


class Vertex(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    chain: JobId
    status: Status


class DependencyLink(msgspec.Struct, frozen=True, kw_only=True):
    """Dependency of a job on a chain."""

    policy: DependencyPolicy
    predecessor: JobId
    """Predecessor as the user named it."""
    target: Vertex | None
    """The chain's last job; `None` if there is no such record."""

    @property
    def label(self) -> str:
        return f"after:{self.policy}"


class ArtifactLink(msgspec.Struct, frozen=True, kw_only=True):
    """Dependency of a job on an artifact."""

    need: ArtifactNeed
    target: Vertex | None
    """The last job of a chain that produces the artifact; `None` if there is no producer."""

    @property
    def label(self) -> str:
        return str(self.need.artifact)


Link = DependencyLink | ArtifactLink
"""Link from a job to its dependency."""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    nodes: Mapping[JobId, Vertex]
    """Jobs by number. A link may lead to a job that is not here: that job has ended, and its own links are left out."""
    links: Mapping[JobId, Sequence[Link]]
    truncated: frozenset[JobId] = frozenset()
    """Nodes with more dependencies than `links` contains."""
    focus: JobId | None = None
    skipped: int = 0
    """Number of requested jobs that were not read because the graph is too large."""


class LineMark(StrEnum):
    NONE = ""
    REPEATED = " (see above)"
    TRUNCATED = " ..."


class DrawnLine(msgspec.Struct, frozen=True, kw_only=True):
    prefix: str
    link: Link | None
    """Link that leads to the vertex; `None` at the root of a tree."""
    vertex: Vertex | None
    mark: LineMark = LineMark.NONE


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    lines: Sequence[DrawnLine]
    skipped: int
    """Number of jobs of the graph that the drawing leaves out."""


def draw(graph: Graph, *, max_depth: int, max_lines: int) -> Drawing:
    """Draw at most `max_lines` lines. Each job is expanded only once, so a cycle would end too."""
    renderer = _TreeRenderer(graph, max_depth, max_lines)
    for root in chain(_roots(graph, max_depth), graph.nodes):
        if renderer.is_pending(root):
            renderer.draw_tree(graph.nodes[root])
    hidden = len(graph.nodes.keys() - renderer.drawn)
    return Drawing(lines=renderer.lines, skipped=hidden + graph.skipped)


def _roots(graph: Graph, max_depth: int) -> list[JobId]:
    """Return the jobs where trees begin: jobs without dependents, and jobs at the depth limit of another tree."""
    targets = {job: _targets(graph, job) for job in graph.nodes}
    dependencies = set(chain.from_iterable(targets.values()))
    distance = {job: 0 for job in graph.nodes if job not in dependencies}
    frontier = deque(distance)
    while frontier:
        job = frontier.popleft()
        for target in targets[job]:
            if target not in distance:
                distance[target] = distance[job] + 1
                frontier.append(target)

    def is_root(job: JobId) -> bool:
        depth = distance[job]
        return depth == 0 or max_depth == 0 or (depth % max_depth == 0 and job in graph.links)

    # Active jobs come first: the line limit may cut off the trees of old blocked jobs.
    roots = sorted(filter(is_root, distance), key=lambda job: (graph.nodes[job].status not in ACTIVE, job))
    return roots if graph.focus is None else [graph.focus, *(job for job in roots if job != graph.focus)]


def _targets(graph: Graph, job: JobId) -> list[JobId]:
    links = graph.links.get(job, ())
    return [
        link.target.job
        for link in links
        if link.target is not None and link.target.job in graph.nodes and link.target.job != job
    ]


class _TreeRenderer:
    def __init__(self, graph: Graph, max_depth: int, max_lines: int) -> None:
        self.lines: list[DrawnLine] = []
        self.drawn: set[JobId] = set()
        self.expanded: set[JobId] = set()
        self._graph = graph
        self._max_depth = max_depth
        self._max_lines = max_lines

    def is_pending(self, job: JobId) -> bool:
        """Return whether the job or its dependencies are still to be drawn."""
        has_more = self._max_depth > 0 and job not in self.expanded and bool(self._graph.links.get(job))
        return job not in self.drawn or has_more

    def draw_tree(self, root: Vertex) -> None:
        """Draw a tree with an explicit stack: the user chooses the depth, so recursion could overflow."""
        stack: list[Iterator[tuple[str, str, Link | None, Vertex | None]]] = [iter([("", "", None, root)])]
        while stack and len(self.lines) < self._max_lines:
            branch = next(stack[-1], None)
            if branch is None:
                stack.pop()
                continue
            prefix, indent, link, vertex = branch
            links = () if vertex is None else self._graph.links.get(vertex.job, ())
            mark = self._mark(vertex, links, depth=len(stack) - 1)
            self.lines.append(DrawnLine(prefix=prefix, link=link, vertex=vertex, mark=mark))
            if vertex is not None:
                self.drawn.add(vertex.job)
                if links and mark is not LineMark.REPEATED and len(stack) <= self._max_depth:
                    self.expanded.add(vertex.job)
                    stack.append(_branches(indent, links))

    def _mark(self, vertex: Vertex | None, links: Sequence[Link], depth: int) -> LineMark:
        if vertex is None:
            return LineMark.NONE
        is_leaf = not links or depth >= self._max_depth
        if vertex.job in self.expanded or (vertex.job in self.drawn and is_leaf):
            return LineMark.REPEATED
        return LineMark.TRUNCATED if vertex.job in self._graph.truncated or (links and is_leaf) else LineMark.NONE


def _branches(indent: str, links: Sequence[Link]) -> Iterator[tuple[str, str, Link | None, Vertex | None]]:
    for link in links[:-1]:
        yield f"{indent}|-- ", f"{indent}|   ", link, link.target
    yield f"{indent}`-- ", f"{indent}    ", links[-1], links[-1].target


class Caption(msgspec.Struct, frozen=True, kw_only=True):
    """Details that follow the status on a node's line."""

    scope: str | None = None
    plan: str | None = None
    target: str | None = None
    wait: str | None = None
    locks: Sequence[Lock] = ()
    pinned_head: PinnedHead | None = None
    unreadable: str | None = None

    def __str__(self) -> str:
        plan = (
            self.plan
            if self.plan is None or len(self.plan) <= _MAX_NAME_LENGTH
            else f"{self.plan[:_MAX_NAME_LENGTH]}..."
        )
        locks = [lock.key if lock.mode is LockMode.EXCLUSIVE else f"{lock.key}:{lock.mode}" for lock in self.locks]
        head = self.pinned_head
        parts = (
            "/".join(part for part in (self.scope, plan, self.target) if part),
            f"wait: {self.wait}" if self.wait else "",
            f"locks: {', '.join(locks)}" if locks else "",
            f"pinned: {head.branch}@{head.oid[:_SHORT_OID_LENGTH]}" if head is not None else "",
            f"unreadable: {self.unreadable}" if self.unreadable else "",
        )
        return "".join(f" [{part}]" for part in parts if part)


_EMPTY_CAPTION = Caption()


def format_line(
    line: DrawnLine, captions: Mapping[JobId, Caption], presence: Mapping[ArtifactNeed, bool | None]
) -> str:
    edge = "" if line.link is None else f"{line.link.label}"
    arrow = " -> " if line.link is not None else ""
    if line.vertex is not None:
        caption = "" if line.mark is LineMark.REPEATED else captions.get(line.vertex.job, _EMPTY_CAPTION)
        node = f"{format_job_id(line.vertex.job)} {line.vertex.status.public}{caption}"
        return line.prefix + escape_non_ascii(f"{edge}{arrow}{node}") + line.mark
    match line.link:
        case ArtifactLink(need=need):
            return line.prefix + escape_non_ascii(f"{edge} [{artifact_state(presence.get(need))}]")
        case DependencyLink(predecessor=predecessor):
            return f"{line.prefix}{edge}{arrow}{format_job_id(predecessor)} [missing]"
        case _:
            return line.prefix


def artifact_state(presence: bool | None) -> Literal["present", "missing", "unknown"]:
    """Return the state of an artifact without a producer. An artifact whose existence cannot be read is unknown."""
    return "unknown" if presence is None else "present" if presence else "missing"


def escape_non_ascii(text: str) -> str:
    """Escape characters that are not printable ASCII. Names may contain any text."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if " " <= char <= "~" else char.encode("unicode_escape").decode("ascii") for char in text)
