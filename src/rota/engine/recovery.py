"""Recovery: what the store says runs is compared with what the executor can account for.

    store            executor                      becomes
    RUNNING          knows it, alive               adopted: it goes on
    RUNNING          knows its end                 booked with its real exit code (its end follows)
    DISPATCHED       knows it, alive               adopted
    DISPATCHED       does not know it              QUEUED at its old place: it was never started
    RUNNING          does not know it              FAILED `Scheduler crash recovery` (DEC-008 as the fallback)
    no open run      knows it, alive               stopped: nobody asked for it (a restored store, say);
                                                   nothing starts before it has ended
    FAILED, its chain to go on, and no job that does: the retry is made
    a group that is not finished, and no member that is active: it is finished

It enters by the same message whenever a connection to the executor begins: at the scheduler's start, after
`kill -9`, and when the executor was lost and came back. It is idempotent: a second time finds nothing to do.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from rota.core.event import Event
from rota.core.run import CRASH_RECOVERY, Conclusion
from rota.core.status import Status
from rota.engine import group, slot
from rota.engine.finish import fail_for_good, finish, give_up, take_back
from rota.engine.retry import create_missing
from rota.engine.work import Work
from rota.errors import StorageFull, StoreError
from rota.executor.port import Account, Accounts, Exited, FailedToStart, Started, Stop
from rota.ids import RunId, show_run
from rota.store.claim import OpenRun
from rota.store.moment import to_stored

log = logging.getLogger("rota.engine")

CAUSE = "recovery"

KEYS = (
    "running_jobs_adopted", "running_jobs_recovered", "finished_while_away", "requeued", "slots_expired",
    "retries_created", "groups_recovered", "errors",
)  # fmt: skip
Report = dict[str, int]

AGAIN_AFTER = 10.0
"""Seconds until accounts that could not be settled are tried again."""


def adopt(work: Work, run: OpenRun, account: Account) -> None:
    """It goes on; from now on it counts as started, and what was asked of it is asked again."""
    if account.pid is not None:
        work.session.confirm(run, account.pid, account.start_time or 0, work.now, CAUSE)
    if run.stop_requested is not None:
        work.orders.append(Stop(run=run.run, kill_after=work.settings.kill_after.total_seconds()))


def _became(account: Account) -> str:
    if account.is_lost:
        return "running_jobs_recovered"
    return "finished_while_away" if account.has_ended else "running_jobs_adopted"


def settle(work: Work, run: OpenRun, account: Account | None) -> str:
    """What became of one open run."""
    if account is not None:
        adopt(work, run, account)
        return _became(account)
    if run.status is Status.DISPATCHED:
        take_back(work, run, cause=CAUSE)
        return "requeued"
    end = Conclusion(status=Status.FAILED, exit_code=1, reason=CRASH_RECOVERY, error=CRASH_RECOVERY)
    finish(work, run, end, at=work.now, cause=CAUSE)
    return "running_jobs_recovered"


def _settle_alone(work: Work, run: OpenRun, account: Account | None) -> str:
    """One record that cannot be used must not keep the others from being settled. Where the executor knows the run its
    end is still to come; where nobody does it is ended here, or it would hold its place and its locks for ever."""
    became, error = _guarded(work, run, lambda: settle(work, run, account))
    if error is not None and account is None:
        reason = f"scheduler data error: {error}"
        _guarded(work, run, lambda: _fail(work, run, reason))
    return became


def _fail(work: Work, run: OpenRun, reason: str) -> str:
    if run.status is Status.DISPATCHED:
        give_up(work, run, failures=run.dispatch_failures, error=reason, reason=reason)
    else:
        fail_for_good(work, run, reason, cause=CAUSE)
    return "errors"


def _guarded(work: Work, run: OpenRun, act: Callable[[], str]) -> tuple[str, Exception | None]:
    orders = len(work.orders)
    try:
        with work.session.savepoint():
            return act(), None
    except (StorageFull, StoreError):
        raise
    except Exception as error:
        log.exception("%s could not be recovered", show_run(run.run))
        del work.orders[orders:]
        return "errors", error


def stop_strays(work: Work, strays: Sequence[Account]) -> set[RunId]:
    """What lives and has no open run is not wanted: it would work on beside its job's next run, unseen and outside
    every limit. Its end is told and acknowledged like any other. Its number is not given out again."""
    if strays:
        work.session.spend("run", max(stray.run for stray in strays))
    alive = [stray.run for stray in strays if not stray.has_ended]
    for run in alive:
        log.warning("%s lives and is not known to the store: stopped", show_run(run))
        work.orders.append(Stop(run=run))
    return set(alive)


def reconcile(work: Work, accounts: Accounts) -> tuple[Report, set[RunId]]:
    """Settle every open run; nothing else is dispatched before this. Also which strays are to end first."""
    known = {account.run: account for account in accounts.runs}
    report: Counter[str] = Counter()
    for run in work.session.open_runs():
        report[_settle_alone(work, run, known.pop(run.run, None))] += 1
    report["slots_expired"] += slot.settle(work, known)
    strays = stop_strays(work, list(known.values()))
    created, errors = create_missing(work, CAUSE)
    report += Counter(retries_created=created, groups_recovered=group.recover(work, CAUSE), errors=errors + len(strays))
    if report:
        work.session.emit(Event(kind="scheduler.recovered", at=to_stored(work.now), cause=CAUSE, data=dict(report)))
    return dict(report), strays


class Unsettled:
    """What a connection to the executor began with and is not done with. While there is any, nothing is claimed.

    Strays that have not ended yet; or the accounts themselves, when they could not be settled at all. Those come once
    for each connection, so they are kept, with what was heard since, and tried again. In memory: a new connection
    begins with accounts of its own.
    """

    def __init__(self) -> None:
        self._strays: set[RunId] = set()
        self._accounts: Accounts | None = None
        self._error = ""
        self._retry_at = 0.0

    def forget(self, strays: set[RunId] | None = None) -> None:
        """The accounts are settled, but for these; or the connection is over."""
        self._strays, self._accounts = strays or set(), None

    def await_end(self, run: RunId) -> None:
        """It lives and is not wanted: it has been told to end."""
        self._strays.add(run)

    def keep(self, accounts: Accounts, error: Exception, now: float) -> None:
        self._strays, self._accounts = set(), accounts
        self._error, self._retry_at = repr(error), now + AGAIN_AFTER

    def due(self, now: float) -> list[Accounts]:
        return [] if self._accounts is None or now < self._retry_at else [self._accounts]

    def hear(self, message: Started | Exited | FailedToStart) -> None:
        """Kept accounts must not call back a start that was confirmed, nor stop what has ended."""
        if not isinstance(message, Started):
            self._strays.discard(message.run)
        if self._accounts is not None:
            self._accounts = Accounts(runs=[_since(account, message) for account in self._accounts.runs])

    @property
    def trouble(self) -> str | None:
        if self._accounts is not None:
            return f"nothing can be started: what the executor runs cannot be settled: {self._error}"
        if self._strays:
            return f"nothing starts before what the store does not know has ended: {', '.join(_named(self._strays))}"
        return None

    @property
    def next_deadline(self) -> float | None:
        return None if self._accounts is None else self._retry_at


def _named(runs: set[RunId]) -> list[str]:
    return [show_run(run) for run in sorted(runs)]


def _since(account: Account, message: Started | Exited | FailedToStart) -> Account:
    if account.run != message.run:
        return account
    if isinstance(message, Started):
        return msgspec.structs.replace(account, pid=message.pid, start_time=message.start_time)
    return msgspec.structs.replace(account, has_ended=True)
