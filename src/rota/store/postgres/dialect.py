"""PostgreSQL's words for the store's SQL.

    :name        $1, $2 …: the same name is the same place
    @in(ids)     = ANY ($1)
    @int         BIGINT
    @strict      nothing: PostgreSQL always is
    @refuse      a trigger and its function, for a trigger's own WHEN may not look at other rows
    TEXT         TEXT COLLATE "C": the order of SQLite, whatever the locale of the server

Values travel as text and the server infers their types from where they stand, so each statement is prepared
once, whether a value is null or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rota.errors import InvalidInput
from rota.store.guard import REFUSAL

_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | ::  # what is not a place, though it may look like one
      | @in\((?P<list>\w+)\) | :(?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE,
)
_WORDS = {
    "@int": "BIGINT",
    "@strict": "",
    "TEXT": 'TEXT COLLATE "C"',
}
_WORD = re.compile(r"--[^\n]*|@int\b|@strict\b|\bTEXT\b")
_REFUSAL = r"""CREATE FUNCTION \g<name>() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF \g<when> THEN
        RAISE integrity_constraint_violation USING MESSAGE = \g<text>;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER \g<name> BEFORE \g<event> FOR EACH ROW EXECUTE FUNCTION \g<name>();"""


class Statement(NamedTuple):
    sql: bytes
    names: tuple[str, ...]
    """Of the values, in the order of their places."""


def translate(text: str) -> Statement:
    """A statement of `store/sql`."""
    places: dict[str, int] = {}

    def place(found: re.Match[str]) -> str:
        name = found["list"] or found["name"]
        if name is None:
            return found[0]
        number = places.setdefault(name, len(places) + 1)
        return f"= ANY (${number})" if found["list"] else f"${number}"

    sql = _TOKEN.sub(place, text)
    return Statement(sql.encode(), tuple(places))


def translate_schema(text: str) -> str:
    """A script of `store/migrations`."""
    return _WORD.sub(lambda found: _WORDS.get(found[0], found[0]), REFUSAL.sub(_REFUSAL, text))


def bound(statement: Statement, values: Mapping[str, Any]) -> list[bytes | None]:
    return [_DUMP[type(value)](value) if (value := values[name]) is not None else None for name in statement.names]


def _dump_int(value: int) -> bytes:
    return b"%d" % value


def _dump_text(value: str) -> bytes:
    if "\x00" in value:
        # libpq would cut the text short there. Whoever asks for such a name is told so, and it is no defect.
        raise InvalidInput("PostgreSQL has no text with a NUL character; leave it out")
    return value.encode()


def _dump_list(values: Sequence[Any]) -> bytes:
    """As an array literal; a list holds numbers or texts."""
    if values and isinstance(values[0], str):
        quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
        return _dump_text('{"' + '","'.join(quoted) + '"}')
    return b"{%s}" % b",".join(b"%d" % value for value in values)


class _Dumpers(dict[type, Callable[[Any], bytes]]):
    """By exact type; what is derived from one of them is found once."""

    def __missing__(self, kind: type) -> Callable[[Any], bytes]:
        for known in (str, int, list, tuple):
            if issubclass(kind, known):
                self[kind] = self[known]
                return self[known]
        raise TypeError(f"the store cannot keep a {kind.__name__}")


_DUMP = _Dumpers({int: _dump_int, str: _dump_text, list: _dump_list, tuple: _dump_list})
