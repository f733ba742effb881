"""What installed packages bring to Rota as entry points: policies that the configuration or a request names."""

from __future__ import annotations

from collections.abc import Sequence

from rota.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from typing import Any


class Kind:
    """One kind of policy."""

    def __init__(self, what: str, *, group: str, method: str, own: Sequence[str], instead: str) -> None:
        self.what = what
        self.group = group
        self.method = method
        """How what it must be able to do is called."""
        self.own = own
        """Names that are Rota's, whatever a package brings under them."""
        self.instead = instead
        """What to do about one that cannot be used."""


def load(kind: Kind, name: str) -> Any:
    """What a package brings: a class that can be made without arguments, or an object."""
    found = entry_points(kind)
    if name not in found:
        raise InvalidInput(
            f"no {kind.what} is called {name!r}; there is {', '.join([*kind.own, *sorted(found)])}"
            f" (a package adds one by an entry point in the group {kind.group})"
        )
    try:
        loaded = found[name].load()
        policy = loaded() if isinstance(loaded, type) else loaded
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"the {kind.what} {name} cannot be loaded: {error!r}; mend it, or {kind.instead}") from error
    if not callable(getattr(policy, kind.method.partition("(")[0], None)):
        raise InvalidInput(f"{name} is no {kind.what}: it has no method {kind.method}")
    return policy


def entry_points(kind: Kind) -> dict[str, EntryPoint]:
    """By name; where two packages use one name, which of them is meant nobody can know, and the first is taken."""
    from importlib import metadata  # it takes longer to load than all the rest, and hardly anybody needs it

    found: dict[str, EntryPoint] = {}
    for each in metadata.entry_points(group=kind.group):
        if each.name not in kind.own:
            found.setdefault(each.name, each)
    return found
