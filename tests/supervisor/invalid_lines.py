"""Invalid lines, generated from valid messages: truncated, overwritten, with wrong types, deeply nested, or
arbitrary."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.e2e.invalid_bodies import INVALID_VALUES, RAW_BODIES, RawToken, paths_in, render_value, replace_value

_MORE = [
    RawToken("-Infinity"),
    RawToken('"\\udcff"'),
    RawToken("1e12"),
    True,
    1 << 31,
    "/",
    "/nowhere/at/all",
    ["/"],
    "stop",
]


def _remove_line_breaks(line: bytes) -> bytes:
    return line.replace(b"\n", b" ")


@st.composite
def invalid_line(draw: st.DrawFn, valid: list[dict[str, Any]], *, may_be_overwritten: bool = True) -> bytes:
    """Generate one line with its line break. An overwritten line may name another file, so do not use it where files
    are created."""
    message = draw(st.sampled_from(valid))
    text = render_value(message).encode()
    kind = draw(st.sampled_from(["raw", "binary", "truncated", "odd", "odd", "odd", "odd", "missing", "overwritten"]))
    if kind == "raw":
        return _remove_line_breaks(draw(st.sampled_from(RAW_BODIES))) + b"\n"
    if kind == "binary":
        return _remove_line_breaks(draw(st.binary(max_size=100))) + b"\n"
    if kind == "truncated" or (kind == "overwritten" and not may_be_overwritten):
        return text[: draw(st.integers(0, len(text) - 1))] + b"\n"
    if kind == "overwritten":
        begin = draw(st.integers(0, len(text)))
        middle = _remove_line_breaks(draw(st.binary(min_size=1, max_size=4)))
        return text[:begin] + middle + text[begin + draw(st.integers(0, 4)) :] + b"\n"
    if kind == "missing":
        removed = draw(st.sampled_from([*message]))
        return render_value({name: value for name, value in message.items() if name != removed}).encode() + b"\n"
    path = draw(st.sampled_from([path for path in paths_in(message) if path != ("type",)]))
    return (
        _remove_line_breaks(
            render_value(replace_value(message, path, draw(st.sampled_from([*INVALID_VALUES, *_MORE])))).encode()
        )
        + b"\n"
    )
