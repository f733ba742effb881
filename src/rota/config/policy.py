"""The names of concurrency policies: Rota's own, and what installed packages bring as entry points."""

from __future__ import annotations

from rota.errors import InvalidInput

GROUP = "rota.concurrency_policy"
POOLS = "pools"
"""The pools as configured."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from typing import Any


def check_policy(name: str) -> None:
    """What cannot be loaded is refused here, before it is written down: with it the next start would fail."""
    if name != POOLS:
        load(name)


def load(name: str) -> Any:
    """What a package brings: a class that can be made without arguments, or an object."""
    found = entry_points()
    if name not in found:
        raise InvalidInput(
            f"no concurrency policy is called {name!r}; there is {', '.join([POOLS, *sorted(found)])}"
            f" (a package adds one by an entry point in the group {GROUP})"
        )
    try:
        loaded = found[name].load()
        policy = loaded() if isinstance(loaded, type) else loaded
    except (Exception, SystemExit) as error:
        raise InvalidInput(
            f"the concurrency policy {name} cannot be loaded: {error!r}; mend it, or"
            " `rota config set scheduler.policy default`"
        ) from error
    if not callable(getattr(policy, "draws", None)):
        raise InvalidInput(f"{name} is no concurrency policy: it has no method draws(job)")
    return policy


def entry_points() -> dict[str, EntryPoint]:
    """By name; where two packages use one name, which of them is meant nobody can know, and the first is taken."""
    from importlib import metadata  # it takes longer to load than all the rest, and hardly anybody needs it

    found: dict[str, EntryPoint] = {}
    for each in metadata.entry_points(group=GROUP):
        if each.name != POOLS:
            found.setdefault(each.name, each)
    return found
