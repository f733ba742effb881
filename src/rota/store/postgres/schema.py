"""Migration of a PostgreSQL schema to this version. Schemas of other versions are refused."""

from __future__ import annotations

from rota.errors import StoreError
from rota.store.postgres.address import PostgresAddress
from rota.store.postgres.connection import PostgresConnection
from rota.store.postgres.dialect import translate_schema
from rota.store.statement import find_schema_mismatch, load_migrations, schema_digest

_META = translate_schema(
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "INSERT INTO meta (key, value) VALUES ('epoch', '0'), ('turn', '')"  # rows that every turn locks and marks
)


def migrate(connection: PostgresConnection, address: PostgresAddress) -> None:
    """Migrate in one transaction, so that a crash leaves the old schema.

    The caller holds the scheduler's lock, so two schedulers cannot migrate at once, and closes the connection on
    failure.
    """
    scripts = load_migrations(translate_schema)
    version, digest = _read_version(connection, address)
    if (mismatch := find_schema_mismatch(version, digest, load_migrations(str))) is not None:
        raise StoreError(f"{address.redacted_url} {mismatch}, or use another schema with ?search_path=")
    if version == len(scripts):
        return
    connection.execute_script("BEGIN")
    if not _has_schema(connection, address):
        connection.execute_script(f'CREATE SCHEMA "{address.schema}"')
    if version == 0:
        connection.execute_script(_META)
    for script in scripts[version:]:
        connection.execute_script(script)
    connection.execute_script(
        f"INSERT INTO meta (key, value) VALUES ('schema_version', '{len(scripts)}'), "
        f"('schema_digest', '{schema_digest(load_migrations(str))}') "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    )
    connection.execute_script("COMMIT")


def _has_schema(connection: PostgresConnection, address: PostgresAddress) -> bool:
    """Return whether the schema exists. Creating it again would need a privilege that the user may not have."""
    return bool(connection.query_text(f"SELECT 1 FROM pg_namespace WHERE nspname = '{address.schema}'"))


def _read_version(connection: PostgresConnection, address: PostgresAddress) -> tuple[int, str | None]:
    """Return the version of the schema, zero if there is none, and its digest."""
    if not connection.query_text(f"SELECT 1 WHERE to_regclass('\"{address.schema}\".meta') IS NOT NULL"):
        return 0, None
    rows = connection.query_text("SELECT key, value FROM meta WHERE key IN ('schema_version', 'schema_digest')")
    stored = {key: value for key, value in rows}  # noqa: C416 - a row is a tuple of any length to `dict`
    return int(stored.get("schema_version") or 0), stored.get("schema_digest")
