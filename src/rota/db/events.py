"""Storage of events. A transaction collects them and writes them once, before its commit; readers get them in order,
with their sequence numbers.

Only one session writes, one transaction at a time, so numbers become visible in ascending order. A reader that has read
up to one number has missed no event before it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

import msgspec

from rota.db.database import SCAN_ROWS, Database, Row
from rota.db.decoding import decode_or_default, to_micros
from rota.db.ids import Ids
from rota.errors import InvalidInput
from rota.ids import JobId, RunId, format_group_id, format_reservation_id, parse_group_id, parse_reservation_id
from rota.kernel.events import Event, EventEntry, EventFilter

FIRST_EVENT_KEY = "first_event"
"""Key in `meta` of the lowest event number from which all events still exist."""
_encode = msgspec.json.Encoder().encode
_MAX_SEQ_SPAN = 20_000
"""Maximum range of numbers that one read scans, however few of them match, so that no read takes long."""
_MIN_ROWS = 500
"""Minimum number of rows that one read fetches, because most may not match the filter."""


class EventRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def head_seq(self) -> int:
        """Return the highest event number in use."""
        return max(int(number) for (number,) in self._db.rows("next_event") if number is not None) - 1

    def entries(self, event_filter: EventFilter, *, since: int, limit: int) -> tuple[list[EventEntry], int]:
        """Return the next events that match the filter, and the number up to which this is complete."""
        head, max_rows = self.head_seq(), max(limit, _MIN_ROWS)
        if event_filter.chains:
            jobs = [job for job, _ in self.jobs_of_chains(event_filter.chains)]
            rows, until = self._rows_of_jobs(jobs, since, max_rows), head
        else:
            until = min(head, since + _MAX_SEQ_SPAN)
            rows = self._rows(event_filter, since, until, max_rows)
        entries = [entry for entry in map(_entry_from_row, rows) if event_filter.matches(entry)]
        if len(entries) > limit:
            return entries[:limit], entries[limit - 1].seq
        return entries, rows[-1][0] if len(rows) == max_rows else max(since, until)

    def _rows(self, event_filter: EventFilter, since: int, max_seq: int, limit: int) -> list[Row]:
        if event_filter.group is not None:
            prefix = f'{{"group":"{format_group_id(event_filter.group)}"%'
            return self._db.rows(
                "entries_of_group",
                seq=since,
                max_seq=max_seq,
                limit=limit,
                group=event_filter.group,
                group_prefix=prefix,
            )
        if event_filter.kinds:
            return self._db.rows(
                "entries_of_kinds", seq=since, max_seq=max_seq, limit=limit, kinds=sorted(event_filter.kinds)
            )
        return self._db.rows("entries", seq=since, max_seq=max_seq, limit=limit)

    def _rows_of_jobs(self, jobs: Collection[JobId], since: int, limit: int) -> list[Row]:
        rows = (self._db.rows("entries_of_job", job=job, seq=since, limit=limit) for job in jobs)
        return list(islice(merge(*rows, key=lambda row: int(row[0])), limit))

    def jobs_of_chains(self, chains: Collection[JobId]) -> list[tuple[JobId, JobId]]:
        """Return the jobs of these chains, each with its chain."""
        rows = self._db.rows("jobs_of_chains", chains=sorted(chains)) if chains else ()
        return [(JobId(job), JobId(chain)) for job, chain in rows]

    def since(self, seq: int, limit: int) -> list[tuple[int, Event]]:
        """Return the events after `seq`, each with its number, in order."""
        return [(row[0], event_from_row(row)) for row in self._db.rows("events_since", seq=seq, limit=limit)]

    def of_jobs_since(self, seq: int, limit: int) -> list[tuple[int, str, JobId]]:
        """Return the number, the kind and the job of each event after `seq`, without events that have no job."""
        return [(row[0], row[1], JobId(row[2])) for row in self._db.rows("job_events_since", seq=seq, limit=limit)]

    def of_job(self, job: JobId) -> list[tuple[int, Event]]:
        return [(row[0], event_from_row(row)) for row in self._db.rows("events_of_job", job=job)]

    def old_jobless(self, until: datetime) -> list[int]:
        old: list[int] = []
        last_seq = 0
        while page := self._db.rows("jobless_events", seq=last_seq, limit=SCAN_ROWS):
            old += [seq for seq, at in page if at < to_micros(until)]
            last_seq = page[-1][0]
        return old

    def last_stored_seq(self) -> int:
        ((last,),) = self._db.rows("last_event")
        return int(last or 0)

    def first_seq(self) -> int:
        """Return the lowest number from which all events exist. A reader that has not reached it must start again."""
        rows = self._db.rows("get_meta", key=FIRST_EVENT_KEY)
        return int(rows[0][0]) if rows else 1


def _event_row(seq: int, event: Event) -> dict[str, object]:
    return {
        "seq": seq,
        "at": event.at,
        "kind": event.kind,
        "cause": event.cause,
        "actor": event.actor,
        "job": event.job,
        "run": event.run,
        "data": _encode(_event_data(event)).decode() if event.data or event.reservation is not None else "{}",
    }


def _event_data(event: Event) -> Mapping[str, object]:
    """Return the data to store. Reservations have no column, because most events are about jobs."""
    return (
        event.data
        if event.reservation is None
        else {**event.data, "reservation": format_reservation_id(event.reservation)}
    )


class Events(EventRecords):
    def __init__(self, database: Database, ids: Ids) -> None:
        super().__init__(database)
        self._ids = ids
        self._pending: list[Event] = []
        self.last_seq = 0
        """Number of the last event that this session wrote."""

    @property
    def pending(self) -> Sequence[Event]:
        """Events of the open transaction so far."""
        return self._pending

    def emit(self, event: Event) -> None:
        self._pending.append(event)

    def discard(self, kept: int = 0) -> None:
        """Forget the pending events after the first `kept`."""
        del self._pending[kept:]

    def write(self) -> None:
        """Store the pending events."""
        if not self._pending:
            return
        first = self._ids.allocate("event", len(self._pending))
        self._db.run_many("add_event", [_event_row(first + n, event) for n, event in enumerate(self._pending)])
        self.last_seq = first + len(self._pending) - 1

    def take(self) -> list[Event]:
        """Return the pending events and forget them."""
        events, self._pending = self._pending, []
        return events

    def record_removed(self, seqs: Sequence[int]) -> None:
        self._ids.retire_all("event", seqs)
        if seqs and max(seqs) >= self.first_seq():
            self._db.run("set_meta", key=FIRST_EVENT_KEY, value=str(max(seqs) + 1))

    def remove_jobless(self, seqs: Sequence[int]) -> int:
        self.record_removed(seqs)
        return self._db.run("remove_jobless_events", seqs=list(seqs)) if seqs else 0


def event_from_row(row: Row) -> Event:
    return Event(
        at=row[1],
        kind=row[2],
        cause=row[3],
        actor=row[4],
        job=None if row[5] is None else JobId(row[5]),
        run=None if row[6] is None else RunId(row[6]),
        data=decode_or_default(row[7], dict[str, Any], {}),
    )


def _entry_from_row(row: Row) -> EventEntry:
    event = event_from_row(row)
    group, reservation = row[9], None
    with suppress(InvalidInput):
        if "group" in event.data and event.job is None:
            group = parse_group_id(str(event.data["group"]))
        if "reservation" in event.data:
            reservation = parse_reservation_id(str(event.data["reservation"]))
    if group is not None or reservation is not None:
        event = msgspec.structs.replace(event, group=group, reservation=reservation)
    return EventEntry(
        seq=row[0],
        event=event,
        chain=None if row[8] is None else JobId(row[8]),
        type=row[10] or None,
        flow=row[11] or None,
    )
