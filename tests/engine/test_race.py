"""Cancel, completion and crash in every order: the end is decided once, and later messages change nothing.

The behavior of the child is fixed; only the order of the messages varies. A true result stands although a stop was
requested, and a stop cancels only the run that it ended.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from rota.errors import Conflict
from rota.executor.port import ExitReport, RunReport, StartConfirmation
from rota.ids import JobId, RunId
from rota.kernel.status import TERMINAL, Status
from tests.harness import Scheduler, SqlRunner

pytestmark = pytest.mark.both_databases

ENDS: dict[str, tuple[dict[str, Any], Status, int]] = {
    "completed": ({"code": 0}, Status.COMPLETED, 0),
    "failed": ({"code": 3}, Status.FAILED, 3),
    "timed out": ({"signal": 15, "ended_by": "timeout"}, Status.FAILED, 124),
    "silent": ({"signal": 9, "ended_by": "idle_timeout"}, Status.FAILED, 124),
    "stopped": ({"signal": 15, "ended_by": "stop"}, Status.CANCELLED, 143),
    "stopped, with exit code 0": ({"code": 0, "ended_by": "stop"}, Status.CANCELLED, 143),
}
ORDERS = [(*order, "end") for order in permutations(["start", "cancel", "end", "crash"])]
"""An end is reported until it is acknowledged, so it may be reported again."""


def is_possible(order: tuple[str, ...], name: str) -> bool:
    """Return whether this order is possible: a supervisor stops only runs that it was ordered to stop."""
    return not name.startswith("stopped") or order.index("cancel") < order.index("end")


class JobMessages:
    """One job and its messages."""

    def __init__(self, scheduler: Scheduler, end: dict[str, Any]) -> None:
        self.scheduler = scheduler
        self.job: JobId = scheduler.submit(timeout="1m", idle_timeout="1m")
        self.run: RunId = scheduler.find_run(self.job)
        self.exit_report = ExitReport(run=self.run, at=scheduler.clock.moment.timestamp(), **end)
        self.has_ended = False

    def start(self) -> None:
        self.scheduler.receive(StartConfirmation(run=self.run, pid=7, start_time=1))

    def end(self) -> None:
        self.has_ended = True
        self.scheduler.receive(self.exit_report)

    def crash(self) -> None:
        """Crash. The supervisor repeats the end that was acknowledged just as the scheduler died."""
        alive = None if self.has_ended else 7
        self.scheduler.crash([RunReport(run=self.run, pid=alive, has_ended=self.has_ended)])
        if self.has_ended:
            self.scheduler.receive(self.exit_report)

    def cancel(self) -> None:
        is_over = self.scheduler.status(self.job) in TERMINAL - {Status.CANCELLED}
        try:
            self.scheduler.cancel(self.job)
        except Conflict:
            assert is_over
        else:
            assert not is_over


@pytest.mark.parametrize("name", ENDS)
def test_end_is_decided_once_in_any_order_of_messages(
    unlimited_scheduler: Scheduler, run_sql: SqlRunner, name: str
) -> None:
    """LESSONS: a COMPLETED run was overwritten to FAILED; a fast child's end was overwritten by its start."""
    end, status, exit_code = ENDS[name]
    for order in ORDERS:
        if not is_possible(order, name):
            continue
        messages = JobMessages(unlimited_scheduler, end)
        outcome = None
        for act in order:
            getattr(messages, act)()
            record = unlimited_scheduler.job(messages.job)
            now = (record.status, record.exit_code, record.reason, record.finished_at, record.run)
            assert (record.status in TERMINAL) is messages.has_ended, order
            assert outcome in (None, now), order
            outcome = now if messages.has_ended else None
        assert record.run is not None
        assert (record.status, record.exit_code) == (record.run.status, record.run.exit_code) == (status, exit_code), (
            order
        )
        kinds = [kind for (kind,) in run_sql(f"SELECT kind FROM event WHERE job = {messages.job} ORDER BY seq")]
        assert [kind for kind in kinds if kind in {f"job.{status.lower()}" for status in TERMINAL}] == [kinds[-1]], (
            order
        )
        assert unlimited_scheduler.started_jobs().count(messages.job) <= 1, order
    assert run_sql("SELECT count(*) FROM run WHERE status IS NULL") == [(0,)]


@pytest.mark.parametrize("name", ENDS)
def test_cancelled_job_runs_until_its_end_is_reported(scheduler: Scheduler, name: str) -> None:
    """LESSONS Processes: cancelled recorded at once though the child lived on. Its capacity, lock and status are free
    when its process is gone."""
    end, status, _ = ENDS[name]
    job = scheduler.submit(timeout="1m", idle_timeout="1m", locks=["repo"])
    behind = scheduler.submit(locks=["repo"])
    scheduler.confirm_start(job)
    scheduler.cancel(job)
    for _ in range(3):
        scheduler.clock.advance(hours=1)
        scheduler.run_turns()
        assert scheduler.show_job(job).status == "RUNNING"
        assert scheduler.started_jobs() == [job]
    scheduler.end_run(job, end.get("code"), **{key: value for key, value in end.items() if key != "code"})
    assert scheduler.status(job) is status
    assert scheduler.started_jobs() == [job, behind]
