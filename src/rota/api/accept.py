"""What of several forms a client likes best, by its `Accept` header (RFC 9110)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from starlette.requests import Request

JSON = "application/json"

_Match = Literal[0, 1, 2]
"""How closely a range of media names one: `*/*`, `text/*`, itself."""


def best_of(request: Request, offered: Sequence[str]) -> str:
    """One of these; the first of those that it likes the same, and the first of all where it likes none: an answer in a
    form that was not asked for is of more use than none."""
    ranges = [each for line in request.headers.getlist("accept") for each in line.split(",") if each.strip()]
    if not ranges:
        return offered[0]
    return max(offered, key=lambda media: _liking(ranges, media))


def _liking(ranges: Sequence[str], media: str) -> tuple[float, _Match]:
    """How much, and how closely it is named: what is named is liked better than what is let pass."""
    match, quality = max(_weighed(each, media) for each in ranges)
    return quality, match


def _weighed(wanted: str, media: str) -> tuple[_Match, float]:
    """The closest range counts, whatever the others say."""
    named, *parameters = (part.strip().lower() for part in wanted.split(";"))
    matches: dict[str, _Match] = {"*/*": 0, f"{media.partition('/')[0]}/*": 1, media: 2}
    if named not in matches:
        return 0, 0.0
    quality = next(
        (text.partition("=")[2].strip() for text in parameters if text.partition("=")[0].strip() == "q"), "1"
    )
    return matches[named], _number(quality)


def _number(quality: str) -> float:
    try:
        return min(1.0, max(0.0, float(quality)))
    except ValueError:
        return 0.0
