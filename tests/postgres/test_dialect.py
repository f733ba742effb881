"""The store's SQL in PostgreSQL's words."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from rota.errors import InvalidInput
from rota.store import statement
from rota.store.postgres.dialect import Statement, bound, translate, translate_schema


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
def test_names_become_places(text: str, sql: str, names: tuple[str, ...]) -> None:
    assert translate(text) == Statement(sql.encode(), names)


def test_every_statement_of_the_store_is_without_words_of_its_own() -> None:
    for name, translated in statement.load(translate).items():
        assert b"@" not in translated.sql, name
        assert translated.sql.count(b"$") >= len(translated.names), name


def test_the_words_of_the_schema() -> None:
    text = "CREATE TABLE t ( -- @int and TEXT\n a @int, b TEXT NOT NULL\n) @strict;"
    assert translate_schema(text) == ('CREATE TABLE t ( -- @int and TEXT\n a BIGINT, b TEXT COLLATE "C" NOT NULL\n) ;')


class Colour(StrEnum):
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
        (Colour.RED, b"red"),
        ([], b"{}"),
        ([1, 2**62], b"{1,4611686018427387904}"),
        ((3,), b"{3}"),
        (["a", "", 'b"c', "d\\e", "NULL", "{,}"], rb'{"a","","b\"c","d\\e","NULL","{,}"}'),
    ],
)
def test_values_travel_as_text(value: Any, text: bytes | None) -> None:
    assert bound(Statement(b"", ("a",)), {"a": value, "unused": 1}) == [text]


@pytest.mark.parametrize("value", ["a\x00b", ["a", "\x00"], 1.5, object()])
def test_what_cannot_be_kept_is_refused_and_never_cut_short(value: object) -> None:
    with pytest.raises((InvalidInput, ValueError, TypeError)):
        bound(Statement(b"", ("a",)), {"a": value})
