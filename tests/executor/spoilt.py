"""Lines that nobody should say, made from right ones: cut, overwritten, of the wrong types, too deep, or anything."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from e2e.spoilt import ODD, RAW, Token, paths_in, replaced, written

_MORE = [Token("-Infinity"), Token('"\\udcff"'), Token("1e12"), True, 1 << 31, "/", "/nowhere/at/all", ["/"], "stop"]


def _without_breaks(line: bytes) -> bytes:
    return line.replace(b"\n", b" ")


@st.composite
def spoilt_line(draw: st.DrawFn, right: list[dict[str, Any]], *, may_be_overwritten: bool = True) -> bytes:
    """One line, with its end. Overwritten it may come to name another file: then not where files are made."""
    message = draw(st.sampled_from(right))
    text = written(message).encode()
    how = draw(st.sampled_from(["raw", "binary", "cut", "odd", "odd", "odd", "odd", "lacking", "overwritten"]))
    if how == "raw":
        return _without_breaks(draw(st.sampled_from(RAW))) + b"\n"
    if how == "binary":
        return _without_breaks(draw(st.binary(max_size=100))) + b"\n"
    if how == "cut" or (how == "overwritten" and not may_be_overwritten):
        return text[: draw(st.integers(0, len(text) - 1))] + b"\n"
    if how == "overwritten":
        begin = draw(st.integers(0, len(text)))
        middle = _without_breaks(draw(st.binary(min_size=1, max_size=4)))
        return text[:begin] + middle + text[begin + draw(st.integers(0, 4)) :] + b"\n"
    if how == "lacking":
        gone = draw(st.sampled_from([*message]))
        return written({name: value for name, value in message.items() if name != gone}).encode() + b"\n"
    path = draw(st.sampled_from([path for path in paths_in(message) if path != ("type",)]))
    return _without_breaks(written(replaced(message, path, draw(st.sampled_from([*ODD, *_MORE])))).encode()) + b"\n"
