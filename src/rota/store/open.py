"""A store by its address: a file for SQLite, a URL for PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from rota.errors import ConfigError
from rota.store.port import Store
from rota.store.sqlite.store import SqliteStore

POSTGRES = ("postgresql://", "postgres://")


def is_url(address: str) -> bool:
    return address.startswith(POSTGRES)


def open_store(address: str | Path) -> Store:
    """Nothing is connected or made yet. PostgreSQL's driver is loaded only here, and only when it is asked for."""
    if isinstance(address, Path) or not is_url(address):
        return SqliteStore(Path(address))
    try:
        from rota.store.postgres.store import PostgresStore
    except ImportError as error:
        raise ConfigError(
            "PostgreSQL needs the driver that comes with the extra: pip install 'rota[postgres]'"
        ) from error
    return PostgresStore(address)
