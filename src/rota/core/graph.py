"""The graph of jobs as it is drawn: trees in plain ASCII, each job above what it hangs on.

    job-4 WAITING_ON_DEPS [merge] [wait: waiting on job job-2]
    |-- after:success -> job-2 RUNNING [left]
    |   `-- after:success -> job-1 COMPLETED [plan]
    `-- after:success -> job-3 RUNNING [right]
        `-- after:success -> job-1 COMPLETED (see above)

A tree begins at a job that nothing else in the graph hangs on. One that reaches `max_depth` goes on as a tree of its
own, so that every job and every edge is seen; `...` stands where more hangs below than is drawn. A job is described
where it is met first. Trees stand in the order of their numbers: what was submitted first is what is next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Literal

import msgspec

from rota.core.after import AfterPolicy
from rota.core.artifact import Need
from rota.core.lock import Lock, LockMode
from rota.core.pinned_head import PinnedHead
from rota.core.status import ACTIVE, Status
from rota.ids import JobId, show_job

SHOWN = ACTIVE | {Status.BLOCKED_BY_DEPENDENCY}
"""What a graph has unless all is asked for."""
_LONGEST_NAME = 100
_SHORT_OID = 8


class Vertex(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    chain: JobId
    status: Status


class After(msgspec.Struct, frozen=True, kw_only=True):
    """It comes after a chain."""

    policy: AfterPolicy
    predecessor: JobId
    """As the user named it."""
    to: Vertex | None
    """The chain's last job; none when there is no record of it."""

    @property
    def label(self) -> str:
        return f"after:{self.policy}"


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """It needs an artifact."""

    need: Need
    to: Vertex | None
    """The last job of a chain that makes it; none when nobody does."""

    @property
    def label(self) -> str:
        return str(self.need.artifact)


Link = After | Needed
"""From a job to what it hangs on."""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    nodes: Mapping[JobId, Vertex]
    """By number; what links lead to besides has ended, and what it hung on itself is left out."""
    links: Mapping[JobId, Sequence[Link]]
    cut: frozenset[JobId] = frozenset()
    """Nodes that hang on more than `links` says."""
    focus: JobId | None = None
    left_out: int = 0
    """Jobs that were asked for and not read: there are too many."""


class Mark(StrEnum):
    NONE = ""
    AGAIN = " (see above)"
    CUT = " ..."


class Line(msgspec.Struct, frozen=True, kw_only=True):
    prefix: str
    link: Link | None
    """How it came here; none at the root of a tree."""
    vertex: Vertex | None
    mark: Mark = Mark.NONE


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    lines: Sequence[Line]
    left_out: int
    """Jobs of the graph that it does not show."""


def draw(graph: Graph, *, max_depth: int, most: int) -> Drawing:
    """No more than so many lines. What is expanded is expanded once, so that even a ring would come to an end."""
    pen = _Pen(graph, max_depth, most)
    for root in chain(_roots(graph, max_depth), graph.nodes):
        if pen.owes(root):
            pen.tree(graph.nodes[root])
    hidden = len(graph.nodes.keys() - pen.drawn)
    return Drawing(lines=pen.lines, left_out=hidden + graph.left_out)


def _roots(graph: Graph, max_depth: int) -> list[JobId]:
    """Where trees begin: at what nothing hangs on, and at what a tree reaches with its last step."""
    targets = {job: _targets(graph, job) for job in graph.nodes}
    below = set(chain.from_iterable(targets.values()))
    distance = {job: 0 for job in graph.nodes if job not in below}
    frontier = deque(distance)
    while frontier:
        job = frontier.popleft()
        for target in targets[job]:
            if target not in distance:
                distance[target] = distance[job] + 1
                frontier.append(target)

    def begins(job: JobId) -> bool:
        far = distance[job]
        return far == 0 or max_depth == 0 or (far % max_depth == 0 and job in graph.links)

    # What goes on first, for the drawing may end before what is blocked since long.
    roots = sorted(filter(begins, distance), key=lambda job: (graph.nodes[job].status not in ACTIVE, job))
    return roots if graph.focus is None else [graph.focus, *(job for job in roots if job != graph.focus)]


def _targets(graph: Graph, job: JobId) -> list[JobId]:
    links = graph.links.get(job, ())
    return [link.to.job for link in links if link.to is not None and link.to.job in graph.nodes and link.to.job != job]


class _Pen:
    def __init__(self, graph: Graph, max_depth: int, most: int) -> None:
        self.lines: list[Line] = []
        self.drawn: set[JobId] = set()
        self.expanded: set[JobId] = set()
        self._graph = graph
        self._max_depth = max_depth
        self._most = most

    def owes(self, job: JobId) -> bool:
        """It, or what it hangs on, is still to be drawn."""
        has_more = self._max_depth > 0 and job not in self.expanded and bool(self._graph.links.get(job))
        return job not in self.drawn or has_more

    def tree(self, root: Vertex) -> None:
        """It keeps its own stack: how deep a tree may go is for the user to say."""
        stack: list[Iterator[tuple[str, str, Link | None, Vertex | None]]] = [iter([("", "", None, root)])]
        while stack and len(self.lines) < self._most:
            place = next(stack[-1], None)
            if place is None:
                stack.pop()
                continue
            prefix, indent, link, vertex = place
            links = () if vertex is None else self._graph.links.get(vertex.job, ())
            mark = self._mark(vertex, links, depth=len(stack) - 1)
            self.lines.append(Line(prefix=prefix, link=link, vertex=vertex, mark=mark))
            if vertex is not None:
                self.drawn.add(vertex.job)
                if links and mark is not Mark.AGAIN and len(stack) <= self._max_depth:
                    self.expanded.add(vertex.job)
                    stack.append(_branches(indent, links))

    def _mark(self, vertex: Vertex | None, links: Sequence[Link], depth: int) -> Mark:
        if vertex is None:
            return Mark.NONE
        is_at_the_end = not links or depth >= self._max_depth
        if vertex.job in self.expanded or (vertex.job in self.drawn and is_at_the_end):
            return Mark.AGAIN
        return Mark.CUT if vertex.job in self._graph.cut or (links and is_at_the_end) else Mark.NONE


def _branches(indent: str, links: Sequence[Link]) -> Iterator[tuple[str, str, Link | None, Vertex | None]]:
    for link in links[:-1]:
        yield f"{indent}|-- ", f"{indent}|   ", link, link.to
    yield f"{indent}`-- ", f"{indent}    ", links[-1], links[-1].to


class Caption(msgspec.Struct, frozen=True, kw_only=True):
    """What a node's line says of its job behind the status."""

    scope: str | None = None
    plan: str | None = None
    target: str | None = None
    wait: str | None = None
    locks: Sequence[Lock] = ()
    pinned_head: PinnedHead | None = None

    def __str__(self) -> str:
        plan = self.plan if self.plan is None or len(self.plan) <= _LONGEST_NAME else f"{self.plan[:_LONGEST_NAME]}..."
        locks = [lock.key if lock.mode is LockMode.EXCLUSIVE else f"{lock.key}:{lock.mode}" for lock in self.locks]
        head = self.pinned_head
        parts = (
            "/".join(part for part in (self.scope, plan, self.target) if part),
            f"wait: {self.wait}" if self.wait else "",
            f"locks: {', '.join(locks)}" if locks else "",
            f"pinned: {head.branch}@{head.oid[:_SHORT_OID]}" if head is not None else "",
        )
        return "".join(f" [{part}]" for part in parts if part)


_NOTHING_SAID = Caption()


def show_line(line: Line, captions: Mapping[JobId, Caption], presence: Mapping[Need, bool | None]) -> str:
    edge = "" if line.link is None else f"{line.link.label}"
    arrow = " -> " if line.link is not None else ""
    if line.vertex is not None:
        caption = "" if line.mark is Mark.AGAIN else captions.get(line.vertex.job, _NOTHING_SAID)
        node = f"{show_job(line.vertex.job)} {line.vertex.status.shown}{caption}"
        return line.prefix + ascii_only(f"{edge}{arrow}{node}") + line.mark
    match line.link:
        case Needed(need=need):
            return line.prefix + ascii_only(f"{edge} [{state_of(presence.get(need))}]")
        case After(predecessor=predecessor):
            return f"{line.prefix}{edge}{arrow}{show_job(predecessor)} [missing]"
        case _:
            return line.prefix


def state_of(presence: bool | None) -> Literal["present", "missing", "unknown"]:
    """Of an artifact that nobody makes. What could not be looked at is neither there nor missing."""
    return "unknown" if presence is None else "present" if presence else "missing"


def ascii_only(text: str) -> str:
    """Names come from anywhere: what is not printable ASCII is escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if " " <= each <= "~" else each.encode("unicode_escape").decode("ascii") for each in text)
