"""Recovery: what the store says runs is compared with what the executor can account for.

    store            executor                      becomes
    RUNNING          knows it, alive               adopted: it goes on
    RUNNING          knows its end                 booked with its real exit code (its end follows)
    DISPATCHED       knows it, alive               adopted
    DISPATCHED       does not know it              QUEUED at its old place: it was never started
    RUNNING          does not know it              FAILED `Scheduler crash recovery` (DEC-008 as the fallback)
    no such run      knows it, alive               stopped: nobody would ever book its end
    FAILED, its chain to go on, and no job that does: the retry is made

It enters by the same message whenever a connection to the executor begins: at the scheduler's start, after
`kill -9`, and when the executor was lost and came back. It is idempotent: a second time finds nothing to do.
"""

from __future__ import annotations

import logging
from collections import Counter

from rota.core.event import Event
from rota.core.run import CRASH_RECOVERY, Conclusion
from rota.core.status import Status
from rota.engine.finish import finish, take_back
from rota.engine.retry import create_missing
from rota.engine.work import Work
from rota.errors import StorageFull, StoreError
from rota.executor.port import Account, Accounts, Stop
from rota.ids import show_job, show_run
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


def _settle(work: Work, run: OpenRun, account: Account | None) -> str:
    """What becomes of one open run, by its key in the report."""
    if account is not None:
        adopt(work, run, account)
        return _became(account)
    if run.status is Status.DISPATCHED:
        take_back(work, run, cause=CAUSE)
        return "requeued"
    end = Conclusion(status=Status.FAILED, exit_code=1, reason=CRASH_RECOVERY, error=CRASH_RECOVERY)
    finish(work, run, end, at=work.now, cause=CAUSE)
    return "running_jobs_recovered"


def _carefully(work: Work, run: OpenRun, account: Account | None) -> str:
    """One that cannot be settled stays as it is until the next time, and keeps nobody else from being settled."""
    try:
        with work.session.savepoint():
            return _settle(work, run, account)
    except (StorageFull, StoreError):
        raise
    except Exception:
        log.exception("a defect: %s could not be recovered", show_job(run.job))
        return "errors"


def reconcile(work: Work, accounts: Accounts) -> Report:
    """Settle every open run; nothing else is dispatched before this."""
    known = {account.run: account for account in accounts.runs}
    report: Counter[str] = Counter()
    for run in work.session.open_runs():
        report[_carefully(work, run, known.pop(run.run, None))] += 1
    for account in known.values():
        if not account.has_ended:
            log.warning("%s runs, but the store does not know it; it is stopped", show_run(account.run))
            work.orders.append(Stop(run=account.run))
    report += Counter(retries_created=create_missing(work, CAUSE))
    if report:
        work.session.emit(Event(kind="scheduler.recovered", at=to_stored(work.now), cause=CAUSE, data=dict(report)))
    return dict(report)
