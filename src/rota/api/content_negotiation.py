"""Content negotiation by the `Accept` header (RFC 9110)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from starlette.requests import Request

JSON = "application/json"

_Specificity = Literal[0, 1, 2]
"""Specificity of a media range: 0 for `*/*`, 1 for `text/*`, 2 for a media type."""


def negotiate_media_type(request: Request, offered: Sequence[str]) -> str:
    """Return the offered media type that the client prefers. The first one wins a tie, and also wins if the client
    accepts none of them: a response in another format is more useful than a refusal."""
    ranges = [part for line in request.headers.getlist("accept") for part in line.split(",") if part.strip()]
    if not ranges:
        return offered[0]
    return max(offered, key=lambda media: _preference(ranges, media))


def _preference(ranges: Sequence[str], media: str) -> tuple[float, _Specificity]:
    """Return quality and specificity of the most specific range that matches, whatever the others allow. Of two types
    with equal quality, the one that is named more closely is preferred."""
    specificity, quality = max(_match_range(media_range, media) for media_range in ranges)
    return quality, specificity


def _match_range(media_range: str, media: str) -> tuple[_Specificity, float]:
    """Return specificity and quality of a match."""
    name, *parameters = (part.strip().lower() for part in media_range.split(";"))
    matches: dict[str, _Specificity] = {"*/*": 0, f"{media.partition('/')[0]}/*": 1, media: 2}
    if name not in matches:
        return 0, 0.0
    quality = next(
        (text.partition("=")[2].strip() for text in parameters if text.partition("=")[0].strip() == "q"), "1"
    )
    return matches[name], _parse_quality(quality)


def _parse_quality(quality: str) -> float:
    try:
        return min(1.0, max(0.0, float(quality)))
    except ValueError:
        return 0.0
