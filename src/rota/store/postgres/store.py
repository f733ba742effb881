"""Opens the store on a server."""

from __future__ import annotations

from rota.store.postgres.address import parse
from rota.store.postgres.database import PostgresDatabase
from rota.store.postgres.writer import WritingDatabase
from rota.store.session import Reader, Session


class PostgresStore:
    def __init__(self, url: str, *, lock_wait: float = 2.0, patience: float = 600.0) -> None:
        """`lock_wait` is how long, in seconds, a scheduler waits for one that is just ending to free its lock;
        `patience` how long it waits for the server to come back and tell the outcome of a commit."""
        self._address = parse(url)
        self._lock_wait = lock_wait
        self._patience = patience

    @property
    def name(self) -> str:
        return self._address.shown

    def session(self) -> Session:
        """The writing side, with the schema brought up to date; refused while another scheduler has it."""
        database = WritingDatabase(self._address, lock_wait=self._lock_wait, patience=self._patience)
        try:
            database.migrate()
        except BaseException:
            database.close()
            raise
        return Session(database)

    def reader(self) -> Reader:
        return Reader(PostgresDatabase(self._address))
