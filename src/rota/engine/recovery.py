"""Recovery: what the store says runs is compared with what the executor can account for.

    store            executor                      becomes
    RUNNING          knows it, alive               adopted: it goes on
    RUNNING          knows its end                 booked with its real exit code (its end follows)
    DISPATCHED       knows it, alive               adopted
    DISPATCHED       does not know it              QUEUED at its old place: it was never started
    RUNNING          does not know it              FAILED `Scheduler crash recovery` (DEC-008 as the fallback)
    FAILED, its chain to go on, and no job that does: the retry is made

It enters by the same message whenever a connection to the executor begins: at the scheduler's start, after
`kill -9`, and when the executor was lost and came back. It is idempotent: a second time finds nothing to do.
"""

from __future__ import annotations

from collections import Counter

from rota.core.event import Event
from rota.core.run import CRASH_RECOVERY, Conclusion
from rota.core.status import Status
from rota.engine.finish import finish, take_back
from rota.engine.retry import create_missing
from rota.engine.work import Work
from rota.executor.port import Account, Accounts, Stop
from rota.store.claim import OpenRun
from rota.store.moment import to_stored

CAUSE = "recovery"

KEYS = ("running_jobs_adopted", "running_jobs_recovered", "finished_while_away", "requeued", "retries_created")
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


def reconcile(work: Work, accounts: Accounts) -> Report:
    """Settle every open run; nothing else is dispatched before this."""
    known = {account.run: account for account in accounts.runs}
    report: Counter[str] = Counter()
    for run in work.session.open_runs():
        account = known.get(run.run)
        if account is not None:
            report[_became(account)] += 1
            adopt(work, run, account)
        elif run.status is Status.DISPATCHED:
            take_back(work, run, cause=CAUSE)
            report["requeued"] += 1
        else:
            end = Conclusion(status=Status.FAILED, exit_code=1, reason=CRASH_RECOVERY, error=CRASH_RECOVERY)
            finish(work, run, end, at=work.now, cause=CAUSE)
            report["running_jobs_recovered"] += 1
    report += Counter(retries_created=create_missing(work, CAUSE))
    if report:
        work.session.emit(Event(kind="scheduler.recovered", at=to_stored(work.now), cause=CAUSE, data=dict(report)))
    return dict(report)
