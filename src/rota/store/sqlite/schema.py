"""Brings a SQLite database to this version's schema, or refuses one from a newer version."""

from __future__ import annotations

from pathlib import Path

from rota.errors import StoreError
from rota.store.sqlite.database import SqliteDatabase, translate
from rota.store.statement import migrations

_META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT"


def migrate(database: SqliteDatabase, path: Path) -> None:
    """One transaction: a crash in the middle leaves the old schema."""
    scripts = migrations(translate)
    database.begin()
    try:
        database.script(_META)
        rows = database.rows("get_meta", key="schema_version")
        have = int(rows[0][0]) if rows else 0
        if have > len(scripts):
            raise StoreError(
                f"{path} was written by a newer version of Rota (schema {have}, this one knows {len(scripts)}); "
                "upgrade Rota, or use another home with ROTA_HOME"
            )
        for script in scripts[have:]:
            database.script(script)
        database.run("set_meta", key="schema_version", value=str(len(scripts)))
        database.commit()
    except BaseException:
        database.rollback()
        raise
