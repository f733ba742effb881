"""Suggestions for misspelled names. `difflib` is imported only when a name is misspelled."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def find_nearest(name: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the candidate that is most similar to the name, or None if none is similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(candidates), n=1, cutoff=cutoff)), None)
