"""What the executor says, booked inside a transaction. What comes too late changes nothing and is logged."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec

from rota.core.after import policies_met_by
from rota.core.ahead import BRIEF
from rota.core.breaker import CIRCUIT_BROKEN, again_after
from rota.core.run import CANCELLED, STOPPED_BY_SHUTDOWN, Conclusion, End, Intent, conclude
from rota.core.status import Status
from rota.engine import breaker, group, slot
from rota.engine.meter import Begun, Ended
from rota.engine.outside import disturb
from rota.engine.retry import delay_after, go_on
from rota.engine.slot import NOT_CONFIRMED, NOT_STARTED
from rota.engine.work import Work
from rota.executor.port import Acknowledge, Exited, FailedToStart, Refused, Started, Stop
from rota.ids import JobId, show_run
from rota.store.claim import OpenRun

log = logging.getLogger("rota.engine")

_UNDONE = frozenset({Status.FAILED, Status.CANCELLED})
"""What a run had put is taken back when it ended so."""


def end_chain(work: Work, chain: JobId, status: Status) -> None:
    """A chain's last job has ended: its edges are decided, whether what it made is there, and what
    becomes of its group."""
    settled = work.session.settle(chain, policies_met_by(status))
    if settled.makes:
        disturb(work, chain)
    if settled.group is not None:
        group.book_end(work, settled.group, chain, status)


def book_start(work: Work, message: Started) -> None:
    run = work.run(message.run)
    if run is None:
        if slot.book_start(work, message.run, message.pid, message.start_time):
            return
        log.warning("%s started, but is not wanted any more", show_run(message.run))
        return
    work.session.confirm(run, message.pid, message.start_time, work.now, "executor")
    if run.status is Status.DISPATCHED:
        since_ready = None if run.ready_at is None else _seconds(run.ready_at, work.now)
        work.notes.append(Begun(since_ready, _seconds(run.started_at, work.now)))
    work.runs[run.run] = msgspec.structs.replace(run, status=Status.RUNNING, dispatch_failures=0)


def book_exit(work: Work, message: Exited) -> None:
    work.orders.append(Acknowledge(run=message.run))
    run = work.run(message.run)
    work.runs[message.run] = None
    if run is None:
        if slot.book_exit(work, message):
            return
        log.info("the end of %s came late and changes nothing", show_run(message.run))
        return
    if run.status is Status.DISPATCHED and message.ended_by == "stop" and run.stop_requested is None:
        fail_dispatch(work, run, NOT_CONFIRMED)
        return
    if message.trouble:
        log.warning("%s: %s", show_run(message.run), message.trouble)
    end = End(
        code=message.code,
        signal=message.signal,
        ended_by=message.ended_by,
        skipped=None if message.skipped is None else _clean(message.skipped),
        watched=message.watched,
        tail=_clean(_with_trouble(message)),
    )
    intent = Intent(stop_requested=run.stop_requested, timeout=run.timeout, idle_timeout=run.idle_timeout)
    at = min(datetime.fromtimestamp(message.at, UTC), work.now)
    finish(work, run, conclude(end, intent), at=at, cause="executor")


def _with_trouble(message: Exited) -> str:
    return f"{message.tail.rstrip()}\n{message.trouble}".lstrip() if message.trouble else message.tail


def _clean(text: str) -> str:
    """What a child wrote may hold NUL, which not every database takes."""
    return text.replace("\x00", "\ufffd")


def finish(work: Work, run: OpenRun, end: Conclusion, *, at: datetime, cause: str) -> None:
    delay = delay_after(work, run, end)
    if not work.session.finish(run, end, at=at, now=work.now, cause=cause, goes_on=delay is not None):
        return
    work.free.append(run.worker)
    work.has_brief = work.has_brief or (end.status is Status.COMPLETED and at - run.started_at < BRIEF)
    work.notes.append(Ended(run.type, end.status, _seconds(run.started_at, at)))
    breaker.book_end(work, run, end, at=at)
    if run.makes and end.status in _UNDONE:
        work.session.take_back_put(run.job)
    if delay is not None:
        go_on(work, run, delay)
        _let_go(work, run)
    elif not run.is_plain:
        end_chain(work, run.chain, end.status)


def _seconds(begin: datetime, end: datetime) -> float:
    """The wall clock may have been set back meanwhile."""
    return max(0.0, (end - begin).total_seconds())


def _let_go(work: Work, run: OpenRun) -> None:
    """Nobody is at work any more on what the run was to make, and its chain is not over."""
    if run.makes:
        disturb(work, run.chain)


def book_failed_start(work: Work, message: FailedToStart) -> None:
    work.orders.append(Acknowledge(run=message.run))
    run = work.run(message.run)
    work.runs[message.run] = None
    if run is None:
        if slot.book_failed_start(work, message):
            return
        log.info("%s could not be started, and is not wanted any more", show_run(message.run))
        return
    if run.status is Status.RUNNING:
        # Something of it did run (`skip_if`), so this is a run, and it failed.
        end = Conclusion(status=Status.FAILED, exit_code=NOT_STARTED, reason=message.error, error=message.error)
        finish(work, run, end, at=work.now, cause="executor")
    elif run.stop_requested is not None or message.is_machine:
        take_back(work, run, cause="executor")
    else:
        fail_dispatch(work, run, message.error)


def book_refusal(work: Work, message: Refused) -> None:
    """Nothing was started for this claim. If something lives under its number it is not ours to keep."""
    work.orders.append(Stop(run=message.run))
    run = work.session.open_run(message.run)
    if run is None and slot.book_refusal(work, message.run, message.error):
        return
    if run is None or run.status is not Status.DISPATCHED:
        log.warning("a start of %s was refused that nobody waits for", show_run(message.run))
    elif run.stop_requested is not None:
        take_back(work, run, cause="executor")
    else:
        fail_dispatch(work, run, f"the supervisor refused to start it: {message.error}")


def fail_with(work: Work, message: Exited | FailedToStart, reason: str) -> None:
    """The run is over, and what it came to cannot be booked."""
    work.orders.append(Acknowledge(run=message.run))
    run = work.session.open_run(message.run)
    if run is not None:
        fail_for_good(work, run, reason, cause="executor")


def fail_for_good(work: Work, run: OpenRun, reason: str, *, cause: str) -> None:
    """Its own record cannot be used: it is not retried, and says nothing of its kind."""
    end = Conclusion(status=Status.FAILED, exit_code=1, reason=reason, error=reason)
    if work.session.finish(run, end, at=work.now, now=work.now, cause=cause, goes_on=False):
        work.notes.append(Ended(run.type, end.status, _seconds(run.started_at, work.now)))
        breaker.book_nothing(work, run)
        if run.makes:
            work.session.take_back_put(run.job)
        end_chain(work, run.chain, Status.FAILED)


def fail_dispatch(work: Work, run: OpenRun, error: str) -> None:
    """Not a run: the job is tried again after a short while, or given up."""
    failures = run.dispatch_failures + 1
    delay = again_after(failures, work.settings.breaker.dispatch_failures)
    if delay is None:
        give_up(work, run, failures=failures, error=error, reason=f"{CIRCUIT_BROKEN}: {error}")
        return
    work.session.requeue(
        run, failures=failures, error=error, not_before=work.now + delay, now=work.now, cause="executor"
    )
    breaker.book_nothing(work, run)
    _let_go(work, run)
    _return(work, run)


def take_back(work: Work, run: OpenRun, *, cause: str) -> None:
    """The claim came to nothing through no fault of the job: it stands at its old place again, or has ended there
    if somebody cancelled it meanwhile."""
    work.session.requeue(run, failures=run.dispatch_failures, error=None, not_before=None, now=work.now, cause=cause)
    breaker.book_nothing(work, run)
    _let_go(work, run)
    if run.stop_requested not in (None, STOPPED_BY_SHUTDOWN):
        cancel_waiting(work, run.job, run.chain, reason=run.stop_requested, actor=None)
    else:
        _return(work, run)


def _return(work: Work, run: OpenRun) -> None:
    """It waits as if it had never been claimed, also to its group."""
    if run.group is not None:
        group.book_return(work, run.group, run.job)


def give_up(work: Work, run: OpenRun, *, failures: int, error: str, reason: str) -> None:
    work.session.abandon(run, failures=failures, error=error, reason=reason, now=work.now, cause="executor")
    breaker.book_nothing(work, run)
    end_chain(work, run.chain, Status.FAILED)


def cancel_waiting(
    work: Work, job: JobId, chain: JobId, *, reason: str, actor: str | None, cause: str = "cancel"
) -> bool:  # fmt: skip
    """End a job that has not started. It has no run, and the exit code of everything that was cancelled."""
    is_ended = work.session.end_waiting(
        job, Status.CANCELLED, exit_code=CANCELLED, reason=reason, now=work.now, cause=cause, actor=actor
    )
    if is_ended:
        end_chain(work, chain, Status.CANCELLED)
    return is_ended
