"""Recovery: what the store says runs is compared with what the executor can account for.

    store            executor                      becomes
    RUNNING          knows it, alive               adopted: it goes on
    RUNNING          knows its end                 booked with its real exit code (its end follows)
    DISPATCHED       knows it, alive               adopted
    DISPATCHED       does not know it              QUEUED at its old place: it was never started
    RUNNING          does not know it              FAILED `Scheduler crash recovery` (DEC-008 as the fallback)
    no open run      knows it, alive               stopped: nobody asked for it (a restored store, say)
    FAILED, its chain to go on, and no job that does: the retry is made

It enters by the same message whenever a connection to the executor begins: at the scheduler's start, after
`kill -9`, and when the executor was lost and came back. It is idempotent: a second time finds nothing to do.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from rota.core.event import Event
from rota.core.run import CRASH_RECOVERY, Conclusion
from rota.core.status import Status
from rota.engine.finish import finish, take_back
from rota.engine.retry import create_missing
from rota.engine.work import Work
from rota.errors import StorageFull, StoreError
from rota.executor.port import Account, Accounts, Stop
from rota.ids import show_run
from rota.store.claim import OpenRun
from rota.store.moment import to_stored

log = logging.getLogger("rota.engine")

CAUSE = "recovery"

KEYS = (
    "running_jobs_adopted", "running_jobs_recovered", "finished_while_away", "requeued", "slots_expired",
    "retries_created", "groups_recovered", "errors",
)  # fmt: skip
Report = dict[str, int]


def adopt(work: Work, run: OpenRun, account: Account) -> None:
    """It goes on; from now on it counts as started, and what was asked of it is asked again."""
    if account.pid is not None:
        work.session.confirm(run, account.pid, account.start_time or 0, work.now, CAUSE)
    if run.stop_requested is not None:
        work.orders.append(Stop(run=run.run))


def _became(account: Account) -> str:
    if not account.has_ended:
        return "running_jobs_adopted"
    return "running_jobs_recovered" if account.is_lost else "finished_while_away"


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
    """One record that cannot be used must not keep the others from being settled."""
    orders = len(work.orders)
    try:
        with work.session.savepoint():
            return settle(work, run, account)
    except (StorageFull, StoreError):
        raise
    except Exception:
        log.exception("%s could not be recovered", show_run(run.run))
        del work.orders[orders:]
        return "errors"


def stop_strays(work: Work, strays: Sequence[Account]) -> None:
    """What lives and has no open run is not wanted: it would work on beside its job's next run, unseen and outside
    every limit. Its end is told and acknowledged like any other. Its number is not given out again."""
    work.session.spend("run", max(stray.run for stray in strays))
    for stray in strays:
        if not stray.has_ended:
            log.warning("%s lives and is not known to the store: stopped", show_run(stray.run))
            work.orders.append(Stop(run=stray.run))


def reconcile(work: Work, accounts: Accounts) -> Report:
    """Settle every open run; nothing else is dispatched before this."""
    known = {account.run: account for account in accounts.runs}
    report: Counter[str] = Counter()
    for run in work.session.open_runs():
        report[_settle_alone(work, run, known.pop(run.run, None))] += 1
    if known:
        stop_strays(work, list(known.values()))
        report["errors"] += sum(not stray.has_ended for stray in known.values())
    report += Counter(retries_created=create_missing(work, CAUSE))
    if report:
        work.session.emit(Event(kind="scheduler.recovered", at=to_stored(work.now), cause=CAUSE, data=dict(report)))
    return dict(report)
