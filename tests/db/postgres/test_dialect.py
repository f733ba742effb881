"""Translation of the store's SQL to PostgreSQL."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from rota.db import statements
from rota.db.postgres.dialect import PostgresStatement, bind_values, translate_schema, translate_statement
from rota.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "sql", "names"),
    [
        ("SELECT 1", "SELECT 1", ()),
        ("WHERE a = :a AND b = :b", "WHERE a = $1 AND b = $2", ("a", "b")),
        ("VALUES (:id, :id, :now)", "VALUES ($1, $1, $2)", ("id", "now")),
        ("job @in(ids) AND x = :x", "job = ANY ($1) AND x = $2", ("ids", "x")),
        ("NOT (policy @in(p)) OR policy @in(p)", "NOT (policy = ANY ($1)) OR policy = ANY ($1)", ("p",)),
        ("SELECT value::bigint, :a::text", "SELECT value::bigint, $1::text", ("a",)),
        ("SELECT ':a', 'it''s :a', \":a\", :a", "SELECT ':a', 'it''s :a', \":a\", $1", ("a",)),
        ("SELECT :a -- not :b\n, :c", "SELECT $1 -- not :b\n, $2", ("a", "c")),
        ("LIKE '%:a%' || :b % 2", "LIKE '%:a%' || $1 % 2", ("b",)),
    ],
)
def test_names_become_numbered_parameters(text: str, sql: str, names: tuple[str, ...]) -> None:
    assert translate_statement(text) == PostgresStatement(sql.encode(), names)


def test_translated_statements_contain_no_directives() -> None:
    for name, translated in statements.load_statements(translate_statement).items():
        assert b"@" not in translated.sql, name
        assert translated.sql.count(b"$") >= len(translated.parameter_names), name


def test_schema_directives_are_translated() -> None:
    text = "CREATE TABLE t ( -- @int and TEXT\n a @int, b TEXT NOT NULL\n) @strict;"
    assert translate_schema(text) == ('CREATE TABLE t ( -- @int and TEXT\n a BIGINT, b TEXT COLLATE "C" NOT NULL\n) ;')


class Color(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (0, b"0"),
        (-(2**63), b"-9223372036854775808"),
        (True, b"1"),
        ("", b""),
        ("ä\n\\", "ä\n\\".encode()),
        (Color.RED, b"red"),
        ([], b"{}"),
        ([1, 2**62], b"{1,4611686018427387904}"),
        ((3,), b"{3}"),
        (["a", "", 'b"c', "d\\e", "NULL", "{,}"], rb'{"a","","b\"c","d\\e","NULL","{,}"}'),
    ],
)
def test_values_are_sent_as_text(value: Any, text: bytes | None) -> None:
    assert bind_values(PostgresStatement(b"", ("a",)), {"a": value, "unused": 1}) == [text]


@pytest.mark.parametrize("value", ["a\x00b", ["a", "\x00"], 1.5, object()])
def test_unsupported_value_is_refused(value: object) -> None:
    with pytest.raises((InvalidInput, ValueError, TypeError)):
        bind_values(PostgresStatement(b"", ("a",)), {"a": value})
