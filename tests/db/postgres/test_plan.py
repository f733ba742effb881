"""Query plans on PostgreSQL: statements use indexes whatever the statistics say. A plan that was made for an empty
store must still work with 100,000 queued jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from rota.db import statements
from rota.db.postgres.address import parse_address
from rota.db.postgres.connection import PostgresConnection
from rota.db.postgres.dialect import translate_statement
from rota.db.postgres.store import PostgresStore
from tests.postgres_server import Server

STATEMENTS = {
    name: sql
    for name, sql in statements.load_statements(translate_statement).items()
    if not sql.sql.startswith(b"INSERT INTO")
}
SMALL_TABLES = (
    "lane",
    "pause",
    "sequence",
    "environment",
    "meta",
    "breaker",
    "breaker_failure",
    "template",
    "schedule",
    "webhook",
    "prefetch",
)
"""Tables that do not grow with the queue."""
SORTING_STATEMENTS = (
    "consumers",
    "wake_parked",
    "group_counts",
    "count_removed_members",
    "templates_by_name",
    "list_open_runs",
    "newest_active_ids",
    "unchecked_chains",
    "unchecked_products",
    "started_ids",
    "started_ids_of",
    "started_ids_in",
)
"""Statements that may sort: they return a few rows in display order, or count members by status, where PostgreSQL
hashes a table that it knows to be large."""


@pytest.fixture(scope="module")
def empty_store(postgres_server: Server) -> Iterator[PostgresConnection]:
    """Connection to an empty store with current statistics."""
    url = postgres_server.url()
    PostgresStore(url).session().close()
    with closing(PostgresConnection(parse_address(url))) as connection:
        connection.execute_script("ANALYZE")
        yield connection


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_neither_scans_a_large_table_nor_sorts(empty_store: PostgresConnection, name: str) -> None:
    plan = "\n".join(
        str(row[0]) for row in empty_store.query_text(f"EXPLAIN (GENERIC_PLAN) {STATEMENTS[name].sql.decode()}")
    )
    assert [table for table in re.findall(r"Seq Scan on (\w+)", plan) if table not in SMALL_TABLES] == []
    assert "Hash Join" not in plan
    assert name in SORTING_STATEMENTS or "Sort Key" not in plan
