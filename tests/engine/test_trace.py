"""A job's trace reaches every start of its chain, and is stored once for the chain and never as an environment."""

from __future__ import annotations

from typing import Any

from harness import Raw, Scheduler
from rota.command.slot import SlotWanted, reserve
from rota.command.submission import Submission, Surroundings
from rota.command.submit import submit
from rota.core.slot import owner_of
from rota.ids import JobId

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = {"TRACEPARENT": PARENT, "TRACESTATE": "a=1"}


def _submit(scheduler: Scheduler, *, trace: dict[str, str], **fields: Any) -> JobId:
    around = Surroundings(cwd="/", variables={"PATH": "/bin"}, trace=trace)
    wanted = [Submission(command=["true"], **fields)]
    return scheduler.do(lambda work: submit(work, wanted, around, actor=None)).jobs[0]  # type: ignore[no-any-return]


def _traces(scheduler: Scheduler) -> list[dict[str, str]]:
    """Of what was started, each."""
    return [
        {name: value for name, value in start.overlay.items() if name.startswith("TRACE")}
        for start in scheduler.executor.starts
    ]


def test_it_survives_the_queue_a_restart_and_a_retry(scheduler: Scheduler) -> None:
    scheduler.pause()
    job = _submit(scheduler, trace=TRACE, retries=1)
    scheduler.crash()
    scheduler.resume()
    scheduler.start(job)
    scheduler.end(job, 1)
    scheduler.clock.advance(hours=2)
    scheduler.turn()
    assert [start.job for start in scheduler.executor.starts] == [job, job + 1]
    assert _traces(scheduler) == [TRACE, TRACE]


def test_an_edit_leaves_it_also_of_a_job_that_shared_its_chains_spec(scheduler: Scheduler) -> None:
    scheduler.pause()
    job = _submit(scheduler, trace=TRACE, retries=1)
    _rename(scheduler, job)
    scheduler.resume()
    scheduler.start(job)
    scheduler.end(job, 1)
    _rename(scheduler, JobId(job + 1))
    scheduler.clock.advance(hours=2)
    scheduler.turn()
    assert _traces(scheduler) == [TRACE, TRACE]


def _rename(scheduler: Scheduler, job: JobId) -> None:
    found = scheduler.reader.job(job)
    assert found is not None
    assert scheduler.do(lambda work: work.session.edit(found, {"name": f"n{job}"}, now=work.now, actor=None))


def test_a_trace_of_its_own_makes_no_environment_of_its_own(make_scheduler: Any, raw: Raw) -> None:
    scheduler = make_scheduler(**{"global": 100})
    for n in range(20):
        trace = {"TRACEPARENT": f"00-{n + 1:032x}-{n + 1:016x}-01"}
        _submit(scheduler, trace=trace)
        _submit(scheduler, trace={}, env={**trace, "PATH": "/bin"}, inherit_env=False)
    assert raw("SELECT count(*) FROM surroundings") == [(1,)]
    traces = _traces(scheduler)
    assert traces[0::2] == traces[1::2], "as a header, or in the environment that the caller brings"
    assert len({each["TRACEPARENT"] for each in traces}) == 20


def test_the_jobs_own_goes_before_that_of_its_request(scheduler: Scheduler) -> None:
    _submit(scheduler, trace=TRACE, env={"TRACEPARENT": "whatever it likes"})
    assert _traces(scheduler) == [{"TRACEPARENT": "whatever it likes"}]


def test_a_job_without_one_gets_none(scheduler: Scheduler, raw: Raw) -> None:
    scheduler.submit()
    assert _traces(scheduler) == [{}]
    assert raw("SELECT trace FROM spec") == [(None,)]


def test_a_record_that_cannot_be_read_is_no_trace(make_scheduler: Any, raw: Raw) -> None:
    scheduler = make_scheduler(**{"global": 0})
    job = _submit(scheduler, trace=TRACE)
    raw("UPDATE spec SET trace = '{'")
    scheduler.set_pools(**{"global": 1})
    assert _traces(scheduler) == [{}]
    assert scheduler.status(job).value == "DISPATCHED"


def test_a_direct_execution_has_one_too(scheduler: Scheduler) -> None:
    around = Surroundings(cwd="/", variables={"PATH": "/bin"}, trace=TRACE)
    told = scheduler.do(lambda work: reserve(work, SlotWanted(command=["true"]), around, actor="tester"))
    assert [start.job for start in scheduler.executor.starts] == [owner_of(told.slot)]
    assert _traces(scheduler) == [TRACE]
