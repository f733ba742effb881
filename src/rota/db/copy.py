"""Copies of a store: into another store of either kind, and into a backup file.

A copy moves a queue from SQLite to PostgreSQL or back. All tables are copied in one transaction of the target, which
must be new. Ids stay the same and are never reused. Both stores are opened as a scheduler opens them, so no scheduler
can use them meanwhile, and both have the schema of this version.

A backup is one SQLite file with a snapshot of the records, whichever database the store uses. A scheduler may use the
store meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from rota.db.database import BulkTables
from rota.db.session import Reader, Session
from rota.db.sqlite.backup import copy_file, remove_file
from rota.db.sqlite.store import SqliteStore
from rota.db.store import Store
from rota.errors import Conflict, StoreError

CopyProgress = Callable[[str, int, int], None]
"""Callback with the table, the number of its copied rows and their total."""

_META = "meta"
_SEEDED_TABLES = ("sequence",)
"""Tables that have rows in a new store. The rows of the source replace them."""
_STORE_SPECIFIC_KEYS = ("schema_version", "schema_digest", "turn", "home", "home_location")
"""Keys of `meta` that describe one store only and are not copied."""


def migrate_store(store: Store) -> int:
    """Migrate a store to the schema of this version and return the version number."""
    with closing(store.session()) as session:
        return int(session.meta.get("schema_version") or 0)


def copy_store(
    source: Store, target: Store, progress: CopyProgress = lambda _table, _done, _all: None
) -> Mapping[str, int]:
    """Copy a store that no scheduler uses. Return the number of copied rows of each table."""
    with closing(source.session()):
        return copy_snapshot(source, target, progress)


def copy_snapshot(source: Store, target: Store, progress: CopyProgress) -> Mapping[str, int]:
    """Copy a snapshot of a store that a scheduler may use meanwhile. Return the number of copied rows of each table."""
    new_file = target.path if isinstance(target, SqliteStore) and not target.path.exists() else None
    try:
        return _copy_transaction(source, target, progress)
    except BaseException:
        if new_file is not None:
            remove_file(new_file)
        raise


def _copy_transaction(source: Store, target: Store, progress: CopyProgress) -> Mapping[str, int]:
    with closing(source.reader()) as reader, closing(target.session()) as session:
        with reader.read_transaction():
            session.begin()
            try:
                target_tables = session.bulk_tables()
                with target_tables.without_checks():
                    copied = _copy_tables(reader.bulk_tables(), target_tables, progress)
                _copy_meta(reader, session)
                session.commit()
            except BaseException:
                session.rollback()
                raise
        return copied


def back_up_records(source: Store, target: Path, progress: CopyProgress) -> None:
    """Copy the records into a new file. A scheduler may use the source meanwhile; it is not blocked."""
    if isinstance(source, SqliteStore):
        copy_file(source.path, target, lambda done, total: progress("pages", done, total))
    else:
        copy_snapshot(source, SqliteStore(target), progress)


def _copy_tables(source: BulkTables, target: BulkTables, progress: CopyProgress) -> Mapping[str, int]:
    tables = {table: columns for table, columns in target.tables().items() if table != _META}
    _check_same_tables(source, target)
    _check_empty_tables(target, tables)
    copied = {}
    for table, columns in tables.items():
        total, done = source.count_rows(table), 0
        if table in _SEEDED_TABLES:
            target.delete_rows(table)
        progress(table, 0, total)
        for page in source.scan_rows(table, columns):
            target.insert_rows(table, columns, page)
            done += len(page)
            progress(table, done, total)
        if not done == total == target.count_rows(table):
            raise StoreError(f"{target.count_rows(table)} of {total} rows of {table} were copied; nothing was stored")
        copied[table] = done
    return copied


def _check_same_tables(source: BulkTables, target: BulkTables) -> None:
    source_tables, target_tables = (
        {table: set(columns) for table, columns in store.tables().items()} for store in (source, target)
    )
    if source_tables != target_tables:
        tables = {*source_tables, *target_tables}
        different = sorted(table for table in tables if source_tables.get(table) != target_tables.get(table))
        raise StoreError(f"the tables of the two stores differ: {', '.join(different)}")


def _check_empty_tables(target: BulkTables, tables: Mapping[str, object]) -> None:
    for table in tables:
        if table not in _SEEDED_TABLES and target.count_rows(table):
            raise Conflict(f"the target store is not empty: it has rows in {table}; use a new store")


def _copy_meta(source: Reader, target: Session) -> None:
    for page in source.bulk_tables().scan_rows(_META, ("key", "value")):
        for key, value in page:
            if key not in _STORE_SPECIFIC_KEYS:
                target.meta.set(key, value)
