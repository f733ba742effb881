"""Factory of sessions and readers on a SQLite file, and the migration of its schema.

A session migrates an older schema to the current one. A schema of a newer version, or one that does not match the
migrations of this version, is refused.
"""

from __future__ import annotations

from pathlib import Path

from rota.db.session import Reader, Session
from rota.db.sqlite.checkpoint import preallocate_wal
from rota.db.sqlite.database import SqliteDatabase, translate_statement
from rota.db.statements import find_schema_mismatch, load_migrations, schema_digest
from rota.errors import StoreError

_CREATE_META_SQL = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT"


class SqliteStore:
    """Store in one SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return str(self.path)

    def session(self) -> Session:
        """Open the writing side and migrate the schema."""
        database = SqliteDatabase(self.path)
        try:
            _migrate_schema(database, self.path)
            database.begin()  # blocks other writers of the log
            preallocate_wal(self.path.with_name(f"{self.path.name}-wal"))
            database.rollback()
        except BaseException:
            database.close()
            raise
        return Session(database)

    def reader(self) -> Reader:
        return Reader(SqliteDatabase(self.path, readonly=True))


def check_file_schema(path: Path) -> int:
    """Return the schema version of a file, which is only read. Refuse an incompatible version."""
    database = SqliteDatabase(path, readonly=True)
    try:
        return _read_schema_version(database, path)
    finally:
        database.close()


def _migrate_schema(database: SqliteDatabase, path: Path) -> None:
    """Migrate in one transaction, so that a crash leaves the old schema."""
    scripts = load_migrations(translate_statement)
    database.begin()
    try:
        database.run_script(_CREATE_META_SQL)
        version = _read_schema_version(database, path)
        for script in scripts[version:]:
            database.run_script(script)
        database.run("set_meta", key="schema_version", value=str(len(scripts)))
        database.run("set_meta", key="schema_digest", value=schema_digest(load_migrations(str)))
        database.commit()
    except BaseException:
        database.rollback()
        raise


def _read_schema_version(database: SqliteDatabase, path: Path) -> int:
    stored = {key: database.rows("get_meta", key=key) for key in ("schema_version", "schema_digest")}
    version, digest = (str(rows[0][0]) if rows else None for rows in stored.values())
    current = int(version or 0)
    if (mismatch := find_schema_mismatch(current, digest, load_migrations(str))) is not None:
        raise StoreError(f"{path} {mismatch}, or use another home with ROTA_HOME")
    return current
