"""Translation of the store's SQL to PostgreSQL.

    :name        $1, $2 …: the same name has the same number
    @in(ids)     = ANY ($1)
    @int         BIGINT
    @strict      nothing: PostgreSQL is always strict
    @refuse      a trigger and its function, because the WHEN of a trigger cannot read other rows
    TEXT         TEXT COLLATE "C": the sort order of SQLite, whatever the locale of the server

Values are sent as text and the server infers their types from the context, so each statement is prepared once, whether
a value is null or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rota.db.statements import REFUSE_DIRECTIVE
from rota.errors import InvalidInput

_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | ::  # text that only looks like a parameter
      | @in\((?P<list>\w+)\) | :(?P<name>[A-Za-z_]\w*)""",
    re.VERBOSE,
)
_DIRECTIVES = {"@int": "BIGINT", "@strict": "", "TEXT": 'TEXT COLLATE "C"'}
_DIRECTIVE = re.compile(r"--[^\n]*|@int\b|@strict\b|\bTEXT\b")
_REFUSE_TRIGGER = r"""CREATE FUNCTION \g<name>() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF \g<when> THEN
        RAISE integrity_constraint_violation USING MESSAGE = \g<text>;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER \g<name> BEFORE \g<event> FOR EACH ROW EXECUTE FUNCTION \g<name>();"""


class PostgresStatement(NamedTuple):
    sql: bytes
    parameter_names: tuple[str, ...]
    """Names of the parameters, in order of their numbers."""


def translate_statement(text: str) -> PostgresStatement:
    """Translate a statement of `db/sql`."""
    numbers: dict[str, int] = {}

    def replace_token(match: re.Match[str]) -> str:
        name = match["list"] or match["name"]
        if name is None:
            return match[0]
        number = numbers.setdefault(name, len(numbers) + 1)
        return f"= ANY (${number})" if match["list"] else f"${number}"

    sql = _TOKEN.sub(replace_token, text)
    return PostgresStatement(sql.encode(), tuple(numbers))


def translate_schema(text: str) -> str:
    """Translate a script of `db/migrations`."""
    return _DIRECTIVE.sub(
        lambda match: _DIRECTIVES.get(match[0], match[0]), REFUSE_DIRECTIVE.sub(_REFUSE_TRIGGER, text)
    )


def bind_values(statement: PostgresStatement, values: Mapping[str, Any]) -> list[bytes | None]:
    return [
        _DUMPERS[type(value)](value) if (value := values[name]) is not None else None
        for name in statement.parameter_names
    ]


def _dump_int(value: int) -> bytes:
    return b"%d" % value


def _dump_text(value: str) -> bytes:
    if "\x00" in value:
        # libpq would truncate the text there. A client that sends such a name gets a refusal; it is not a defect.
        raise InvalidInput("PostgreSQL cannot store a NUL character in text; remove it")
    return value.encode()


def _dump_list(values: Sequence[Any]) -> bytes:
    """Return an array literal for a list of integers or of texts."""
    if values and isinstance(values[0], str):
        quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
        return _dump_text('{"' + '","'.join(quoted) + '"}')
    return b"{%s}" % b",".join(b"%d" % value for value in values)


class _Dumpers(dict[type, Callable[[Any], bytes]]):
    """Dumpers by exact type. The dumper of a derived type is looked up once."""

    def __missing__(self, kind: type) -> Callable[[Any], bytes]:
        for base in (str, int, list, tuple):
            if issubclass(kind, base):
                self[kind] = self[base]
                return self[base]
        raise TypeError(f"the store has no type for a {kind.__name__}")


_DUMPERS = _Dumpers({int: _dump_int, str: _dump_text, list: _dump_list, tuple: _dump_list})
