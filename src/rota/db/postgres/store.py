"""Factory of sessions and readers on a PostgreSQL server."""

from __future__ import annotations

from rota.db.postgres.address import parse_address
from rota.db.postgres.database import PostgresDatabase
from rota.db.postgres.writer import PostgresWriterDatabase
from rota.db.session import Reader, Session


class PostgresStore:
    def __init__(self, url: str, *, lock_timeout: float = 2.0, reconnect_timeout: float = 600.0) -> None:
        """`lock_timeout` is how many seconds a scheduler waits for its predecessor to release the lock.
        `reconnect_timeout` is how many seconds it waits for the server to come back and report the outcome of a
        commit."""
        self._address = parse_address(url)
        self._lock_timeout = lock_timeout
        self._reconnect_timeout = reconnect_timeout

    @property
    def name(self) -> str:
        return self._address.redacted_url

    def session(self) -> Session:
        """Open the writing side and migrate the schema. Refuse while another scheduler uses the store."""
        database = PostgresWriterDatabase(
            self._address, lock_timeout=self._lock_timeout, reconnect_timeout=self._reconnect_timeout
        )
        try:
            database.migrate()
        except BaseException:
            database.close()
            raise
        return Session(database)

    def reader(self) -> Reader:
        return Reader(PostgresDatabase(self._address))
