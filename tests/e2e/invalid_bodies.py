"""Invalid request bodies derived from a valid one: cut, overwritten, of the wrong types, too deep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Path = tuple[str | int, ...]


class RawToken(str):
    """Text that is inserted into a body as it is, not as a JSON string."""


INVALID_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    "",
    " ",
    "x",
    "\0",
    "a\0b",
    "💥" * 50,
    "x" * 70_000,
    "../../etc/passwd",
    "-1s",
    "9" * 400,
    "-- '); DROP TABLE job",
    "{0.__class__}",
    "%s%n",
    "job-0",
    "job-1",
    "job-999999999999999999",
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": {}},
    {"\0": "\0"},
    ["\0"],
    {"a": None},
    [1, "a", None],
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
    RawToken("1e308"),
    RawToken("1e999"),
    RawToken("-1e999"),
    RawToken("-0"),
    RawToken("-0.0"),
    RawToken("1" + "0" * 5_000),
    RawToken("NaN"),
    RawToken("Infinity"),
    RawToken("01"),
    RawToken("+1"),
    RawToken(".5"),
    RawToken("1."),
    RawToken("0x10"),
    RawToken("'x'"),
    RawToken("undefined"),
    RawToken("[" * 60 + "]" * 60),
    RawToken("[" * 2_000 + "]" * 2_000),
    RawToken('{"a":' * 5_000 + "1" + "}" * 5_000),
    RawToken("[" * 100_000),
    RawToken(r'"\ud800"'),
    RawToken(r'"\udc00\ud800"'),
    RawToken(r'"\u0000"'),
    RawToken(r'"\x"'),
    RawToken('"\n"'),
    RawToken('"'),
    RawToken(r'"2026-11-16T08:21:33Z"'),
    RawToken(r'"9999-12-31T23:59:59.999999-23:59"'),
    RawToken('"0001-01-01T00:00:00+23:59"'),
]
"""Values that replace a valid value."""
RAW_BODIES = [
    b"",
    b" ",
    b"null",
    b"true",
    b"0",
    b'""',
    b"[]",
    b"{}",
    b"[{}]",
    b"[[]]",
    b"{",
    b"}",
    b"{}{}",
    b"{} x",
    b"\0",
    b"{}\0",
    b"\xff\xfe{\0}\0",
    b"\xef\xbb\xbf{}",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b'"\xff"',
    b'{"\xff": 1}',
    b"a=b&c=d",
    b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n--x--\r\n",
    b"<a/>",
    b"\x1f\x8b\x08\0\0\0\0\0",
    b"[" * 100_000,
    b"[" * 2_000 + b"]" * 2_000,
    b'{"a":' * 100_000,
]


def paths_in(value: Any, at: Path = ()) -> Iterator[Path]:
    yield at
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths_in(item, (*at, key))


def replace_value(value: Any, path: Path, replacement: Any) -> Any:
    if not path:
        return replacement
    first, *rest = path
    copy = value.copy()
    copy[first] = replace_value(copy[first], tuple(rest), replacement)
    return copy


def render_value(value: Any) -> str:
    if isinstance(value, RawToken):
        return str(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {render_value(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(render_value, value))}]"
    return json.dumps(value)


@st.composite
def invalid_bodies(draw: st.DrawFn, valid: Any, fields: list[str]) -> bytes:
    """Draw an invalid variant of the body `valid`. `fields` are all fields that the body can have."""
    mutation = draw(
        st.sampled_from(["raw", "binary", "cut", "overwritten", "odd", "odd", "odd", "more", "more", "twice", "code"])
    )
    text = render_value(valid)
    if mutation == "raw":
        return draw(st.sampled_from(RAW_BODIES))
    if mutation == "binary":
        return draw(st.binary(max_size=200))
    if mutation == "cut":
        return text.encode()[: draw(st.integers(0, len(text) - 1))]
    if mutation == "overwritten":
        begin = draw(st.integers(0, len(text)))
        return (
            text.encode()[:begin]
            + draw(st.binary(min_size=1, max_size=8))
            + text.encode()[begin + draw(st.integers(0, 8)) :]
        )
    if mutation == "code":
        return text.encode(draw(st.sampled_from(["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037"])))
    value = draw(st.sampled_from(INVALID_VALUES))
    if mutation == "odd":
        return render_value(replace_value(valid, draw(st.sampled_from(list(paths_in(valid)))), value)).encode()
    name = draw(st.sampled_from([*fields, "", "\0", "__proto__", "x" * 5_000]))
    if mutation == "more":
        return render_value({**valid, name: value}).encode()
    return f"{{{json.dumps(name)}: {render_value(value)}, {text[1:]}".encode()
