"""Brings a SQLite database to this version's schema, or refuses one from a newer version."""

from __future__ import annotations

from pathlib import Path

from rota.errors import StoreError
from rota.store.sqlite.database import SqliteDatabase, translate
from rota.store.statement import migrations

_META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT"


def check(path: Path) -> int:
    """The version of the schema in this file, which is only read; refused when it is newer than we know."""
    database = SqliteDatabase(path, readonly=True)
    try:
        rows = database.rows("get_meta", key="schema_version")
        return _known(int(rows[0][0]) if rows else 0, len(migrations(translate)), path)
    finally:
        database.close()


def _known(have: int, known: int, path: Path) -> int:
    if have > known:
        raise StoreError(
            f"{path} was written by a newer version of Rota (schema {have}, this one knows {known}); "
            "upgrade Rota, or use another home with ROTA_HOME"
        )
    return have


def migrate(database: SqliteDatabase, path: Path) -> None:
    """One transaction: a crash in the middle leaves the old schema."""
    scripts = migrations(translate)
    database.begin()
    try:
        database.script(_META)
        rows = database.rows("get_meta", key="schema_version")
        have = _known(int(rows[0][0]) if rows else 0, len(scripts), path)
        for script in scripts[have:]:
            database.script(script)
        database.run("set_meta", key="schema_version", value=str(len(scripts)))
        database.commit()
    except BaseException:
        database.rollback()
        raise
