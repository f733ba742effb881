"""A backup is one SQLite file, whichever database the store is on: the records as they are at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rota.store.copy import Progress, copy_snapshot
from rota.store.port import Store
from rota.store.sqlite.backup import copy_file
from rota.store.sqlite.store import SqliteStore


def back_up_records(source: Store, target: Path, progress: Progress) -> None:
    """Into a new file. A scheduler may be at work on the source; it is not held up."""
    if isinstance(source, SqliteStore):
        copy_file(source.path, target, lambda done, total: progress("pages", done, total))
    else:
        copy_snapshot(source, SqliteStore(target), progress)


class Numbers:
    """What has been given out: after a restore it is not given out again where that can be known."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        """The last id of each noun."""
        self.counters: dict[str, int] = {}
        self.epoch = 0

    def have(self, noun: str, last: int) -> None:
        self.ids[noun] = max(last, self.ids.get(noun, 0))


def numbers_of(store: Store) -> Numbers:
    numbers = Numbers()
    reader = store.reader()
    try:
        with reader.reading():
            for page in reader.bulk().scan("sequence", ("noun", "next")):
                for noun, following in page:
                    numbers.have(noun, following - 1)
            numbers.counters = dict(reader.bulk().counters())
            numbers.epoch = int(reader.meta("epoch") or 0)
    finally:
        reader.close()
    return numbers


def higher(here: Mapping[str, int], there: Mapping[str, int]) -> dict[str, int]:
    return {name: max(here.get(name, 0), there.get(name, 0)) for name in {*here, *there}}
