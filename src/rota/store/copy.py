"""One store's content into another, of either kind: a user outgrows SQLite with the queue intact.

All tables there are, in one transaction of the target, which must be new. Ids and numbers stay what they
were, and so does what comes next: numbers that were given once are not given again. Both sides are opened as
a scheduler opens them, so neither can have one at work meanwhile, and both have this version's schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing

from rota.errors import Conflict, StoreError
from rota.store.database import Bulk
from rota.store.port import Store
from rota.store.session import Reader, Session

Progress = Callable[[str, int, int], None]
"""Told the table, how many of its rows are copied, and how many there are."""

_META = "meta"
_SEEDED = ("sequence",)
"""Tables that have rows in a new store already; the source's take their place."""
_OWN = ("schema_version", "turn", "home", "home_place")
"""What a store says of itself alone."""


def migrate(store: Store) -> int:
    """Bring a store to this version's schema; which one that is."""
    with closing(store.session()) as session:
        return int(session.meta("schema_version") or 0)


def copy(source: Store, target: Store, progress: Progress = lambda _table, _done, _all: None) -> Mapping[str, int]:
    """How many rows of each table were copied."""
    with closing(source.session()):
        return copy_snapshot(source, target, progress)


def copy_snapshot(source: Store, target: Store, progress: Progress) -> Mapping[str, int]:
    """The same of a source that a scheduler may be at work on: what is copied is of one moment."""
    with closing(source.reader()) as reader, closing(target.session()) as session:
        with reader.reading():
            session.begin()
            try:
                copied = _copy_tables(reader.bulk(), session.bulk(), progress)
                _copy_meta(reader, session)
                session.commit()
            except BaseException:
                session.rollback()
                raise
        return copied


def _copy_tables(source: Bulk, target: Bulk, progress: Progress) -> Mapping[str, int]:
    tables = {table: columns for table, columns in target.tables().items() if table != _META}
    _check_same(source, target)
    _check_empty(target, tables)
    copied = {}
    for table, columns in tables.items():
        total, done = source.count(table), 0
        if table in _SEEDED:
            target.clear(table)
        progress(table, 0, total)
        for page in source.scan(table, columns):
            target.fill(table, columns, page)
            done += len(page)
            progress(table, done, total)
        if not done == total == target.count(table):
            raise StoreError(f"of {total} rows of {table}, {target.count(table)} arrived; nothing was copied")
        copied[table] = done
    return copied


def _check_same(source: Bulk, target: Bulk) -> None:
    here, there = ({table: set(columns) for table, columns in side.tables().items()} for side in (source, target))
    if here != there:
        different = sorted(table for table in {*here, *there} if here.get(table) != there.get(table))
        raise StoreError(f"the two stores do not have the same tables: {', '.join(different)}")


def _check_empty(target: Bulk, tables: Mapping[str, object]) -> None:
    for table in tables:
        if table not in _SEEDED and target.count(table):
            raise Conflict(f"the store to copy into is not empty: it has rows in {table}; name a new one")


def _copy_meta(source: Reader, target: Session) -> None:
    for page in source.bulk().scan(_META, ("key", "value")):
        for key, value in page:
            if key not in _OWN:
                target.set_meta(key, value)
