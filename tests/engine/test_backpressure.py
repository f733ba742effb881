"""Backpressure: a submit is warned from the soft limit on and deferred from the hard limit on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from rota.engine.transaction import Transaction, TurnRequest
from rota.errors import InvalidInput
from rota.jobs.retry import retry
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import (
    AcceptedSubmit,
    DeferredSubmit,
    DelayWarning,
    DuplicateSubmit,
    SubmitOutcome,
    find_delays,
    submit,
)
from rota.kernel.backpressure import DepthLimits, QueueDepth, QueueLimit
from rota.kernel.status import Status
from tests.harness import Scheduler, SqlRunner

ENVIRONMENT = DefaultEnvironment(cwd="/", variables={"PATH": "/usr/bin:/bin"})
TABLES = ("job", "spec", "edge", "lock", "environment", "lane", "event", "idempotency", "sequence")
AUTO = QueueLimit(soft="auto", hard="auto")


def table_contents(run_sql: SqlRunner) -> list[list[tuple[Any, ...]]]:
    return [run_sql(f"SELECT * FROM {table}") for table in TABLES]


def with_warnings(tx: Transaction, result: list[SubmitOutcome]) -> list[tuple[SubmitOutcome, DelayWarning | None]]:
    return list(zip(result, find_delays(tx, result), strict=True))


def submit_jobs(scheduler: Scheduler, *bodies: dict[str, Any]) -> tuple[SubmitOutcome, DelayWarning | None]:
    """Return the outcome of one submit and its delay warning at the end of the turn."""
    request = [msgspec.convert({"command": ["true"], **body}, Submission) for body in bodies or ({},)]
    result: tuple[SubmitOutcome, DelayWarning | None] = scheduler.run_request(
        partial(submit, submissions=request, default_environment=ENVIRONMENT, actor="me"), with_warnings
    )
    return result


def fill(scheduler: Scheduler, count: int, **body: Any) -> None:
    for _ in range(count):
        assert isinstance(submit_jobs(scheduler, body)[0], AcceptedSubmit)


def test_submits_are_not_limited_by_default(scheduler: Scheduler) -> None:
    for _ in range(100):
        result, delayed = submit_jobs(scheduler)
        assert isinstance(result, AcceptedSubmit)
        assert delayed is None


def test_fleet_limits_with_one_slot(scheduler: Scheduler) -> None:
    """The soft limit is four times the capacity, at least 8; the hard limit is twice that. One job runs, so the ninth
    makes a depth of eight."""
    scheduler.set_queue_limits(AUTO)
    responses = [submit_jobs(scheduler) for _ in range(19)]
    assert [isinstance(outcome, AcceptedSubmit) for outcome, _ in responses] == [True] * 17 + [False] * 2
    assert [delayed is not None for _, delayed in responses] == [False] * 8 + [True] * 9 + [False] * 2
    assert responses[8][1] == DelayWarning(
        depth=QueueDepth(total=8),
        limits=DepthLimits(soft=8, hard=16),
        message="Queue delayed; respecting caps: 8 ready",
    )
    deferred = responses[17][0]
    assert isinstance(deferred, DeferredSubmit)
    assert (deferred.depth, deferred.limits) == (QueueDepth(total=16), DepthLimits(soft=8, hard=16))
    assert deferred.message.startswith("the queue is full, 16 of 16 ready; nothing was stored: try again later")


def test_deferred_submit_leaves_no_trace_and_can_be_repeated(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    scheduler.set_queue_limits(QueueLimit(hard=1))
    fill(scheduler, 2)
    before = table_contents(run_sql)
    new = {"env": {"NEW": "1"}, "inherit_env": False, "type": "new", "unique": "k", "flow": "f"}
    assert isinstance(submit_jobs(scheduler, new)[0], DeferredSubmit)
    assert table_contents(run_sql) == before
    scheduler.end_run(scheduler.started_jobs()[0])
    result = submit_jobs(scheduler, new)[0]
    assert isinstance(result, AcceptedSubmit)
    assert result.jobs == [3], "no job number was used"


def test_duplicate_is_checked_before_the_limit(scheduler: Scheduler) -> None:
    scheduler.set_queue_limits(QueueLimit(hard=1))
    fill(scheduler, 1)
    result = submit_jobs(scheduler, {"unique": "k"})[0]
    assert isinstance(result, AcceptedSubmit)
    assert submit_jobs(scheduler, {"unique": "k"})[0] == DuplicateSubmit(active={"k": result.jobs[0]})


def test_invalid_submit_is_refused_before_the_limit(scheduler: Scheduler) -> None:
    scheduler.set_queue_limits(QueueLimit(hard=1))
    fill(scheduler, 2)
    with pytest.raises(InvalidInput, match="set `flow` too"):
        submit_jobs(scheduler, {"phase": "p"})


def test_batch_is_accepted_or_deferred_as_a_whole(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    scheduler.set_queue_limits(QueueLimit(soft=5, hard=10))
    result, delayed = submit_jobs(scheduler, *[{}] * 30)
    assert isinstance(result, AcceptedSubmit)
    assert len(result.jobs) == 30
    assert delayed is not None
    assert delayed.depth.total == 29
    before = table_contents(run_sql)
    assert isinstance(submit_jobs(scheduler, *[{}] * 3)[0], DeferredSubmit)
    assert table_contents(run_sql) == before


def test_flow_has_its_own_limits(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 4})
    scheduler.set_queue_limits(plan=QueueLimit(soft=2, hard=3), build=AUTO)
    fill(scheduler, 3, flow="plan")  # one of them runs
    result, delayed = submit_jobs(scheduler, {"flow": "plan"})
    assert isinstance(result, AcceptedSubmit)
    assert delayed is not None
    assert delayed.message == "Queue delayed; respecting caps: 3 ready (by flow: plan 3)"
    deferred, _ = submit_jobs(scheduler, {"flow": "plan"})
    assert isinstance(deferred, DeferredSubmit)
    assert deferred.message.startswith("the queue of flow plan is full, 3 of 3 ready")
    assert deferred.limits == DepthLimits(), "all jobs together have no limit"
    for flow in ("build", "other", None):
        result, delayed = submit_jobs(scheduler, {"flow": flow})
        assert isinstance(result, AcceptedSubmit), flow
        assert delayed is None, flow
    assert isinstance(submit_jobs(scheduler, {"flow": "build"}, {"flow": "plan"})[0], DeferredSubmit), (
        "a batch is deferred for one of its flows"
    )


def test_jobs_of_other_flows_do_not_count(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 0})
    scheduler.set_queue_limits(plan=QueueLimit(soft=2, hard=3))
    fill(scheduler, 10, flow="other")
    responses = [submit_jobs(scheduler, {"flow": "plan"}) for _ in range(4)]
    assert [isinstance(outcome, AcceptedSubmit) for outcome, _ in responses] == [True, True, True, False]
    assert [delayed is not None for _, delayed in responses] == [False, True, True, False]


def test_auto_limit_of_flow_follows_its_pool(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "flow__plan": 3, "flow__free": -1})
    scheduler.set_queue_limits(AUTO, plan=AUTO, other=AUTO, free=AUTO)
    limits, queue = scheduler.settings.pool_sizes, scheduler.settings.queue
    assert queue.resolve_for_flows(["plan", "other", "free"], limits) == {
        "plan": DepthLimits(soft=12, hard=24),
        "other": DepthLimits(soft=8, hard=16),
    }


def test_raised_limit_counts_immediately(scheduler: Scheduler) -> None:
    """Pools can be enlarged at run time; the limits are then computed again."""
    scheduler.set_queue_limits(AUTO)
    fill(scheduler, 17)
    assert isinstance(submit_jobs(scheduler)[0], DeferredSubmit)
    scheduler.set_pools(**{"global": 5})
    result, delayed = submit_jobs(scheduler)
    assert isinstance(result, AcceptedSubmit), "five run, twelve are ready, and the limit is forty"
    assert delayed is None
    scheduler.set_pools(**{"global": -1})
    assert isinstance(submit_jobs(scheduler)[0], AcceptedSubmit)


def test_waiting_jobs_count_when_they_are_ready(scheduler: Scheduler) -> None:
    scheduler.set_queue_limits(QueueLimit(hard=3))
    first = scheduler.submit(locks=["key"])
    fill(scheduler, 20, after=[{"job": f"job-{first}"}])
    fill(scheduler, 20, delay="1h")
    fill(scheduler, 20, locks=[{"key": "key"}])
    assert scheduler.reader.queue.depth() == QueueDepth(total=0)
    scheduler.end_run(first)
    assert scheduler.reader.queue.depth().total == 20
    assert isinstance(submit_jobs(scheduler)[0], DeferredSubmit)


def test_retries_and_rewinds_are_not_limited(scheduler: Scheduler) -> None:
    chain = scheduler.submit(retries=1, unique="k")
    scheduler.end_run(chain, 1)
    scheduler.set_queue_limits(QueueLimit(soft=1, hard=1))
    blocker = scheduler.submit()
    failed = scheduler.submit()
    assert isinstance(submit_jobs(scheduler)[0], DeferredSubmit)
    scheduler.clock.advance(minutes=5)
    scheduler.run_turns()
    assert scheduler.reader.queue.depth().total == 2, "the retry is due, and ready"
    scheduler.end_run(blocker)
    running = scheduler.started_jobs()[-1]
    scheduler.end_run(running, 1)
    scheduler.run_request(lambda tx: retry(tx, f"job-{running}", actor="me"))
    scheduler.rewind(blocker)
    assert scheduler.status(blocker) is Status.QUEUED
    assert failed in scheduler.drain()


def test_each_submit_of_a_turn_counts_those_before_it(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    scheduler.set_pools(**{"global": 0})
    scheduler.set_queue_limits(QueueLimit(soft=3, hard=5))
    responses: list[Any] = []

    def request() -> TurnRequest[SubmitOutcome]:
        act = partial(submit, submissions=[Submission(command=["true"])], default_environment=ENVIRONMENT, actor="me")
        return TurnRequest(act, responses.append, with_warnings)  # type: ignore[arg-type]

    scheduler.engine.turn([request() for _ in range(20)])
    assert [type(outcome).__name__ for outcome, _ in responses] == ["AcceptedSubmit"] * 5 + ["DeferredSubmit"] * 15
    assert [delayed is not None for _, delayed in responses] == [True] * 5 + [False] * 15, (
        "all warnings are of the end of the turn"
    )
    assert run_sql("SELECT count(*) FROM job") == [(5,)]


def test_job_that_starts_immediately_gets_no_warning(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    scheduler.set_queue_limits(QueueLimit(soft=1, hard=1))
    assert [submit_jobs(scheduler)[1] is None for _ in range(3)] == [True, True, False]


def test_submit_without_limits_does_not_count_the_queue(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    database, statements = scheduler.session._db, list[str]()
    rows = database.rows

    def record(name: str, /, **values: Any) -> Any:
        statements.append(name)
        return rows(name, **values)

    monkeypatch.setattr(database, "rows", record)
    submit_jobs(scheduler, {"flow": "f"})
    scheduler.set_queue_limits(other=QueueLimit(soft=1, hard=1))
    submit_jobs(scheduler, {"flow": "f"})
    assert "flow_depths" not in statements
    scheduler.set_queue_limits(QueueLimit(hard=100))
    submit_jobs(scheduler)
    assert statements.count("flow_depths") == 1
    scheduler.set_queue_limits(QueueLimit(soft=100))
    submit_jobs(scheduler)
    assert statements.count("flow_depths") == 2


def test_jobs_that_start_in_a_turn_do_not_defer_others_of_it(make_scheduler: Callable[..., Scheduler]) -> None:
    """How many submits share a turn is chance, and must not decide."""
    scheduler = make_scheduler(**{"global": 4})
    scheduler.set_queue_limits(QueueLimit(hard=2))
    responses: list[SubmitOutcome] = []
    act = partial(submit, submissions=[Submission(command=["true"])], default_environment=ENVIRONMENT, actor="me")
    scheduler.engine.turn([TurnRequest(act, responses.append) for _ in range(8)])
    assert [type(outcome) for outcome in responses] == [AcceptedSubmit] * 6 + [DeferredSubmit] * 2
    assert len(scheduler.started_jobs()) == 4


@pytest.mark.parametrize(
    ("fields", "accepted"), [({"dispatch_interval": "manual"}, 2), ({"spawn_delay": timedelta(minutes=1)}, 2), ({}, 3)]
)
def test_jobs_that_cannot_start_in_their_turn_count(
    make_scheduler: Callable[..., Scheduler], fields: dict[str, Any], accepted: int
) -> None:
    scheduler = make_scheduler(**{"global": 9})
    scheduler.configure(**fields)
    scheduler.set_queue_limits(QueueLimit(hard=2))
    responses: list[SubmitOutcome] = []
    act = partial(
        submit, submissions=[Submission(command=["true"], flow="f")], default_environment=ENVIRONMENT, actor="me"
    )
    scheduler.engine.turn([TurnRequest(act, responses.append) for _ in range(6)])
    assert [type(outcome) for outcome in responses] == [AcceptedSubmit] * accepted + [DeferredSubmit] * (6 - accepted)


@pytest.mark.parametrize(
    "invalid_fields",
    [
        {"timeout": "abc"},
        {"idle_timeout": "0s"},
        {"delay": "zz"},
        {"locks": [{"key": "x" * 300}]},
        {"retry": "nosuch"},
        {"retries": -1},
        {"cwd": "here"},
        {"env": {"A=B": "c"}},
    ],
)
def test_invalid_field_is_refused_instead_of_deferred(scheduler: Scheduler, invalid_fields: dict[str, Any]) -> None:
    scheduler.set_queue_limits(QueueLimit(hard=1))
    fill(scheduler, 1, unique="a")
    fill(scheduler, 1)
    for body in (invalid_fields, {**invalid_fields, "unique": "a"}):
        with pytest.raises(InvalidInput):
            submit_jobs(scheduler, body)
