"""`edit`: before dispatch only, never edges, completely or not at all (INV-001)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from rota.errors import Conflict, InvalidInput, NotFound
from rota.executor.port import StartFailure
from rota.ids import JobId
from rota.jobs.edit import EditOutcome, edit, parse_edit
from rota.kernel.retry import RetryPolicy
from rota.kernel.status import Status
from tests.harness import Scheduler


def edit_job(scheduler: Scheduler, job: JobId, **changes: Any) -> EditOutcome:
    request = parse_edit(json.dumps(changes).encode())
    result: EditOutcome = scheduler.run_request(lambda tx: edit(tx, job, request, actor="ann"))
    return result


def test_edited_job_runs_with_new_values(idle_scheduler: Scheduler) -> None:
    job = idle_scheduler.submit("one", params={"a": 1, "b": 2}, timeout="1h")
    result = edit_job(
        idle_scheduler,
        job,
        command=["two", "x"],
        set_params={"c": None, "a": [3]},
        unset_params=["b", "z"],
        name="other",
        priority=7,
        timeout=None,
        idle_timeout="5s",
        retries=2,
        delay="1m",
    )
    assert result.fields == ["command", "idle_timeout", "name", "not_before", "params", "priority", "retry", "timeout"]
    assert result.warnings == ["it has no param 'z'"]
    event = idle_scheduler.events[-1]
    assert (event.kind, event.cause, event.actor, event.job) == ("job.edited", "edit", "ann", job)
    assert event.data == {"fields": result.fields}
    edited = idle_scheduler.job(job)
    assert (edited.priority, edited.position, edited.spec.retry) == (7, 100, RetryPolicy(max_retries=2))
    idle_scheduler.set_pools(**{"global": 1})
    assert idle_scheduler.started_jobs() == []
    idle_scheduler.clock.advance(minutes=1)
    idle_scheduler.run_turns()
    (start,) = idle_scheduler.executor.starts
    assert (start.argv, start.timeout, start.idle_timeout) == (("two", "x"), None, 5.0)
    assert json.loads(start.overlay["ROTA_PARAMS"]) == {"a": [3], "c": None}


def test_edit_replaces_all_params(idle_scheduler: Scheduler) -> None:
    job = idle_scheduler.submit(params={"a": 1, "b": 2})
    edit_job(idle_scheduler, job, params={"c": 3})
    assert idle_scheduler.job(job).spec.params == {"c": 3}
    edit_job(idle_scheduler, job, params={"d": 4}, set_params={"e": 5}, unset_params=["d"])
    assert idle_scheduler.job(job).spec.params == {"e": 5}


def test_edit_without_change_emits_no_event(idle_scheduler: Scheduler) -> None:
    job = idle_scheduler.submit(name="same", priority=1)
    count = len(idle_scheduler.events)
    assert edit_job(idle_scheduler, job, name="same", priority=1, delay=None, set_params={}).fields == []
    assert len(idle_scheduler.events) == count


@pytest.mark.parametrize(
    ("field", "advice"),
    [
        ("after", "submit it again"),
        ("needs", "submit it again"),
        ("produces", "submit it again"),
        ("pin", "submit it"),
        ("locks", "submit it again"),
        ("type", "fixed at submit"),
        ("position", "rota move JOB --first"),
        ("status", "rota cancel"),
        ("not_before", "use `delay`"),
        ("colour", "editable fields are command, params"),
    ],
)
def test_fixed_field_is_refused_with_advice(field: str, advice: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^{field} cannot be edited: .*{advice}"):
        parse_edit(json.dumps({"name": "x", field: []}).encode())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "the edit is empty"),
        ({"command": []}, "the command is empty"),
        ({"priority": 10**9}, "range"),
        ({"timeout": "0s"}, "longer than zero"),
        ({"timeout": "soon"}, "not a duration"),
        ({"delay": "x"}, "not a"),
        ({"retries": -1}, "from 0 to"),
        ({"retry": "nope"}, "unknown retry policy: 'nope'"),
        ({"name": "\0"}, "NUL"),
        ({"retry": None, "retries": 2}, "means no retries"),
    ],
)
def test_invalid_edit_is_refused_without_changes(idle_scheduler: Scheduler, changes: dict[str, Any], text: str) -> None:
    job = idle_scheduler.submit(name="was")
    before, count = idle_scheduler.job(job), len(idle_scheduler.events)
    with pytest.raises(InvalidInput, match=text):
        edit_job(idle_scheduler, job, **({"name": "other", **changes} if changes else {}))
    assert (idle_scheduler.job(job), len(idle_scheduler.events)) == (before, count)
    with pytest.raises(NotFound):
        edit_job(idle_scheduler, JobId(99), name="x")


def test_inv_001_edit_after_dispatch_is_refused(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    with pytest.raises(Conflict, match=r"^Cannot modify params after dispatch: job-1 is RUNNING; only waiting jobs"):
        edit_job(scheduler, job, params={"a": 1})
    with pytest.raises(Conflict, match=r"^Cannot modify name, priority after dispatch"):
        edit_job(scheduler, job, name="x", priority=1)
    scheduler.end_run(job)
    with pytest.raises(Conflict, match=r"^Cannot modify name after dispatch: job-1 is COMPLETED"):
        edit_job(scheduler, job, name="x")
    never = scheduler.submit(after=[scheduler.submit()])
    scheduler.cancel(never)
    with pytest.raises(Conflict, match=r"^job-3 has ended \(CANCELLED\); only waiting jobs can be changed"):
        edit_job(scheduler, never, name="x")


def test_inv_001_rewound_job_keeps_params_but_other_fields_can_change(scheduler: Scheduler) -> None:
    job = scheduler.submit("one")
    scheduler.end_run(job)
    scheduler.set_pools(**{"global": 0})
    scheduler.rewind(job)
    with pytest.raises(
        Conflict, match=r"^Cannot modify params after dispatch: job-1 has run before; .*rota cancel job-1"
    ):
        edit_job(scheduler, job, params={"a": 1}, name="x")
    assert scheduler.job(job).spec.name is None
    result = edit_job(scheduler, job, name="x", priority=3, timeout="5s", delay="1h", retries=4)
    assert result.fields == ["name", "not_before", "priority", "retry", "timeout"]
    assert scheduler.wait_detail(job) == "not before 2026-01-01T01:00:00Z"


def test_edit_of_retry_keeps_earlier_jobs_of_chain(scheduler: Scheduler) -> None:
    failed = scheduler.submit("one", retries=3, params={"a": 1}, name="was")
    scheduler.end_run(failed, 1)
    retry = JobId(2)
    before = scheduler.job(failed)
    with pytest.raises(
        Conflict, match=r"after dispatch: job-1 is FAILED; job-2 of its chain is QUEUED, and can be changed"
    ):
        edit_job(scheduler, failed, params={"a": 2})
    edit_job(scheduler, retry, command=["two"], params={"a": 2}, name="now", delay=None, retries=1)
    assert scheduler.job(failed) == before
    assert scheduler.executor.starts[-1].argv == ("two",), "it starts in the same turn"
    with pytest.raises(Conflict, match="job-2 of its chain is RUNNING, and can no longer be changed"):
        edit_job(scheduler, failed, params={"a": 2})
    scheduler.end_run(retry, 1)
    assert scheduler.job(retry).permanently_failed, "it had one retry"


def test_retries_keep_delays_and_policy_name_replaces_them(idle_scheduler: Scheduler) -> None:
    job = idle_scheduler.submit(flow="f", retry="default")
    edit_job(idle_scheduler, job, retries=2)
    assert idle_scheduler.job(job).spec.retry == RetryPolicy(max_retries=2)
    job = idle_scheduler.submit(flow="f")
    edit_job(idle_scheduler, job, retries=2)
    assert idle_scheduler.job(job).spec.retry == RetryPolicy(max_retries=2, base=timedelta(seconds=30))
    edit_job(idle_scheduler, job, retry="default")
    assert idle_scheduler.job(job).spec.retry == RetryPolicy()
    edit_job(idle_scheduler, job, retry="fleet", retries=9)
    assert idle_scheduler.job(job).spec.retry == RetryPolicy(max_retries=9, base=timedelta(seconds=30))
    edit_job(idle_scheduler, job, retry=None)
    assert idle_scheduler.job(job).spec.retry is None


def test_edited_delay_starts_or_postpones_job(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="1h")
    edit_job(scheduler, job, delay="10s")
    assert scheduler.engine.next_due == scheduler.clock.moment + timedelta(seconds=10)
    edit_job(scheduler, job, delay=None)
    assert scheduler.started_jobs() == [job]
    ready = scheduler.submit(locks=["repo"])
    behind = scheduler.submit(locks=["repo"])
    edit_job(scheduler, ready, delay="1h")
    assert scheduler.wait_detail(ready) == "not before 2026-01-01T01:00:00Z"
    assert scheduler.status(behind) is Status.QUEUED, "it gets the lock next"
    scheduler.end_run(job)
    assert scheduler.started_jobs() == [job, behind]


def test_edited_delay_of_waiting_job_counts_after_predecessor(scheduler: Scheduler) -> None:
    first = scheduler.submit()
    job = scheduler.submit(after=[first])
    edit_job(scheduler, job, delay="10s")
    assert scheduler.status(job) is Status.WAITING_ON_DEPS
    scheduler.end_run(first)
    assert scheduler.wait_detail(job) == "not before 2026-01-01T00:00:10Z"


def test_inv_004_edited_priority_takes_effect_in_queue_and_lock_queues(scheduler: Scheduler) -> None:
    blocker = scheduler.submit()
    low, locked, last = scheduler.submit(), scheduler.submit(locks=["repo"]), scheduler.submit(locks=["repo"])
    assert scheduler.status(last) is Status.WAITING_ON_LOCKS
    edit_job(scheduler, last, priority=5)
    assert [scheduler.status(job) for job in (locked, last)] == [Status.WAITING_ON_LOCKS, Status.QUEUED]
    edit_job(scheduler, low, priority=-1)
    assert scheduler.drain() == [blocker, last, locked, low]


def test_job_with_failed_start_can_be_edited(scheduler: Scheduler) -> None:
    job = scheduler.submit("one")
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no such program"))
    edit_job(scheduler, job, command=["two"], delay=None)
    assert scheduler.executor.starts[-1].argv == ("two",)


@pytest.mark.both_databases
def test_edit_survives_crash(idle_scheduler: Scheduler) -> None:
    job = idle_scheduler.submit("one")
    edit_job(idle_scheduler, job, command=["two"], priority=3)
    idle_scheduler.crash()
    idle_scheduler.set_pools(**{"global": 1})
    assert idle_scheduler.executor.starts[-1].argv == ("two",)
