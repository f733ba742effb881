"""What the engine counts as it goes (docs/metrics.md): after the commit, from what the turn knows anyway.

    turn ── notes, events ──▶ COMMIT ──▶ Meter.book            (the engine's thread, and no other)

No statement is run for it. What is undone leaves no trace here either, for notes and events are taken back with it.
Figures that are states, as how many jobs wait, are not counted but asked for (`view/metrics.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.core.event import Event
from rota.core.schedule import FireState
from rota.core.status import TERMINAL, Status
from rota.metric import Counter, Histogram, Metric

MOST_TYPES = 30
"""Types that have figures of their own; what comes after them is counted together."""
OTHER = "other"

_WAITS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400)
_RUNS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 14_400, 86_400)
_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
_TURNS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_REQUESTS = (0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)
_LATENESS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 3600, 86_400)


class Claimed(NamedTuple):
    """A job was chosen to start."""

    type: str | None
    seconds: float
    """Since it came into the queue."""


class Begun(NamedTuple):
    """Its child exists."""

    since_ready: float | None
    since_claimed: float


class Ended(NamedTuple):
    """A run has."""

    type: str | None
    status: Status
    seconds: float


class Tried(NamedTuple):
    """A message was sent."""

    is_success: bool
    is_last: bool


Note = Claimed | Begun | Ended | Tried


class Meter:
    def __init__(self) -> None:
        self._types: set[str] = {""}
        self._submitted = Counter("rota_jobs_submitted", "Jobs submitted, without those that a retry made.")
        self._ended = Counter(
            "rota_jobs_ended", "Jobs that ended, by status; a rewound job can end again.", ("status",),
            sorted((status.value,) for status in TERMINAL),
        )  # fmt: skip
        self._runs = Counter("rota_runs", "Runs that ended, by status and type of their job.", ("status", "type"))
        self._retries = Counter(
            "rota_retries", "Jobs that a retry made: by the policy of the chain, or by hand.", ("by",),
            [("policy",), ("hand",)],
        )  # fmt: skip
        self._dispatches = Counter("rota_dispatches", "Jobs that were chosen to start.")
        self._failures = Counter("rota_dispatch_failures", "Starts that came to nothing.")
        self._opened = Counter("rota_breakers_opened", "Breakers that opened.")
        self._waits = Histogram(
            "rota_job_wait_seconds", "From a job's coming into the queue to its dispatch, by type.", _WAITS, ("type",)
        )
        self._latency = Histogram(
            "rota_dispatch_latency_seconds",
            "From when dependencies, delay and locks had let a job pass to the existence of its process; pauses count.",
            _LATENCIES,
        )  # fmt: skip
        self._starts = Histogram(
            "rota_start_duration_seconds", "From a job's dispatch to the existence of its process.", _LATENCIES
        )
        self._durations = Histogram("rota_run_duration_seconds", "From dispatch to end, by type.", _RUNS, ("type",))
        self._deliveries = Counter(
            "rota_webhook_deliveries", "Messages that are done with.", ("outcome",), [("delivered",), ("failed",)]
        )
        self._tries = Counter(
            "rota_webhook_tries", "Times that a message was sent.", ("outcome",), [("success",), ("failure",)]
        )
        self._fires = Counter(
            "rota_schedule_fires", "Times of schedules, by what became of them; a trigger counts as fired.", ("state",),
            [(state.value,) for state in FireState],
        )  # fmt: skip
        self._lateness = Histogram(
            "rota_schedule_lateness_seconds", "From the time of a schedule to its fire; missed ones are left out.",
            _LATENESS,
        )  # fmt: skip
        self._turns = Histogram(
            "rota_turn_duration_seconds", "Turns of the engine: one transaction each, with all that led to it.", _TURNS
        )
        self._commits = Histogram("rota_commit_duration_seconds", "The commits at the end of turns.", _TURNS)
        self._requests = Histogram("rota_turn_requests", "Requests that shared a turn, and so a commit.", _REQUESTS)
        self._undone = Counter("rota_turn_failures", "Turns that could not be stored, and were undone.")
        self._events = Counter("rota_events", "Events, by kind.", ("kind",))
        self._http = Counter(
            "rota_http_requests", "Requests answered, by endpoint and class of the status.",
            ("method", "route", "code"),
        )  # fmt: skip

    @property
    def metrics(self) -> list[Metric]:
        return [each for each in vars(self).values() if isinstance(each, Metric)]

    def book(
        self, notes: Sequence[Note], events: Sequence[Event], *, requests: int, seconds: float, commit_seconds: float
    ) -> None:
        """A turn is committed."""
        self._turns.observe(seconds)
        self._commits.observe(commit_seconds)
        self._requests.observe(requests)
        for note in notes:
            self._note(note)
        for event in events:
            self._events.add(event.kind)
            counted = _COUNTED.get(event.kind)
            if counted is not None:
                counted(self, event)

    def undo(self) -> None:
        """A turn is not."""
        self._undone.add()

    def answered(self, method: str, route: str, status: int) -> None:
        """On the event loop, and nowhere else."""
        self._http.add(method, route, f"{status // 100}xx")

    def _note(self, note: Note) -> None:
        match note:
            case Claimed():
                self._dispatches.add()
                self._waits.observe(note.seconds, self._type(note.type))
            case Begun():
                self._starts.observe(note.since_claimed)
                if note.since_ready is not None:
                    self._latency.observe(note.since_ready)
            case Ended():
                self._runs.add(note.status.value, self._type(note.type))
                self._durations.observe(note.seconds, self._type(note.type))
            case Tried():
                self._tries.add("success" if note.is_success else "failure")
                if note.is_last:
                    self._deliveries.add("delivered" if note.is_success else "failed")

    def _type(self, name: str | None) -> str:
        """None has the empty label, which is none."""
        name = name or ""
        if name not in self._types:
            if len(self._types) > MOST_TYPES:
                return OTHER
            self._types.add(name)
        return name

    def _book_submit(self, event: Event) -> None:
        if event.cause == "submit":
            self._submitted.add()

    def _book_retry(self, event: Event) -> None:
        self._retries.add("policy" if event.actor is None else "hand")

    def _book_return(self, event: Event) -> None:
        if "error" in event.data:
            self._failures.add()

    def _book_end(self, event: Event) -> None:
        self._ended.add(event.kind.removeprefix("job.").upper())
        if event.run is None and "error" in event.data:
            self._failures.add()

    def _book_opened(self, _event: Event) -> None:
        self._opened.add()

    def _book_given_up(self, event: Event) -> None:
        self._deliveries.add("failed", amount=event.data.get("failed", 0))

    def _book_fire(self, event: Event) -> None:
        state = event.kind.removeprefix("schedule.")
        self._fires.add(state, amount=event.data.get("count", 1))
        if state != FireState.MISSED and "trigger" not in event.data:
            self._lateness.observe(event.data.get("late", 0.0))


_COUNTED = {
    "job.submitted": Meter._book_submit,
    "job.retried": Meter._book_retry,
    "job.queued": Meter._book_return,
    "breaker.opened": Meter._book_opened,
    "webhook.disabled": Meter._book_given_up,
    "webhook.removed": Meter._book_given_up,
    "webhook.given_up": Meter._book_given_up,
    **{f"job.{status.lower()}": Meter._book_end for status in TERMINAL},
    **{f"schedule.{state.value}": Meter._book_fire for state in FireState},
}
