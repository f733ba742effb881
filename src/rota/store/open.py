"""A store by its address: a file for SQLite, a URL for PostgreSQL."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rota.errors import ConfigError, StoreError
from rota.store.port import Store
from rota.store.sqlite.store import SqliteStore
from rota.store.statement import migrations

POSTGRES = ("postgresql://", "postgres://")


def is_url(address: str) -> bool:
    return address.startswith(POSTGRES)


def open_store(address: str | Path) -> Store:
    """Nothing is connected or made yet. PostgreSQL's driver is loaded only here, and only when it is asked for."""
    if isinstance(address, Path):
        return SqliteStore(address)
    if not is_url(address):
        scheme, mark, _ = address.partition("://")
        if mark:
            raise ConfigError(f"a store cannot be at {scheme}://; name a file, or postgresql://…")
        return SqliteStore(Path(address))
    try:
        from rota.store.postgres.store import PostgresStore
    except ImportError as error:
        raise ConfigError(
            "PostgreSQL needs the driver that comes with the extra: pip install 'rota[postgres]'"
        ) from error
    return PostgresStore(address)


def check(store: Store) -> int:
    """The version of the schema in this store, which is only read: 0 where there is none yet. Refused when it is newer
    than we know."""
    with closing(store.reader()) as reader, reader.reading():
        have = int(reader.meta("schema_version") or 0) if "meta" in reader.bulk().tables() else 0
    known = len(migrations(str))
    if have > known:
        raise StoreError(
            f"{store.name} was written by a newer version of Rota (schema {have}, this one knows {known}); upgrade Rota"
        )
    return have
