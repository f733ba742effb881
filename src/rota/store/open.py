"""Opening a store by its address: a file for SQLite, a URL for PostgreSQL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rota.errors import ConfigError, StoreError
from rota.store.id_allocation import IdWatermarks
from rota.store.port import Store
from rota.store.sqlite.orphaned_log import refuse_orphaned_log
from rota.store.sqlite.store import SqliteStore
from rota.store.statement import find_schema_mismatch, load_migrations

POSTGRES_SCHEMES = ("postgresql://", "postgres://")


def is_postgres_url(address: str) -> bool:
    return address.startswith(POSTGRES_SCHEMES)


def open_store(address: str | Path) -> Store:
    """Return the store at an address. It does not connect or create anything. The PostgreSQL driver is imported only
    for a PostgreSQL address."""
    if isinstance(address, Path):
        return SqliteStore(address)
    if not is_postgres_url(address):
        scheme, separator, _ = address.partition("://")
        if separator:
            raise ConfigError(f"unsupported store URL {scheme}://; use a file path or postgresql://…")
        return SqliteStore(Path(address))
    try:
        from rota.store.postgres.store import PostgresStore
    except ImportError as error:
        raise ConfigError("the PostgreSQL driver is not installed; run `pip install 'rota[postgres]'`") from error
    return PostgresStore(address)


def read_id_watermarks(store: Store) -> IdWatermarks:
    """Return the highest ids in use. The store is only read; a missing database is not created."""
    if isinstance(store, SqliteStore):
        refuse_orphaned_log(store.path)
        if not store.path.exists():
            return IdWatermarks()
    with closing(store.reader()) as reader, reader.read_transaction():
        tables = reader.bulk_tables().tables()
        if "meta" not in tables:
            return IdWatermarks()
        if missing := sorted({"job", "run", "reservation", "sequence"} - tables.keys()):
            message = f"{store.name} is damaged: it has no table {missing[0]}"
            raise StoreError(f"{message}; restore a backup with `rota restore FILE --force`")
        return reader.ids.watermarks()


def check_schema_version(store: Store) -> int:
    """Return the schema version of a store, or 0 if it has none. The store is only read. Refuse an incompatible
    version."""
    with closing(store.reader()) as reader, reader.read_transaction():
        if "meta" not in reader.bulk_tables().tables():
            return 0
        version, digest = int(reader.meta.get("schema_version") or 0), reader.meta.get("schema_digest")
    if (mismatch := find_schema_mismatch(version, digest, load_migrations(str))) is not None:
        raise StoreError(f"{store.name} {mismatch}")
    return version
