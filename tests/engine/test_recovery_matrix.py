"""Recovery matrix: each state of a run and each loss, and that a second recovery changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from rota.db.jobs import Jobs
from rota.engine.recovery import COUNT_NAMES
from rota.executor.port import ExecutorMessage, ExitReport, RunInventory, RunReport, StartFailure
from rota.ids import JobId, RunId
from rota.kernel.events import Event
from rota.kernel.run import CRASH_RECOVERY, UNKNOWN_EXIT
from rota.kernel.status import Status
from tests.harness import FakeExecutor, Scheduler, SqlRunner

pytestmark = pytest.mark.both_databases

RUN = RunId(1)
AT = 1_767_225_600.0
ALIVE = RunReport(run=RUN, pid=7, start_time=1)
STARTING = RunReport(run=RUN, pid=None)
ENDED = RunReport(run=RUN, pid=None, has_ended=True)
LOST = RunReport(run=RUN, pid=None, has_ended=True, is_lost=True)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    was_confirmed: bool = True
    """RUNNING instead of DISPATCHED."""
    inventory: tuple[RunReport, ...] = ()
    messages: tuple[ExecutorMessage, ...] = ()
    """Messages of the executor directly after its inventory."""
    status: Status
    exit_code: int | None = None
    reason: str | None = None
    report: dict[str, int]
    next_inventory: tuple[RunReport, ...] = ()
    """Inventory at the next start."""


CASES = {
    "adopted": Case(
        inventory=(ALIVE,), status=Status.RUNNING, report={"running_jobs_adopted": 1}, next_inventory=(ALIVE,)
    ),
    "adopted, its confirmation was missed": Case(
        was_confirmed=False,
        inventory=(ALIVE,),
        status=Status.RUNNING,
        report={"running_jobs_adopted": 1},
        next_inventory=(ALIVE,),
    ),
    "adopted while it is being started": Case(
        was_confirmed=False,
        inventory=(STARTING,),
        status=Status.DISPATCHED,
        report={"running_jobs_adopted": 1},
        next_inventory=(STARTING,),
    ),
    "ended meanwhile": Case(
        inventory=(ENDED,),
        messages=(ExitReport(run=RUN, at=AT, code=42),),
        status=Status.FAILED,
        exit_code=42,
        reason="exit code 42",
        report={"finished_while_down": 1},
    ),
    "ended meanwhile, and the acknowledgement got lost": Case(
        inventory=(ENDED,),
        messages=(ExitReport(run=RUN, at=AT, code=0),),
        status=Status.COMPLETED,
        exit_code=0,
        report={"finished_while_down": 1},
        next_inventory=(ENDED,),
    ),
    "ended meanwhile, its confirmation was missed": Case(
        was_confirmed=False,
        inventory=(ENDED,),
        messages=(ExitReport(run=RUN, at=AT, code=0),),
        status=Status.COMPLETED,
        exit_code=0,
        report={"finished_while_down": 1},
    ),
    "could not be started meanwhile": Case(
        was_confirmed=False,
        inventory=(ENDED,),
        messages=(StartFailure(run=RUN, error="no such program"),),
        status=Status.QUEUED,
        report={"finished_while_down": 1},
    ),
    "supervisor lost, child alive": Case(  # the new supervisor watches it without its exit code
        inventory=(ALIVE,),
        messages=(ExitReport(run=RUN, at=AT),),
        status=Status.FAILED,
        reason=UNKNOWN_EXIT,
        report={"running_jobs_adopted": 1},
    ),
    "supervisor lost, child gone": Case(
        inventory=(LOST,),
        messages=(ExitReport(run=RUN, at=AT, is_observed=False),),
        status=Status.FAILED,
        reason=CRASH_RECOVERY,
        report={"running_jobs_recovered": 1},
    ),
    "supervisor lost in the middle of a start": Case(
        was_confirmed=False,
        inventory=(LOST,),
        messages=(ExitReport(run=RUN, at=AT, is_observed=False),),
        status=Status.FAILED,
        reason=CRASH_RECOVERY,
        report={"running_jobs_recovered": 1},
    ),
    "run row without a process": Case(
        status=Status.FAILED, reason=CRASH_RECOVERY, report={"running_jobs_recovered": 1}
    ),
}


def tables(run_sql: SqlRunner) -> dict[str, list[tuple[Any, ...]]]:
    """Return all stored rows except the reports of recovery."""
    rows = {
        name: run_sql(f"SELECT * FROM {name} ORDER BY 1, 2") for name in ("job", "spec", "run", "edge", "lock", "lane")
    }
    rows["event"] = run_sql("SELECT * FROM event WHERE kind <> 'scheduler.recovered' ORDER BY seq")
    return rows


def restart(scheduler: Scheduler, inventory: Sequence[RunReport], messages: Sequence[ExecutorMessage] = ()) -> None:
    scheduler.session.close()
    scheduler.executor = FakeExecutor()
    scheduler.executor.inbox = [RunInventory(runs=list(inventory)), *messages]
    scheduler.start_engine()


@pytest.fixture
def job(scheduler: Scheduler) -> JobId:
    """Job with an open run. It holds a lock; other jobs wait for its end, its lock and its capacity."""
    job = scheduler.submit(locks=["repo"])
    scheduler.submit(after=["job-1:finished"], delay="1h")
    scheduler.submit(locks=["repo"], delay="1h")
    scheduler.submit(delay="1h")
    return job


@pytest.mark.parametrize("name", CASES)
def test_run_is_recovered_once(scheduler: Scheduler, run_sql: SqlRunner, job: JobId, name: str) -> None:
    case = CASES[name]
    if case.was_confirmed:
        scheduler.confirm_start(job, pid=7)
    restart(scheduler, case.inventory, case.messages)
    record = scheduler.job(job)
    assert (record.status, record.exit_code, record.reason) == (case.status, case.exit_code, case.reason)
    assert scheduler.engine.recovery_counts == case.report
    assert scheduler.started_jobs() == [], "nothing ran a second time"
    held = run_sql("SELECT state FROM lock WHERE job = 1")
    assert held == [("held" if record.status.public is Status.RUNNING else "idle",)]
    assert scheduler.executor.acknowledged == [RUN] * len(case.messages)
    before = tables(run_sql)
    for _ in range(2):
        restart(scheduler, case.next_inventory, case.messages if case.next_inventory == (ENDED,) else ())
        assert tables(run_sql) == before
        assert scheduler.started_jobs() == []


def test_unused_claim_is_started_once_at_its_place(scheduler: Scheduler, run_sql: SqlRunner, job: JobId) -> None:
    """The second recovery finds it: it continues, and does not start again."""
    restart(scheduler, [])
    assert scheduler.engine.recovery_counts == {"requeued": 1}
    assert scheduler.started_jobs() == [job]
    again = scheduler.find_run(job)
    assert again != RUN, "an unused claim is not a run"
    before = tables(run_sql)
    restart(scheduler, [RunReport(run=again, pid=None)])
    assert tables(run_sql) == before
    assert scheduler.started_jobs() == []


def test_nothing_is_adopted_after_a_reboot(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """The journal is of another boot: every open run has ended unobserved."""
    running, claimed = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    unlimited_scheduler.confirm_start(running)
    lost = [
        RunReport(run=unlimited_scheduler.find_run(job), pid=None, has_ended=True, is_lost=True)
        for job in (running, claimed)
    ]
    restart(unlimited_scheduler, lost, [ExitReport(run=report.run, at=AT, is_observed=False) for report in lost])
    for job in (running, claimed):
        record = unlimited_scheduler.job(job)
        assert (record.status, record.exit_code, record.reason) == (Status.FAILED, None, "Scheduler crash recovery")
    assert unlimited_scheduler.engine.recovery_counts == {"running_jobs_recovered": 2}
    before = tables(run_sql)
    restart(unlimited_scheduler, [])
    assert unlimited_scheduler.engine.recovery_counts == {}
    assert tables(run_sql) == before


def test_unknown_process_is_stopped(scheduler: Scheduler, run_sql: SqlRunner, job: JobId) -> None:
    """As after a restore of an older database: its end would never be recorded and its resources never freed."""
    scheduler.confirm_start(job, pid=7)
    unknown = RunReport(run=RunId(99), pid=99, start_time=1)
    for _ in range(2):
        before = tables(run_sql)
        restart(scheduler, [ALIVE, unknown])
        assert scheduler.executor.stops == [99]
        assert scheduler.engine.recovery_counts == {"running_jobs_adopted": 1, "unknown_runs_ended": 1}
        assert tables(run_sql) == before
    scheduler.receive(ExitReport(run=RunId(99), at=AT, signal=15, ended_by="stop"))
    assert scheduler.executor.acknowledged == [99]
    assert tables(run_sql) == before
    restart(scheduler, [ALIVE])
    assert scheduler.executor.stops == []


def test_end_of_unknown_run_is_only_acknowledged(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    before = tables(run_sql)
    restart(scheduler, [RunReport(run=RunId(99), pid=None, has_ended=True)], [ExitReport(run=RunId(99), at=AT, code=0)])
    assert (scheduler.executor.stops, scheduler.executor.acknowledged) == ([], [99])
    assert tables(run_sql) == before


def test_run_that_cannot_be_recovered_does_not_block_others(
    unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """LESSONS Dispatch: one bad record stopped the tick for all. It is counted, logged and retried later."""
    bad, good, waiting = (
        unlimited_scheduler.submit(),
        unlimited_scheduler.submit(),
        unlimited_scheduler.submit(delay="1h"),
    )
    for job in (bad, good):
        unlimited_scheduler.confirm_start(job)
    finish = Jobs.finish

    def failing(self: Jobs, run: Any, *args: Any, **fields: Any) -> bool:
        if run.job == bad:
            raise LookupError("unreadable")
        return finish(self, run, *args, **fields)

    monkeypatch.setattr(Jobs, "finish", failing)
    restart(unlimited_scheduler, [])
    assert unlimited_scheduler.engine.recovery_counts == {"errors": 1, "running_jobs_recovered": 1}
    assert (unlimited_scheduler.status(bad), unlimited_scheduler.status(good)) == (Status.RUNNING, Status.FAILED)
    assert "could not be recovered" in caplog.text
    unlimited_scheduler.clock.advance(hours=1)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.started_jobs() == [waiting], "the rest continues"
    monkeypatch.undo()
    restart(unlimited_scheduler, [RunReport(run=unlimited_scheduler.find_run(waiting), pid=5)])
    assert unlimited_scheduler.engine.recovery_counts == {"running_jobs_recovered": 1, "running_jobs_adopted": 1}
    assert unlimited_scheduler.job(bad).reason == CRASH_RECOVERY


def test_report_is_kept_as_an_event(scheduler: Scheduler, job: JobId) -> None:
    scheduler.confirm_start(job, pid=7)
    restart(scheduler, [ALIVE])
    kept = [event for _seq, event in scheduler.reader.events.since(0, 100) if event.kind == "scheduler.recovered"]
    (event,) = kept
    expected = Event(kind="scheduler.recovered", at=event.at, cause="recovery", data={"running_jobs_adopted": 1})
    assert event == expected
    assert set(event.data) <= set(COUNT_NAMES)


def test_report_has_the_names_of_the_design() -> None:
    assert COUNT_NAMES == (
        "running_jobs_adopted",
        "running_jobs_recovered",
        "finished_while_down",
        "requeued",
        "reservations_expired",
        "retries_created",
        "groups_recovered",
        "unknown_runs_ended",
        "errors",
    )
