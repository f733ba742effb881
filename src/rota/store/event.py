"""Events: gathered during a transaction and written once before its commit; read back in order, with their numbers.

Only one writes, a transaction at a time, so numbers become visible in their order: who has read up to one of them has
missed nothing before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import islice
from typing import Any

import msgspec

from rota.core.event import Entry, Event, Wanted
from rota.errors import InvalidInput
from rota.ids import JobId, RunId, parse_group, parse_slot, show_group, show_slot
from rota.store.database import Database, Row
from rota.store.number import Numbering
from rota.store.readable import readable

_encode = msgspec.json.Encoder().encode
_SPAN = 20_000
"""Numbers gone through in one read, however few of them are wanted: no read takes long."""
_ROWS = 500
"""Read at least, where there are so many: most may turn out not to be wanted."""


class Emitting(Numbering):
    """What a savepoint undoes, it undoes of the events and numbers too."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._events: list[Event] = []
        self.last_seq = 0
        """The number of the last event that this session has written."""

    def emit(self, event: Event) -> None:
        self._events.append(event)

    @property
    def gathered(self) -> Sequence[Event]:
        """What has happened in this transaction so far."""
        return self._events

    def _write_events(self) -> None:
        first = self.take("event", len(self._events))
        self._db.run_many("add_event", [_row(first + n, event) for n, event in enumerate(self._events)])
        self.last_seq = first + len(self._events) - 1

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        kept = len(self._events)
        try:
            with self._db.savepoint():
                yield
        except BaseException:
            del self._events[kept:]
            self._forget_numbers()
            raise


def _row(seq: int, event: Event) -> dict[str, object]:
    return {
        "seq": seq,
        "at": event.at,
        "kind": event.kind,
        "cause": event.cause,
        "actor": event.actor,
        "job": event.job,
        "run": event.run,
        "data": _encode(_data(event)).decode() if event.data or event.slot is not None else "{}",
    }


def _data(event: Event) -> Mapping[str, object]:
    """A slot has no column of its own: most events are of jobs."""
    return event.data if event.slot is None else {**event.data, "slot": show_slot(event.slot)}


class EventRecords:
    _db: Database

    def head(self) -> int:
        """The last number that was given out."""
        return max(int(number) for (number,) in self._db.rows("next_event") if number is not None) - 1

    def entries(self, wanted: Wanted, *, since: int, limit: int) -> tuple[list[Entry], int]:
        """The next that are wanted, and up to where that is all."""
        head, most = self.head(), max(limit, _ROWS)
        if wanted.chains:
            jobs = [job for job, _ in self.members_of(wanted.chains)]
            rows, upto = self._rows_of_jobs(jobs, since, most), head
        else:
            upto = min(head, since + _SPAN)
            rows = self._rows(wanted, since, upto, most)
        found = [entry for entry in map(_entry, rows) if wanted.wants(entry)]
        if len(found) > limit:
            return found[:limit], found[limit - 1].seq
        return found, rows[-1][0] if len(rows) == most else max(since, upto)

    def _rows(self, wanted: Wanted, since: int, upto: int, limit: int) -> list[Row]:
        if wanted.group is not None:
            mark = f'{{"group":"{show_group(wanted.group)}"%'
            return self._db.rows(
                "entries_of_group", seq=since, upto=upto, limit=limit, group=wanted.group, mark=mark
            )  # fmt: skip
        if wanted.kinds:
            return self._db.rows("entries_of_kinds", seq=since, upto=upto, limit=limit, kinds=sorted(wanted.kinds))
        return self._db.rows("entries", seq=since, upto=upto, limit=limit)

    def _rows_of_jobs(self, jobs: Collection[JobId], since: int, limit: int) -> list[Row]:
        found = (self._db.rows("entries_of_job", job=job, seq=since, limit=limit) for job in jobs)
        return list(islice(merge(*found, key=lambda row: int(row[0])), limit))

    def members_of(self, chains: Collection[JobId]) -> list[tuple[JobId, JobId]]:
        """The jobs of these chains, each with its chain."""
        rows = self._db.rows("members_of_chains", chains=sorted(chains)) if chains else ()
        return [(JobId(job), JobId(chain)) for job, chain in rows]


def event_of(row: Row) -> Event:
    return Event(
        at=row[1],
        kind=row[2],
        cause=row[3],
        actor=row[4],
        job=None if row[5] is None else JobId(row[5]),
        run=None if row[6] is None else RunId(row[6]),
        data=readable(row[7], dict[str, Any], {}),
    )


def _entry(row: Row) -> Entry:
    event = event_of(row)
    group, slot = row[9], None
    with suppress(InvalidInput):
        if "group" in event.data and event.job is None:
            group = parse_group(str(event.data["group"]))
        if "slot" in event.data:
            slot = parse_slot(str(event.data["slot"]))
    if group is not None or slot is not None:
        event = msgspec.structs.replace(event, group=group, slot=slot)
    return Entry(
        seq=row[0],
        event=event,
        chain=None if row[8] is None else JobId(row[8]),
        type=row[10] or None,
        flow=row[11] or None,
    )
