"""The run: what happened when a job executed, and what its end means."""

from __future__ import annotations

from datetime import datetime, timedelta
from signal import Signals
from typing import Any

import msgspec

from rota.core.status import Status
from rota.duration import show_duration
from rota.errors import Conflict
from rota.ids import JobId, RunId

TIMED_OUT = 124
CANCELLED = 143
CRASH_RECOVERY = "Scheduler crash recovery"
UNKNOWN_EXIT = "exit status unknown"
STOPPED_BY_SHUTDOWN = "stopped by shutdown"
"""As the reason of a stop: unlike a cancel it is a failure, so that the job has its retries."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """An audit row: only `finished_at`, `status`, `exit_code`, `error` and `artifacts` may change (INV-002)."""

    id: RunId
    job: JobId
    worker: str
    status: Status | None
    started_at: datetime
    finished_at: datetime | None
    exit_code: int | None
    error: str | None
    artifacts: tuple[str, ...] = ()
    """What it has put."""


MUTABLE = frozenset({"finished_at", "status", "exit_code", "error", "artifacts"})


def amend(**fields: Any) -> dict[str, Any]:
    """The one door through which a run that exists is changed: these fields, if all of them may be (INV-002)."""
    if fields.keys() <= MUTABLE:
        return fields
    refused = fields.keys() - MUTABLE
    named = [name for name in Run.__struct_fields__ if name in refused]
    raise Conflict(f"Cannot modify immutable fields: {', '.join(named + sorted(refused.difference(named)))}")


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended, as the executor saw it."""

    code: int | None = None
    signal: int | None = None
    ended_by: str | None = None
    skipped: str | None = None
    watched: bool = True
    tail: str = ""


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """What an end makes of the run and its job."""

    status: Status
    exit_code: int
    reason: str | None
    error: str | None = None


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler had asked of the run before it ended."""

    stop_requested: str | None = None
    timeout: timedelta | None = None
    idle_timeout: timedelta | None = None


def _failed(exit_code: int, reason: str, tail: str) -> Conclusion:
    """The reason first, then the end of stderr: an error is never an empty string."""
    error = f"{reason}\n{tail}" if tail else reason
    return Conclusion(status=Status.FAILED, exit_code=exit_code, reason=reason, error=error)


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def _timed_out(end: End, intent: Intent) -> Conclusion:
    if end.ended_by == "idle_timeout" and intent.idle_timeout is not None:
        return _failed(TIMED_OUT, f"timed out after {show_duration(intent.idle_timeout)} without output", end.tail)
    limit = show_duration(intent.timeout) if intent.timeout is not None else "its limit"
    return _failed(TIMED_OUT, f"timed out after {limit}", end.tail)


def conclude(end: End, intent: Intent) -> Conclusion:
    """One end, one meaning. A result that came before a stop took effect stands."""
    if end.skipped is not None:
        return Conclusion(status=Status.SKIPPED, exit_code=0, reason=end.skipped or "skip_if exited 0")
    if end.ended_by == "stop" and intent.stop_requested == STOPPED_BY_SHUTDOWN:
        return _failed(CANCELLED, STOPPED_BY_SHUTDOWN, end.tail)
    if end.ended_by == "stop" and intent.stop_requested is not None:
        return Conclusion(
            status=Status.CANCELLED, exit_code=CANCELLED, reason=intent.stop_requested, error=intent.stop_requested
        )
    if end.ended_by in ("timeout", "idle_timeout"):
        return _timed_out(end, intent)
    if end.code == 0:
        return Conclusion(status=Status.COMPLETED, exit_code=0, reason=None)
    if end.code is not None:
        return _failed(end.code, f"exit code {end.code}", end.tail)
    if end.signal is not None:
        return _failed(128 + end.signal, f"killed by {_signal_name(end.signal)}", end.tail)
    return _failed(1, UNKNOWN_EXIT if end.watched else CRASH_RECOVERY, end.tail)


def was_interrupted(end: Conclusion) -> bool:
    """The command did not end by itself, nor for anything that it did: its exit code is made up."""
    return end.reason in (CRASH_RECOVERY, UNKNOWN_EXIT, STOPPED_BY_SHUTDOWN)
