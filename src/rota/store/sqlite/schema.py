"""Migration of a SQLite database to this version. Schemas of other versions are refused."""

from __future__ import annotations

from pathlib import Path

from rota.errors import StoreError
from rota.store.sqlite.database import SqliteDatabase, translate
from rota.store.statement import find_schema_mismatch, load_migrations, schema_digest

_META = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT"


def check_file_schema(path: Path) -> int:
    """Return the schema version of a file, which is only read. Refuse an incompatible version."""
    database = SqliteDatabase(path, readonly=True)
    try:
        return _read_version(database, path)
    finally:
        database.close()


def _read_version(database: SqliteDatabase, path: Path) -> int:
    stored = {key: database.rows("get_meta", key=key) for key in ("schema_version", "schema_digest")}
    version, digest = (str(rows[0][0]) if rows else None for rows in stored.values())
    current = int(version or 0)
    if (mismatch := find_schema_mismatch(current, digest, load_migrations(str))) is not None:
        raise StoreError(f"{path} {mismatch}, or use another home with ROTA_HOME")
    return current


def migrate(database: SqliteDatabase, path: Path) -> None:
    """Migrate in one transaction, so that a crash leaves the old schema."""
    scripts = load_migrations(translate)
    database.begin()
    try:
        database.run_script(_META)
        version = _read_version(database, path)
        for script in scripts[version:]:
            database.run_script(script)
        database.run("set_meta", key="schema_version", value=str(len(scripts)))
        database.run("set_meta", key="schema_digest", value=schema_digest(load_migrations(str)))
        database.commit()
    except BaseException:
        database.rollback()
        raise
