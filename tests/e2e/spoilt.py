"""Bodies that nobody should send, made from one that is right: cut, overwritten, of the wrong types, too deep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Path = tuple[str | int, ...]


class Token(str):
    """Stands in a body as it is, not as a string."""


ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, "", " ", "x", "\0", "a\0b", "💥" * 50, "x" * 70_000, "../../etc/passwd", "-1s",
    "9" * 400, "-- '); DROP TABLE job", "{0.__class__}", "%s%n", "job-0", "job-1", "job-999999999999999999",
    [], {}, [None], [[]], [{}], {"": {}}, {"\0": "\0"}, ["\0"], {"a": None}, [1, "a", None],
    2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30,
    Token("1e308"), Token("1e999"), Token("-1e999"), Token("-0"), Token("-0.0"), Token("1" + "0" * 5_000),
    Token("NaN"), Token("Infinity"), Token("01"), Token("+1"), Token(".5"), Token("1."), Token("0x10"),
    Token("'x'"), Token("undefined"), Token("[" * 60 + "]" * 60), Token("[" * 2_000 + "]" * 2_000),
    Token('{"a":' * 5_000 + "1" + "}" * 5_000), Token("[" * 100_000),
    Token(r'"\ud800"'), Token(r'"\udc00\ud800"'), Token(r'"\u0000"'), Token(r'"\x"'), Token('"\n"'), Token('"'),
    Token(r'"2026-11-16T08:21:33Z"'), Token(r'"9999-12-31T23:59:59.999999-23:59"'),
    Token('"0001-01-01T00:00:00+23:59"'),
]  # fmt: skip
"""What stands where something else should."""
RAW = [
    b"", b" ", b"null", b"true", b"0", b'""', b"[]", b"{}", b"[{}]", b"[[]]", b"{", b"}", b"{}{}", b"{} x",
    b"\0", b"{}\0",
    b"\xff\xfe{\0}\0", b"\xef\xbb\xbf{}", b"\xc3\x28", b"\xed\xa0\x80", b'"\xff"', b'{"\xff": 1}', b"a=b&c=d",
    b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n--x--\r\n", b"<a/>", b"\x1f\x8b\x08\0\0\0\0\0",
    b"[" * 100_000, b"[" * 2_000 + b"]" * 2_000, b'{"a":' * 100_000,
]  # fmt: skip


def paths_in(value: Any, at: Path = ()) -> Iterator[Path]:
    yield at
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths_in(each, (*at, key))


def replaced(value: Any, path: Path, by: Any) -> Any:
    if not path:
        return by
    first, *rest = path
    copy = value.copy()
    copy[first] = replaced(copy[first], tuple(rest), by)
    return copy


def written(value: Any) -> str:
    if isinstance(value, Token):
        return str(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {written(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return json.dumps(value)


@st.composite
def spoilt(draw: st.DrawFn, right: Any, fields: list[str]) -> bytes:
    """`right` is a body that could be used, `fields` are all that it could have."""
    how = draw(
        st.sampled_from(["raw", "binary", "cut", "overwritten", "odd", "odd", "odd", "more", "more", "twice", "code"])
    )
    text = written(right)
    if how == "raw":
        return draw(st.sampled_from(RAW))
    if how == "binary":
        return draw(st.binary(max_size=200))
    if how == "cut":
        return text.encode()[: draw(st.integers(0, len(text) - 1))]
    if how == "overwritten":
        begin = draw(st.integers(0, len(text)))
        return (
            text.encode()[:begin]
            + draw(st.binary(min_size=1, max_size=8))
            + text.encode()[begin + draw(st.integers(0, 8)) :]
        )
    if how == "code":
        return text.encode(draw(st.sampled_from(["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037"])))
    odd = draw(st.sampled_from(ODD))
    if how == "odd":
        return written(replaced(right, draw(st.sampled_from(list(paths_in(right)))), odd)).encode()
    name = draw(st.sampled_from([*fields, "", "\0", "__proto__", "x" * 5_000]))
    if how == "more":
        return written({**right, name: odd}).encode()
    return f"{{{json.dumps(name)}: {written(odd)}, {text[1:]}".encode()
