"""Brings a PostgreSQL schema to this version's tables, or refuses one from a newer version."""

from __future__ import annotations

from rota.errors import StoreError
from rota.store.postgres.address import Address
from rota.store.postgres.connection import Connection
from rota.store.postgres.dialect import translate_schema
from rota.store.statement import migrations

_META = translate_schema(
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "INSERT INTO meta (key, value) VALUES ('epoch', '0'), ('turn', '')"  # what every turn locks, and marks
)


def migrate(connection: Connection, address: Address) -> None:
    """One transaction: a crash in the middle leaves the old schema. The caller holds the scheduler's lock, so
    two that open a new database at once do not meet here; it closes the connection when this fails."""
    scripts = migrations(translate_schema)
    have = _version(connection, address)
    if have > len(scripts):
        raise StoreError(
            f"{address.shown} was written by a newer version of Rota (schema {have}, this one knows "
            f"{len(scripts)}); upgrade Rota, or use another schema with ?search_path="
        )
    if have == len(scripts):
        return
    connection.do("BEGIN")
    if not _has_schema(connection, address):
        connection.do(f'CREATE SCHEMA "{address.schema}"')
    if have == 0:
        connection.do(_META)
    for script in scripts[have:]:
        connection.do(script)
    connection.do(
        f"INSERT INTO meta (key, value) VALUES ('schema_version', '{len(scripts)}') "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    )
    connection.do("COMMIT")


def _has_schema(connection: Connection, address: Address) -> bool:
    """Asked first, because to create one that exists needs a right that its user may not have."""
    return bool(connection.texts(f"SELECT 1 FROM pg_namespace WHERE nspname = '{address.schema}'"))


def _version(connection: Connection, address: Address) -> int:
    if not connection.texts(f"SELECT 1 WHERE to_regclass('\"{address.schema}\".meta') IS NOT NULL"):
        return 0
    rows = connection.texts("SELECT value FROM meta WHERE key = 'schema_version'")
    return int(rows[0][0] or 0) if rows else 0
