"""Targets: the repositories that work items are dispatched to, and the target of an item."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.config import TargetConfig
from rota.errors import find_nearest
from rota.work.beads import Route
from rota.work.model import Item

COORDINATION_PREFIX = "hq-"
"""Start of the ids of coordination items, which are not dispatched."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """`[targets.NAME]` with its absolute path."""

    name: str
    path: Path
    prefix: str | None = None
    template: str | None = None
    base: str | None = None
    max: int | None = None
    on_dispatch: str | None = None

    @property
    def pool(self) -> str:
        """Pool that the jobs of the target draw from."""
        return f"target/{self.name}"


class TargetRefusal(NamedTuple):
    """Reason why an item has no target."""

    message: str
    is_coordination: bool = False
    """Whether the item is skipped because it coordinates others."""


def resolve_path(path: str | Path, directory: Path) -> Path:
    """Return the absolute path, without links. A relative path starts at the directory; it need not exist."""
    # Not `Path.expanduser`, which raises an error for an unknown user.
    return Path(os.path.realpath(directory / os.path.expanduser(path)))  # noqa: PTH111


def make_targets(configured: Mapping[str, TargetConfig], directory: Path) -> dict[str, Target]:
    """Return the configured targets. Relative paths start at the directory."""
    return {
        name: Target(name=name, **{**msgspec.structs.asdict(section), "path": resolve_path(section.path, directory)})
        for name, section in configured.items()
    }


def resolve_target(
    item: Item, argument: str | None, targets: Mapping[str, Target], routes: Iterable[Route] = ()
) -> Target | TargetRefusal:
    """Return the target of an item: the argument, else its own, else by the prefix of its id."""
    if is_coordination(item.id, targets):
        return TargetRefusal(
            f"{item.id} is coordination, not work: items with the prefix {COORDINATION_PREFIX} are skipped",
            is_coordination=True,
        )
    if argument is not None:
        return targets.get(argument) or TargetRefusal(f"unknown target {argument!r}; {_suggest(argument, targets)}")
    if item.target is not None:
        return targets.get(item.target) or TargetRefusal(
            f"{item.id} names the unknown target {item.target!r}; {_suggest(item.target, targets)}"
        )
    return _resolve_by_prefix(item, targets, routes)


def is_coordination(item_id: str, targets: Mapping[str, Target]) -> bool:
    """Return whether the id names a coordination item, unless a target claims its prefix."""
    return item_id.startswith(COORDINATION_PREFIX) and not any(
        (target.prefix or "").startswith(COORDINATION_PREFIX) for target in targets.values()
    )


def prefix_mismatch(item: Item, target: Target) -> str | None:
    """Return why the item does not belong to the target; None if it does."""
    if target.prefix is None or item.id.startswith(target.prefix):
        return None
    return f"{item.id} does not have the prefix {target.prefix} of the target {target.name}; --force takes it anyway"


def _resolve_by_prefix(item: Item, targets: Mapping[str, Target], routes: Iterable[Route]) -> Target | TargetRefusal:
    """Use the longest prefix of a target, else the longest of a route, else the only target without a prefix."""
    matching = [target for target in targets.values() if target.prefix and item.id.startswith(target.prefix)]
    longest = max((len(target.prefix or "") for target in matching), default=0)
    candidates = [target for target in matching if len(target.prefix or "") == longest]
    if not candidates:
        route = max(
            (route for route in routes if item.id.startswith(route.prefix)),
            key=lambda route: len(route.prefix),
            default=None,
        )
        if route is not None:
            path = resolve_path(route.path, Path("/"))
            candidates = [target for target in targets.values() if target.path == path]
            if not candidates:
                return TargetRefusal(
                    f"{item.id} belongs to {path} by routes.jsonl, but no target has this path; add one: rota config"
                    f" set targets.NAME.path {path}"
                )
    if not candidates:
        candidates = [target for target in targets.values() if target.prefix is None]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        return TargetRefusal(f"{item.id} fits several targets: {_list(candidates)}; name one of them")
    return TargetRefusal(f"no target takes {item.id}; prefixes: {_list_prefixes(targets.values())}")


def _suggest(name: str, targets: Mapping[str, Target]) -> str:
    if not targets:
        return "no target is configured; add one: rota config set targets.NAME.path DIRECTORY"
    near = find_nearest(name, targets)
    return f"did you mean {near}?" if near else f"known targets: {', '.join(targets)}"


def _list(targets: Sequence[Target]) -> str:
    return ", ".join(target.name for target in targets)


def _list_prefixes(targets: Iterable[Target]) -> str:
    listed = ", ".join(f"{target.prefix} ({target.name})" for target in targets if target.prefix is not None)
    return listed or "none; add a target: rota config set targets.NAME.path DIRECTORY"
