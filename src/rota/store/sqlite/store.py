"""Factory of sessions and readers on a SQLite file."""

from __future__ import annotations

from pathlib import Path

from rota.store.session import Reader, Session
from rota.store.sqlite.checkpoint import preallocate_wal
from rota.store.sqlite.database import SqliteDatabase
from rota.store.sqlite.schema import migrate


class SqliteStore:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return str(self.path)

    def session(self) -> Session:
        """Open the writing side and migrate the schema."""
        database = SqliteDatabase(self.path)
        try:
            migrate(database, self.path)
            database.begin()  # blocks other writers of the log
            preallocate_wal(self.path.with_name(f"{self.path.name}-wal"))
            database.rollback()
        except BaseException:
            database.close()
            raise
        return Session(database)

    def reader(self) -> Reader:
        return Reader(SqliteDatabase(self.path, readonly=True))
