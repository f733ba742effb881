"""Work items, and the board: the joined view of all sources at one moment. Pure.

An item is *ready* if its status is `open`, it is neither pinned nor ephemeral nor deferred, its kind is work, and no
open item blocks it. A scheduled item has a weaker condition, `Board.hold_reason`: its own status does not hold its job,
except `blocked` and `deferred`, which say that the job is not to start.

Rota follows the ready rule of beads and departs from it where the original is surprising. Each departure keeps an item
waiting that the original starts; `--force` starts it all the same.

1. `conditional-blocks` means that the item runs only if the blocker failed. The original releases it at any close. Here
   the close reason decides: after a close without failure the item stays blocked.
2. A blocker that is not in the same store is ignored by the original. Here a blocker in another configured source
   counts, and a blocker in no source blocks, with its name.
3. If blocked items cannot be computed, the original returns them as ready, and it hides only the direct children of a
   blocked parent. Here an item that cannot be read is not ready, and a blocked parent holds its descendants at any
   depth. Blockers within the parent's own subtree do not count, because a parent that waits for its children would
   otherwise hold them forever. The original reports no cycles; the board names each of them.

A parent with a `defer_until` in the future defers its descendants too, in the original its direct children.
`waits-for` waits for the children of the named item, as in the original: for all, or for the first with the gate
`any-children`. As long as there are no children, the item waits for the named item itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import msgspec

BLOCKS, CONDITIONAL, WAITS_FOR, MERGE_BLOCKS = "blocks", "conditional-blocks", "waits-for", "merge-blocks"
PARENT, TRACKS = "parent-child", "tracks"
BLOCKING_KINDS = frozenset((BLOCKS, CONDITIONAL, WAITS_FOR, MERGE_BLOCKS))
"""Kinds of dependencies that block by themselves. `parent-child` passes on the blockers of the parent."""
COORDINATION_KINDS = frozenset(("merge-request", "gate", "molecule", "message", "agent", "role", "rig"))
"""Kinds of items that are not work."""
HOLDING_STATUSES = ("blocked", "deferred")
"""Statuses of an item that hold its own job."""
_CLOSED_STATUSES = ("closed", "tombstone")
_FAILURE_WORDS = (
    "failed",
    "rejected",
    "wontfix",
    "won't fix",
    "canceled",
    "cancelled",
    "abandoned",
    "blocked",
    "error",
    "timeout",
    "aborted",
)
_MAX_CYCLES = 20
_MAX_SHOWN_IDS = 8


class ItemDependency(msgspec.Struct, frozen=True, kw_only=True):
    """Edge from an item to one that it depends on."""

    id: str
    """Item that it depends on."""
    kind: str = BLOCKS
    """Kind of dependency, as in beads."""
    is_any: bool = False
    """Whether the first closed child satisfies `waits-for`, instead of all."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Work item as its source describes it."""

    id: str
    source: str
    """Name of the source in the configuration."""
    title: str
    kind: str = "task"
    status: str = "open"
    priority: int | None = None
    """Priority in the scale of the source."""
    job_priority: int | None = None
    """Default priority of its jobs; higher starts first."""
    labels: tuple[str, ...] = ()
    target: str | None = None
    prompt: str = ""
    """Complete description of the work, with the title."""
    depends: tuple[ItemDependency, ...] = ()
    parent: str | None = None
    assignee: str | None = None
    defer_until: datetime | None = None
    close_reason: str = ""
    is_pinned: bool = False
    is_ephemeral: bool = False
    has_done_status: bool = False
    """Whether the status is a custom one that counts as closed."""
    line: int | None = None
    """Line in the file of the source."""

    @property
    def is_closed(self) -> bool:
        return self.status in _CLOSED_STATUSES or self.has_done_status

    @property
    def is_resolved(self) -> bool:
        """Whether the item no longer blocks others."""
        return self.is_closed or self.status == "pinned"

    @property
    def has_failed(self) -> bool:
        """Whether the item was closed with a reason that says so."""
        reason = self.close_reason.lower()
        return self.is_closed and any(word in reason for word in _FAILURE_WORDS)


class SourceView(NamedTuple):
    """Items of one source, and what is known about reading them."""

    name: str
    items: Sequence[Item]
    warnings: Sequence[str] = ()
    error: str | None = None
    """Reason why the source cannot be read; `items` are then the last good ones."""
    unreadable: Mapping[str, str] = {}
    """Reasons by id of items that may be on malformed lines; `items` has their last good versions."""


_Key = tuple[str, str]
"""Source and id of an item."""


class Blocker(NamedTuple):
    """Reason why one item blocks another."""

    id: str
    problem: str = ""
    """Why the blocker counts although it is not open."""
    parent: str | None = None
    """Ancestor that is blocked, if the item is not blocked itself."""

    def __str__(self) -> str:
        problem = f", which {self.problem}" if self.problem else ""
        parent = f" (through its parent {self.parent})" if self.parent else ""
        return f"{self.id}{problem}{parent}"


class Board:
    """All items of all sources at one moment. Immutable."""

    def __init__(self, sources: Iterable[SourceView], now: datetime) -> None:
        """Join the sources. Their order decides which item an id means that several sources have."""
        views = tuple(sources)
        self.now = now
        self.items: tuple[Item, ...] = ()
        self._by_key: dict[_Key, Item] = {}
        self._by_id: dict[str, Item] = {}
        self._source_names = tuple(view.name for view in views)
        self._errors = {view.name: view.error for view in views if view.error is not None}
        self._unreadable = {
            (view.name, item_id): reason for view in views for item_id, reason in view.unreadable.items()
        }
        self._children: dict[_Key, list[Item]] = {}
        self._inherited: dict[_Key, list[Blocker]] = {}
        self.warnings: tuple[str, ...] = (*self._join(views), *self._find_cycles())

    def at(self, now: datetime) -> Board:
        """Return the same board at another moment. Only `defer_until` depends on the time."""
        board = object.__new__(Board)
        board.__dict__.update(self.__dict__, now=now)
        return board

    @property
    def next_change(self) -> datetime | None:
        """Time at which the next deferred item becomes due."""
        return min((item.defer_until for item in self.items if self._is_in_future(item.defer_until)), default=None)  # type: ignore[type-var]

    def find(self, item_id: str, *, source: str | None = None) -> Item | None:
        """Return the item, from this source if one is given. `SOURCE/ID` names an item of one source too."""
        if source is not None:
            return self._by_key.get((source, item_id))
        item = self._by_id.get(item_id)
        if item is None and "/" in item_id:
            names = (name for name in self._source_names if item_id.startswith(f"{name}/"))
            found = (self._by_key.get((name, item_id.removeprefix(f"{name}/"))) for name in names)
            item = next(filter(None, found), None)
        return item

    def children(self, item: Item) -> tuple[Item, ...]:
        """Return the items with this parent, in order."""
        return tuple(self._children.get((item.source, item.id), ()))

    def tracked(self, item: Item) -> tuple[str, ...]:
        """Return the ids of the items that a convoy tracks."""
        return tuple(dict.fromkeys(edge.id for edge in item.depends if edge.kind == TRACKS))

    def is_ready(self, item: Item) -> bool:
        return self.why_not_ready(item) is None

    def blockers(self, item: Item) -> tuple[str, ...]:
        """Return the ids of the items that block this one, by itself or through a parent."""
        return tuple(dict.fromkeys(blocker.id for blocker in self._blockers(item)))

    def why_not_ready(self, item: Item) -> str | None:
        """Return the reason as a sentence; None if the item is ready."""
        if reason := self.hold_reason(item):
            return reason
        if item.status != "open":
            return f"work item {item.id} has the status {item.status}"
        if item.is_pinned:
            return f"work item {item.id} is pinned"
        if item.is_ephemeral:
            return f"work item {item.id} is ephemeral"
        if item.kind in COORDINATION_KINDS:
            return f"work item {item.id} is of the kind {item.kind}, which is not work"
        return None

    def hold_reason(self, item: Item) -> str | None:
        """Return why a job of the item may not start, as a sentence; None if it may.

        The job of an item is not held by the status that the job itself gives to it.
        """
        if reason := self.read_error(item):
            return f"work item {item.id} cannot be read: {reason}"
        if item.is_closed:
            return f"work item {item.id} is closed"
        if deferral := self._find_deferral(item):
            return f"work item {item.id} is deferred until {deferral}"
        if blockers := dict.fromkeys(self._blockers(item)):
            shown = ", ".join(map(str, islice(blockers, _MAX_SHOWN_IDS)))
            rest = len(blockers) - _MAX_SHOWN_IDS
            return f"work item {item.id} is blocked by {shown}{f' and {rest} more' if rest > 0 else ''}"
        if item.status in HOLDING_STATUSES:
            return f"work item {item.id} is {item.status}"
        return None

    def read_error(self, item: Item) -> str | None:
        """Return why the item is known only as it was; None if it was read."""
        return self._unreadable.get((item.source, item.id)) or self._errors.get(item.source)

    def _find_deferral(self, item: Item) -> str | None:
        """Return the time until which the item or an ancestor is deferred, with the ancestor."""
        for holder in (item, *self._ancestors(item)):
            if holder.defer_until is not None and self._is_in_future(holder.defer_until):
                parent = "" if holder is item else f" (through its parent {holder.id})"
                return f"{holder.defer_until:%Y-%m-%dT%H:%M:%SZ}{parent}"
        return None

    def _is_in_future(self, moment: datetime | None) -> bool:
        return moment is not None and moment > self.now

    def _join(self, views: Iterable[SourceView]) -> Iterator[str]:
        for view in views:
            yield from (f"source {view.name}: {warning}" for warning in view.warnings)
            if view.error is not None:
                yield f"source {view.name} cannot be read: {view.error}"
            for item in view.items:
                key = (item.source, item.id)
                if (other := self._by_key.get(key)) is not None:
                    yield from self._join_duplicate(key, other, item)
                    continue
                self._by_key[key] = item
                if (other := self._by_id.setdefault(item.id, item)) is not item:
                    yield (
                        f"work item {item.id} is in the sources {other.source} and {item.source}; {item.id} means the"
                        f" one in {other.source}, {item.source}/{item.id} the other"
                    )
        self.items = tuple(self._by_key.values())
        for item in self.items:
            parent = self._resolve(item, item.parent)
            if parent is not None:
                self._children.setdefault((parent.source, parent.id), []).append(item)

    def _join_duplicate(self, key: _Key, first: Item, second: Item) -> Iterator[str]:
        """Keep an open copy of an item rather than a closed one, so that nothing looks closed by mistake."""
        kept, skipped = (second, first) if first.is_closed and not second.is_closed else (first, second)
        if self._by_id.get(kept.id) is first:
            self._by_id[kept.id] = kept
        self._by_key[key] = kept
        text = f"source {kept.source}: work item {kept.id} is there twice"
        if kept.line is not None:
            text += f", in line {kept.line} and line {skipped.line}; line {skipped.line} is skipped"
        yield text

    def _resolve(self, item: Item, item_id: str | None) -> Item | None:
        """Return the item that an id in another item refers to: in its own source first."""
        if item_id is None:
            return None
        return self._by_key.get((item.source, item_id)) or self.find(item_id)

    def _ancestors(self, item: Item) -> Iterator[Item]:
        seen = {(item.source, item.id)}
        parent = self._resolve(item, item.parent)
        while parent is not None and (key := (parent.source, parent.id)) not in seen:
            seen.add(key)
            yield parent
            parent = self._resolve(parent, parent.parent)

    def _blockers(self, item: Item) -> Iterator[Blocker]:
        yield from (blocker for blocker, _ in self._own_blockers(item))
        for ancestor in self._ancestors(item):
            yield from self._inherited_blockers(ancestor)

    def _inherited_blockers(self, ancestor: Item) -> Sequence[Blocker]:
        """Return the blockers of an item that block its descendants too: those outside its own subtree."""
        key = (ancestor.source, ancestor.id)
        if key not in self._inherited:
            self._inherited[key] = [
                blocker._replace(parent=ancestor.id)
                for blocker, blocking in self._own_blockers(ancestor)
                if not self._is_within(blocking, ancestor)
            ]
        return self._inherited[key]

    def _is_within(self, item: Item | None, ancestor: Item) -> bool:
        return item is not None and (item is ancestor or any(parent is ancestor for parent in self._ancestors(item)))

    def _own_blockers(self, item: Item) -> Iterator[tuple[Blocker, Item | None]]:
        """Yield what blocks the item by its own dependencies, and the blocking item unless it is unknown."""
        if item.is_closed:
            return
        for edge in item.depends:
            if edge.kind not in BLOCKING_KINDS:
                continue
            other = self._resolve(item, edge.id)
            if other is None:
                yield Blocker(edge.id, "is not in any source"), None
            elif edge.kind == WAITS_FOR:
                yield from ((Blocker(child.id), child) for child in self._awaited(other, edge))
            elif not other.is_resolved:
                yield Blocker(other.id), other
            elif edge.kind == CONDITIONAL and not other.has_failed:
                yield Blocker(other.id, "was closed without failing"), other

    def _awaited(self, spawner: Item, edge: ItemDependency) -> Iterator[Item]:
        children = self.children(spawner)
        if edge.is_any and any(child.is_closed for child in children):
            return
        yield from (child for child in children or (spawner,) if not child.is_resolved)

    def _find_cycles(self) -> Iterator[str]:
        """Name each cycle of open items that wait for each other, also through parents."""
        graph: dict[_Key, list[_Key]] = {}
        for item in self.items:
            if item.is_closed:
                continue
            waits_for = [
                other for _, other in self._own_blockers(item) if other is not None and not self._is_below(other, item)
            ]
            parent = self._resolve(item, item.parent)
            waits_for += [] if parent is None else [parent]
            if waits_for:
                graph[item.source, item.id] = [(other.source, other.id) for other in waits_for]
        cycles = _walk_cycles(graph)
        for cycle in islice(cycles, _MAX_CYCLES):
            ids = [item_id for _, item_id in cycle]
            shown = " → ".join([*ids, ids[0]] if len(ids) <= _MAX_SHOWN_IDS else [*ids[:_MAX_SHOWN_IDS], "…"])
            yield f"cycle of {len(ids)} work items: {shown}; remove one of the dependencies"
        if next(cycles, None) is not None:
            yield "more cycles"

    def _is_below(self, item: Item, ancestor: Item) -> bool:
        return item is not ancestor and self._is_within(item, ancestor)


def _walk_cycles(graph: Mapping[_Key, Sequence[_Key]]) -> Iterator[list[_Key]]:
    """Yield disjoint cycles, each in the order of its edges, until the rest of the graph has none."""
    remaining = {node: dict.fromkeys(other for other in edges if other in graph) for node, edges in graph.items()}
    sources: dict[_Key, list[_Key]] = {}
    for node, edges in remaining.items():
        for other in edges:
            sources.setdefault(other, []).append(node)
    removed = [node for node, edges in remaining.items() if not edges]
    while True:
        _remove_nodes(removed, remaining, sources)
        if not remaining:
            return
        # Every remaining node has an edge to another, so a walk arrives at a node for the second time.
        path: dict[_Key, None] = {}
        node = next(iter(remaining))
        while node not in path:
            path[node] = None
            node = next(iter(remaining[node]))
        nodes = list(path)
        removed = nodes[nodes.index(node) :]
        yield list(removed)


def _remove_nodes(
    removed: list[_Key], remaining: dict[_Key, dict[_Key, None]], sources: Mapping[_Key, Sequence[_Key]]
) -> None:
    """Remove the nodes, and then every node that has no edge left."""
    while removed:
        node = removed.pop()
        if remaining.pop(node, None) is None:
            continue
        for other in sources.get(node, ()):
            edges = remaining.get(other)
            if edges is not None:
                edges.pop(node, None)
                if not edges:
                    removed.append(other)
