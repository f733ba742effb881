"""The run: one execution of a job, and the meaning of its end."""

from __future__ import annotations

from datetime import datetime, timedelta
from signal import Signals
from typing import Any

import msgspec

from rota.duration import format_duration
from rota.errors import Conflict
from rota.ids import JobId, RunId
from rota.kernel.status import Status

EXIT_TIMED_OUT = 124
EXIT_CANCELLED = 143
CRASH_RECOVERY = "Scheduler crash recovery"
UNKNOWN_EXIT = "exit status unknown"
UNVERIFIED = "its supervisor was replaced, so processes that it left behind may still run"
STOPPED_BY_SHUTDOWN = "stopped by shutdown"
"""Stop reason of a shutdown. Unlike a cancel, it counts as a failure, so that the job is retried."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """An audit record: only `finished_at`, `status`, `exit_code`, `error` and `artifacts` may change (INV-002)."""

    id: RunId
    job: JobId
    worker: str
    status: Status | None
    started_at: datetime
    finished_at: datetime | None
    exit_code: int | None
    error: str | None
    artifacts: tuple[str, ...] = ()
    """Artifacts that the run put."""


MUTABLE_FIELDS = frozenset({"finished_at", "status", "exit_code", "error", "artifacts"})


def amend(**fields: Any) -> dict[str, Any]:
    """Check that all of these fields of a stored run may change (INV-002). Every change of a run goes through this
    function."""
    if fields.keys() <= MUTABLE_FIELDS:
        return fields
    immutable = fields.keys() - MUTABLE_FIELDS
    known = [name for name in Run.__struct_fields__ if name in immutable]
    raise Conflict(f"Cannot modify immutable fields: {', '.join(known + sorted(immutable.difference(known)))}")


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """End of a child as the executor observed it."""

    code: int | None = None
    signal: int | None = None
    ended_by: str | None = None
    skip_reason: str | None = None
    was_watched: bool = True
    is_verified: bool = True
    """Whether all processes of the run's tree are known to be gone."""
    stderr_tail: str = ""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """Effect of an end on the run and its job."""

    status: Status
    exit_code: int | None
    """Exit code; `None` for a failed run whose exit status is unknown."""
    reason: str | None
    error: str | None = None


class StopIntent(msgspec.Struct, frozen=True, kw_only=True):
    """Pending stop request and time limits of a run."""

    stop_requested: str | None = None
    timeout: timedelta | None = None
    idle_timeout: timedelta | None = None


def _make_failure(exit_code: int | None, reason: str, tail: str) -> RunResult:
    """Put the reason first and the end of stderr after it, so that an error is never empty."""
    error = f"{reason}\n{tail}" if tail else reason
    return RunResult(status=Status.FAILED, exit_code=exit_code, reason=reason, error=error)


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def _make_timeout(end: RunEnd, intent: StopIntent) -> RunResult:
    if end.ended_by == "idle_timeout" and intent.idle_timeout is not None:
        return _make_failure(
            EXIT_TIMED_OUT, f"timed out after {format_duration(intent.idle_timeout)} without output", end.stderr_tail
        )
    limit = format_duration(intent.timeout) if intent.timeout is not None else "its limit"
    return _make_failure(EXIT_TIMED_OUT, f"timed out after {limit}", end.stderr_tail)


def conclude(end: RunEnd, intent: StopIntent) -> RunResult:
    """Return the result of an end. A result from before a stop took effect stands."""
    result = _conclude(end, intent)
    if end.is_verified or result.reason is None:
        return result
    # An interrupted run keeps its exact reason, because other code compares it.
    reason = result.reason if was_interrupted(result) else f"{result.reason}; {UNVERIFIED}"
    error = f"{result.error or result.reason}\n{UNVERIFIED}"
    return msgspec.structs.replace(result, reason=reason, error=error)


def _conclude(end: RunEnd, intent: StopIntent) -> RunResult:
    if end.skip_reason is not None:
        return RunResult(status=Status.SKIPPED, exit_code=0, reason=end.skip_reason or "skip_if exited 0")
    if end.ended_by == "stop" and intent.stop_requested == STOPPED_BY_SHUTDOWN:
        return _make_failure(EXIT_CANCELLED, STOPPED_BY_SHUTDOWN, end.stderr_tail)
    if end.ended_by == "stop" and intent.stop_requested is not None:
        return RunResult(
            status=Status.CANCELLED, exit_code=EXIT_CANCELLED, reason=intent.stop_requested, error=intent.stop_requested
        )
    if end.ended_by in ("timeout", "idle_timeout"):
        return _make_timeout(end, intent)
    if end.code == 0:
        return RunResult(status=Status.COMPLETED, exit_code=0, reason=None)
    if end.code is not None:
        return _make_failure(end.code, f"exit code {end.code}", end.stderr_tail)
    if end.signal is not None:
        return _make_failure(128 + end.signal, f"killed by {_signal_name(end.signal)}", end.stderr_tail)
    return _make_failure(None, UNKNOWN_EXIT if end.was_watched else CRASH_RECOVERY, end.stderr_tail)


def was_interrupted(result: RunResult) -> bool:
    """Return whether the scheduler or the machine interrupted the command, so that its exit code is not the command's
    own."""
    return result.reason in (CRASH_RECOVERY, UNKNOWN_EXIT, STOPPED_BY_SHUTDOWN)
