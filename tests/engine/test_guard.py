"""The invariants where they matter: in a scheduler at work (INV-001, INV-003)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from harness import Raw, Scheduler
from rota.core.snapshot import Snapshot
from rota.core.status import Status
from rota.core.tick import Plan, plan
from rota.engine import dispatch
from rota.engine.work import Work
from rota.errors import Conflict, StoreError
from rota.ids import JobId


def edit(scheduler: Scheduler, job: JobId, **changes: object) -> bool:
    def act(work: Work) -> bool:
        found = work.session.job(job)
        assert found is not None
        return work.session.edit(found, changes, now=work.now, actor="tester")

    return bool(scheduler.do(act))


def test_inv_001_an_edit_counts_until_dispatch_and_is_refused_from_then_on(scheduler: Scheduler) -> None:
    first, second = scheduler.submit("one", params={"a": 1}), scheduler.submit("two", params={"a": 1})
    assert edit(scheduler, second, params={"a": 2}, command=("three",))
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit(scheduler, first, params={"a": 2})
    scheduler.end(first)
    (start,) = (start for start in scheduler.executor.starts if start.job == second)
    assert (list(start.argv), start.overlay["ROTA_PARAMS"]) == (["three"], '{"a":2}')
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit(scheduler, second, params={"a": 3})
    scheduler.end(second, 1)
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit(scheduler, second, params={"a": 3})
    assert [scheduler.job(job).spec.params for job in (first, second)] == [{"a": 1}, {"a": 2}]


def test_inv_001_an_edit_in_the_turn_of_the_claim_is_before_it(make_scheduler: Callable[..., Scheduler]) -> None:
    """Requests of a turn come before its claims: either the edit counts or it is refused, never half of each."""
    scheduler = make_scheduler(**{"global": 0})
    job = scheduler.submit("one", params={"a": 1})
    limits = scheduler.settings.limits
    scheduler.engine.settings = msgspec.structs.replace(
        scheduler.settings, limits=type(limits)({**limits.sizes, "global": 1})
    )
    assert edit(scheduler, job, params={"a": 2})
    assert [start.overlay["ROTA_PARAMS"] for start in scheduler.executor.starts] == ['{"a":2}']


def test_inv_003_a_plan_that_gives_one_worker_two_jobs_starts_neither(
    scheduler: Scheduler, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema refuses it, so the turn is undone: nothing was stored, nothing is spawned, and the next turn is
    whole again."""

    def careless(snapshot: Snapshot) -> Plan:
        made = plan(snapshot)
        claims = tuple(msgspec.structs.replace(claim, worker=1) for claim in made.claims)
        return msgspec.structs.replace(made, claims=claims)

    jobs = [scheduler.submit(), scheduler.submit(), scheduler.submit()]
    scheduler.end(jobs[0])  # one runs on local/1
    monkeypatch.setattr(dispatch, "plan", careless)
    scheduler.set_pools(**{"global": 2})
    assert isinstance(scheduler.engine.trouble, StoreError)
    assert scheduler.started() == jobs[:2]
    assert scheduler.status(jobs[2]) is Status.QUEUED
    assert raw("SELECT count(*) FROM run WHERE status IS NULL") == [(1,)]
    monkeypatch.undo()
    scheduler.turn()
    assert scheduler.started() == jobs
    assert raw("SELECT worker FROM run WHERE status IS NULL ORDER BY id") == [("local/1",), ("local/2",)]
