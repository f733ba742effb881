"""The hot statements walk an index, whatever the server believes of its tables: a plan that was made when the
store was empty still has to do when 100,000 jobs are queued."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from postgres_server import Server
from rota.store import statement
from rota.store.postgres.address import parse
from rota.store.postgres.connection import Connection
from rota.store.postgres.dialect import translate
from rota.store.postgres.store import PostgresStore

STATEMENTS = {name: sql for name, sql in statement.load(translate).items() if not sql.sql.startswith(b"INSERT INTO")}
SMALL = (
    "lane", "pause", "sequence", "surroundings", "meta", "breaker", "breaker_failure", "template", "schedule",
    "webhook", "ahead",
)  # fmt: skip
"""Tables that do not grow with the queue."""
SORTS = (
    "consumers",
    "stir_parked",
    "group_counts",
    "members_going",
    "templates_by_name",
    "list_open_runs",
    "newest_active_ids",
)
"""A few rows, in an order for people, or members counted by status: a table that is known to be large is hashed."""


@pytest.fixture(scope="module")
def empty(postgres_server: Server) -> Iterator[Connection]:
    """The server knows for certain that there is nothing to walk over."""
    url = postgres_server.url()
    PostgresStore(url).session().close()
    with closing(Connection(parse(url))) as connection:
        connection.do("ANALYZE")
        yield connection


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_walks_a_table_or_sorts(empty: Connection, name: str) -> None:
    plan = "\n".join(str(row[0]) for row in empty.texts(f"EXPLAIN (GENERIC_PLAN) {STATEMENTS[name].sql.decode()}"))
    assert [table for table in re.findall(r"Seq Scan on (\w+)", plan) if table not in SMALL] == []
    assert "Hash Join" not in plan
    assert name in SORTS or "Sort Key" not in plan
