"""The invariants INV-001 and INV-003 in a running scheduler."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from rota.engine import dispatch
from rota.engine.transaction import Transaction
from rota.errors import Conflict, StoreError
from rota.ids import JobId
from rota.kernel.lanes import Snapshot
from rota.kernel.status import Status
from rota.kernel.tick import StartPlan, plan
from tests.harness import Scheduler, SqlRunner

pytestmark = pytest.mark.both_databases


def edit(scheduler: Scheduler, job: JobId, **changes: object) -> bool:
    def act(tx: Transaction) -> bool:
        record = tx.jobs.find(job)
        assert record is not None
        return tx.jobs.edit(record, changes, now=tx.now, actor="tester")

    return bool(scheduler.run_request(act))


def test_inv_001_edit_is_accepted_until_dispatch_only(scheduler: Scheduler) -> None:
    first, second = scheduler.submit("one", params={"a": 1}), scheduler.submit("two", params={"a": 1})
    assert edit(scheduler, second, params={"a": 2}, command=("three",))
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit(scheduler, first, params={"a": 2})
    scheduler.end_run(first)
    (start,) = (start for start in scheduler.executor.starts if start.job == second)
    assert (list(start.argv), start.overlay["ROTA_PARAMS"]) == (["three"], '{"a":2}')
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit(scheduler, second, params={"a": 3})
    scheduler.end_run(second, 1)
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit(scheduler, second, params={"a": 3})
    assert [scheduler.job(job).spec.params for job in (first, second)] == [{"a": 1}, {"a": 2}]


def test_inv_001_edit_in_the_turn_of_the_claim_comes_first(make_scheduler: Callable[..., Scheduler]) -> None:
    """Requests of a turn come before its claims: the edit is effective as a whole or refused."""
    scheduler = make_scheduler(**{"global": 0})
    job = scheduler.submit("one", params={"a": 1})
    limits = scheduler.settings.pool_sizes
    scheduler.engine.settings = msgspec.structs.replace(
        scheduler.settings, pool_sizes=type(limits)({**limits.sizes, "global": 1})
    )
    assert edit(scheduler, job, params={"a": 2})
    assert [start.overlay["ROTA_PARAMS"] for start in scheduler.executor.starts] == ['{"a":2}']


def test_inv_003_plan_that_gives_one_worker_two_jobs_is_undone(
    scheduler: Scheduler, run_sql: SqlRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema refuses it, so the turn is undone: nothing is stored or spawned, and the next turn starts both
    jobs."""

    def plan_one_worker(snapshot: Snapshot) -> StartPlan:
        start_plan = plan(snapshot)
        claims = tuple(msgspec.structs.replace(claim, worker=1) for claim in start_plan.claims)
        return msgspec.structs.replace(start_plan, claims=claims)

    jobs = [scheduler.submit(), scheduler.submit(), scheduler.submit()]
    scheduler.end_run(jobs[0])  # one runs on local/1
    monkeypatch.setattr(dispatch, "plan", plan_one_worker)
    scheduler.set_pools(**{"global": 2})
    assert isinstance(scheduler.engine.store_error, StoreError)
    assert scheduler.started_jobs() == jobs[:2]
    assert scheduler.status(jobs[2]) is Status.QUEUED
    assert run_sql("SELECT count(*) FROM run WHERE status IS NULL") == [(1,)]
    monkeypatch.undo()
    scheduler.run_turns()
    assert scheduler.started_jobs() == jobs
    assert run_sql("SELECT worker FROM run WHERE status IS NULL ORDER BY id") == [("local/1",), ("local/2",)]
