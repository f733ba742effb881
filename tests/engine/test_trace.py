"""Trace context of a job: reaches every start of its chain, is stored once per chain, and never as an environment."""

from __future__ import annotations

from typing import Any

from rota.direct.commands import ReservationRequest, reserve
from rota.ids import JobId
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import submit
from rota.kernel.reservations import lock_owner
from tests.harness import Scheduler, SqlRunner

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = {"TRACEPARENT": PARENT, "TRACESTATE": "a=1"}


def _submit(scheduler: Scheduler, *, trace: dict[str, str], **fields: Any) -> JobId:
    environment = DefaultEnvironment(cwd="/", variables={"PATH": "/bin"}, trace=trace)
    request = [Submission(command=["true"], **fields)]
    return scheduler.run_request(lambda tx: submit(tx, request, environment, actor=None)).jobs[0]  # type: ignore[no-any-return]


def _traces(scheduler: Scheduler) -> list[dict[str, str]]:
    """Return the trace variables of each start."""
    return [
        {name: value for name, value in start.overlay.items() if name.startswith("TRACE")}
        for start in scheduler.executor.starts
    ]


def test_trace_survives_queue_restart_and_retry(scheduler: Scheduler) -> None:
    scheduler.pause()
    job = _submit(scheduler, trace=TRACE, retries=1)
    scheduler.crash()
    scheduler.resume()
    scheduler.confirm_start(job)
    scheduler.end_run(job, 1)
    scheduler.clock.advance(hours=2)
    scheduler.run_turns()
    assert [start.job for start in scheduler.executor.starts] == [job, job + 1]
    assert _traces(scheduler) == [TRACE, TRACE]


def test_edit_keeps_the_trace_of_a_job_that_shared_its_spec(scheduler: Scheduler) -> None:
    scheduler.pause()
    job = _submit(scheduler, trace=TRACE, retries=1)
    _rename(scheduler, job)
    scheduler.resume()
    scheduler.confirm_start(job)
    scheduler.end_run(job, 1)
    _rename(scheduler, JobId(job + 1))
    scheduler.clock.advance(hours=2)
    scheduler.run_turns()
    assert _traces(scheduler) == [TRACE, TRACE]


def _rename(scheduler: Scheduler, job: JobId) -> None:
    record = scheduler.reader.jobs.find(job)
    assert record is not None
    assert scheduler.run_request(lambda tx: tx.jobs.edit(record, {"name": f"n{job}"}, now=tx.now, actor=None))


def test_different_traces_share_one_environment(make_scheduler: Any, run_sql: SqlRunner) -> None:
    scheduler = make_scheduler(**{"global": 100})
    for n in range(20):
        trace = {"TRACEPARENT": f"00-{n + 1:032x}-{n + 1:016x}-01"}
        _submit(scheduler, trace=trace)
        _submit(scheduler, trace={}, env={**trace, "PATH": "/bin"}, inherit_env=False)
    assert run_sql("SELECT count(*) FROM environment") == [(1,)]
    traces = _traces(scheduler)
    assert traces[0::2] == traces[1::2], "as a header, or in the environment of the caller"
    assert len({trace["TRACEPARENT"] for trace in traces}) == 20


def test_trace_of_the_job_overrides_that_of_its_request(scheduler: Scheduler) -> None:
    _submit(scheduler, trace=TRACE, env={"TRACEPARENT": "whatever it likes"})
    assert _traces(scheduler) == [{"TRACEPARENT": "whatever it likes"}]


def test_job_without_trace_gets_none(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    scheduler.submit()
    assert _traces(scheduler) == [{}]
    assert run_sql("SELECT trace FROM spec") == [(None,)]


def test_unreadable_trace_is_ignored(make_scheduler: Any, run_sql: SqlRunner) -> None:
    scheduler = make_scheduler(**{"global": 0})
    job = _submit(scheduler, trace=TRACE)
    run_sql("UPDATE spec SET trace = '{'")
    scheduler.set_pools(**{"global": 1})
    assert _traces(scheduler) == [{}]
    assert scheduler.status(job).value == "DISPATCHED"


def test_direct_execution_has_a_trace(scheduler: Scheduler) -> None:
    environment = DefaultEnvironment(cwd="/", variables={"PATH": "/bin"}, trace=TRACE)
    result = scheduler.run_request(
        lambda tx: reserve(tx, ReservationRequest(command=["true"]), environment, actor="tester")
    )
    assert [start.job for start in scheduler.executor.starts] == [lock_owner(result.reservation)]
    assert _traces(scheduler) == [TRACE]
