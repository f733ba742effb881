"""Events, gathered during a transaction and written once before its commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from rota.core.event import Event
from rota.ids import show_slot
from rota.store.database import Database
from rota.store.number import Numbering

_encode = msgspec.json.Encoder().encode


class Emitting(Numbering):
    """What a savepoint undoes, it undoes of the events and numbers too."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._events: list[Event] = []

    def emit(self, event: Event) -> None:
        self._events.append(event)

    @property
    def gathered(self) -> Sequence[Event]:
        """What has happened in this transaction so far."""
        return self._events

    def _write_events(self) -> None:
        first = self.take("event", len(self._events))
        self._db.run_many("add_event", [_row(first + n, event) for n, event in enumerate(self._events)])

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
