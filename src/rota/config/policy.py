"""The names of concurrency policies: Rota's own, and what installed packages bring as entry points."""

from __future__ import annotations

from rota.errors import InvalidInput

GROUP = "rota.concurrency_policy"
POOLS = "pools"
"""The pools as configured."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def check_policy(name: str) -> None:
    if name != POOLS and name not in (found := entry_points()):
        raise InvalidInput(
            f"no concurrency policy is called {name!r}; there is {', '.join([POOLS, *sorted(found)])}"
            f" (a package adds one by an entry point in the group {GROUP})"
        )


def entry_points() -> dict[str, EntryPoint]:
    """By name; where two packages use one name, which of them is meant nobody can know, and the first is taken."""
    from importlib import metadata  # it takes longer to load than all the rest, and hardly anybody needs it

    found: dict[str, EntryPoint] = {}
    for each in metadata.entry_points(group=GROUP):
        if each.name != POOLS:
            found.setdefault(each.name, each)
    return found
