"""The names of group failure policies: Rota's own, and what installed packages bring as entry points."""

from __future__ import annotations

from collections.abc import Collection

from rota.errors import InvalidInput

GROUP = "rota.group_policies"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from typing import Any


def load(name: str, own: Collection[str]) -> Any:
    """What a package brings: a class that can be made without arguments, or an object."""
    found = entry_points()
    if name not in found:
        known = ", ".join([*own, *sorted(set(found).difference(own))])
        raise InvalidInput(
            f"no group failure policy is called {name!r}; there is {known}"
            f" (a package adds one by an entry point in the group {GROUP})"
        )
    try:
        loaded = found[name].load()
        policy = loaded() if isinstance(loaded, type) else loaded
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"the group failure policy {name} cannot be loaded: {error!r}; mend it, or use one of {', '.join(own)}"
        ) from error
    if not callable(getattr(policy, "fates", None)):
        raise InvalidInput(f"{name} is no group failure policy: it has no method fates(failed, waiting)")
    return policy


def entry_points() -> dict[str, EntryPoint]:
    """By name; where two packages use one name, the first is taken."""
    from importlib import metadata  # it takes longer to load than all the rest, and hardly anybody needs it

    found: dict[str, EntryPoint] = {}
    for each in metadata.entry_points(group=GROUP):
        found.setdefault(each.name, each)
    return found
