"""Port of a store, and its opening by address: a file for SQLite, a URL for PostgreSQL.

A store opens sessions, which read and write, and readers. The event loop reads in a few threads with a reader each
(`ReaderPool`).

A store on a server has an owner, because any home can name a server, while a database file lies in its home. Only the
supervisor of the home that started a run knows whether it still runs. A scheduler of another home would take the run
for lost and start it a second time. It therefore gets the store only after all runs have ended, or after the user
adopts the store because the old home is gone.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Protocol, TypeVar

from rota.db.ids import IdWatermarks
from rota.db.session import Reader, Session
from rota.db.sqlite.database import refuse_orphaned_log
from rota.db.sqlite.store import SqliteStore
from rota.db.statements import find_schema_mismatch, load_migrations
from rota.errors import ConfigError, Conflict, HomeError, StorageFull, StoreError
from rota.home import Home

T = TypeVar("T")

POSTGRES_SCHEMES = ("postgresql://", "postgres://")
OWNER_KEY = "home"
"""Key in `meta` of the owner's identity. `LOCATION_KEY` has the same for messages to users."""
LOCATION_KEY = "home_location"
_READER_THREAD_COUNT = 2


class Store(Protocol):
    """Port of a store, on either database."""

    @property
    def name(self) -> str:
        """Address of the store, without secrets."""
        ...

    def session(self) -> Session:
        """Open the writing side and migrate the schema. A store has one at a time."""
        ...

    def reader(self) -> Reader:
        """Open another reading side."""
        ...


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
        from rota.db.postgres.store import PostgresStore
    except ImportError as error:
        raise ConfigError("the PostgreSQL driver is not installed; run `pip install 'rota[postgres]'`") from error
    return PostgresStore(address)


def is_postgres_url(address: str) -> bool:
    return address.startswith(POSTGRES_SCHEMES)


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


class ReaderPool:
    """Threads that read the store, each with a reader of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(_READER_THREAD_COUNT, thread_name_prefix="rota-reader")
        self._local = threading.local()
        self._readers: list[Reader] = []

    async def read(self, query: Callable[[Reader], T]) -> T:
        """Run a query in a reader thread, in one read transaction."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, query)

    def _read(self, query: Callable[[Reader], T]) -> T:
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._store.reader()
            self._readers.append(reader)
        with reader.read_transaction():
            return query(reader)

    def close(self) -> None:
        self._threads.shutdown()
        for reader in self._readers:
            reader.close()


def claim_ownership(session: Session, home: Home, store_name: str) -> None:
    """Make this home the owner of the store, in the open transaction. Refuse while another home may have running
    jobs."""
    owner = session.meta.get(OWNER_KEY)
    if owner not in (None, _home_identity(home)) and _is_in_use(session):
        message = f"{store_name} is the store of the home {session.meta.get(LOCATION_KEY)}, which may have running jobs"
        raise Conflict(f"{message}; start the scheduler there or, if that home is gone, run `rota store adopt` here")
    adopt_store(session, home)


def adopt_store(session: Session, home: Home) -> None:
    identity = {OWNER_KEY: _home_identity(home), LOCATION_KEY: f"{home.directory} on {socket.gethostname()}"}
    for key, value in identity.items():
        if session.meta.get(key) != value:
            session.meta.set(key, value)


def _is_in_use(session: Session) -> bool:
    return bool(session.runs.list_open() or session.prefetch.offered_runs() or session.reservations.running())


def _home_identity(home: Home) -> str:
    """Return the random identity of a home. A path or a host name can occur on other machines too. The identity is
    synced to disk before a store contains it."""
    try:
        home.identity.touch(mode=0o600)
        with home.identity.open("r+") as file:
            if not (identity := file.read().strip()):
                identity = secrets.token_hex(16)
                file.write(f"{identity}\n")
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"the disk is full: there is no room left for {home.identity}") from None
        raise HomeError(f"{home.identity} cannot be created: {error.strerror}") from None
    return identity
