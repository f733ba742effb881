"""Opens the embedded store."""

from __future__ import annotations

from pathlib import Path

from rota.store.session import Reader, Session
from rota.store.sqlite.checkpoint import make_room
from rota.store.sqlite.database import SqliteDatabase
from rota.store.sqlite.schema import migrate


class SqliteStore:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return str(self.path)

    def session(self) -> Session:
        """The writing side, with the schema brought up to date."""
        database = SqliteDatabase(self.path)
        try:
            migrate(database, self.path)
            database.begin()  # nobody else writes to the log meanwhile
            make_room(self.path.with_name(f"{self.path.name}-wal"))
            database.rollback()
        except BaseException:
            database.close()
            raise
        return Session(database)

    def reader(self) -> Reader:
        return Reader(SqliteDatabase(self.path, readonly=True))
