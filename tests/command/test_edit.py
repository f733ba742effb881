"""`edit`: only before dispatch, never edges, whole or not at all (INV-001)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from harness import Scheduler
from rota.command.edit import Edited, edit, parse
from rota.core.retry import RetryPolicy
from rota.core.status import Status
from rota.errors import Conflict, InvalidInput, NotFound
from rota.executor.port import FailedToStart
from rota.ids import JobId

pytestmark = pytest.mark.usefixtures("whole_at_the_end")


def edited(scheduler: Scheduler, job: JobId, **changes: Any) -> Edited:
    wanted = parse(json.dumps(changes).encode())
    told: Edited = scheduler.do(lambda work: edit(work, job, wanted, actor="ann"))
    return told


def test_what_was_asked_last_is_what_runs(closed: Scheduler) -> None:
    job = closed.submit("one", params={"a": 1, "b": 2}, timeout="1h")
    told = edited(
        closed, job, command=["two", "x"], set_params={"c": None, "a": [3]}, unset_params=["b", "z"], name="other",
        priority=7, timeout=None, idle_timeout="5s", retries=2, delay="1m",
    )  # fmt: skip
    assert told.fields == ["command", "idle_timeout", "name", "not_before", "params", "priority", "retry", "timeout"]
    assert told.warnings == ["it has no param 'z'"]
    event = closed.events[-1]
    assert (event.kind, event.cause, event.actor, event.job) == ("job.edited", "edit", "ann", job)
    assert event.data == {"fields": told.fields}
    found = closed.job(job)
    assert (found.priority, found.position, found.spec.retry) == (7, 100, RetryPolicy(max_retries=2))
    closed.set_pools(**{"global": 1})
    assert closed.started() == []
    closed.clock.advance(minutes=1)
    closed.turn()
    (start,) = closed.executor.starts
    assert (start.argv, start.timeout, start.idle_timeout) == (("two", "x"), None, 5.0)
    assert json.loads(start.overlay["ROTA_PARAMS"]) == {"a": [3], "c": None}


def test_params_are_replaced_as_a_whole(closed: Scheduler) -> None:
    job = closed.submit(params={"a": 1, "b": 2})
    edited(closed, job, params={"c": 3})
    assert closed.job(job).spec.params == {"c": 3}
    edited(closed, job, params={"d": 4}, set_params={"e": 5}, unset_params=["d"])
    assert closed.job(job).spec.params == {"e": 5}


def test_an_edit_that_changes_nothing_says_nothing(closed: Scheduler) -> None:
    job = closed.submit(name="same", priority=1)
    count = len(closed.events)
    assert edited(closed, job, name="same", priority=1, delay=None, set_params={}).fields == []
    assert len(closed.events) == count


@pytest.mark.parametrize(
    ("field", "advice"),
    [
        ("after", "submit it anew"), ("needs", "submit it anew"), ("produces", "submit it anew"), ("pin", "submit it"),
        ("locks", "submit it anew"), ("type", "fixed at submit"), ("position", "rota move JOB --first"),
        ("status", "rota cancel"), ("not_before", "use `delay`"), ("colour", "an edit takes command, params"),
    ],
)  # fmt: skip
def test_what_cannot_be_edited_is_refused_by_name_with_what_to_do(field: str, advice: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^{field} cannot be edited: .*{advice}"):
        parse(json.dumps({"name": "x", field: []}).encode())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "nothing is to be changed"), ({"command": []}, "the command is empty"), ({"priority": 10**9}, "range"),
        ({"timeout": "0s"}, "longer than nothing"), ({"timeout": "soon"}, "not a duration"), ({"delay": "x"}, "not a"),
        ({"retries": -1}, "from 0 to"), ({"retry": "nope"}, "unknown retry policy: 'nope'"), ({"name": "\0"}, "NUL"),
        ({"retry": None, "retries": 2}, "means no retries"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_and_nothing_is_half_stored(
    closed: Scheduler, changes: dict[str, Any], text: str
) -> None:
    job = closed.submit(name="was")
    before, count = closed.job(job), len(closed.events)
    with pytest.raises(InvalidInput, match=text):
        edited(closed, job, **({"name": "other", **changes} if changes else {}))
    assert (closed.job(job), len(closed.events)) == (before, count)
    with pytest.raises(NotFound):
        edited(closed, JobId(99), name="x")


def test_inv_001_after_dispatch_nothing_is_edited(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    with pytest.raises(Conflict, match=r"^Cannot modify params after dispatch: job-1 is RUNNING; only what waits"):
        edited(scheduler, job, params={"a": 1})
    with pytest.raises(Conflict, match=r"^Cannot modify name, priority after dispatch"):
        edited(scheduler, job, name="x", priority=1)
    scheduler.end(job)
    with pytest.raises(Conflict, match=r"^Cannot modify name after dispatch: job-1 is COMPLETED"):
        edited(scheduler, job, name="x")
    never = scheduler.submit(after=[scheduler.submit()])
    scheduler.cancel(never)
    with pytest.raises(Conflict, match=r"^job-3 has ended \(CANCELLED\); only what waits can be changed"):
        edited(scheduler, never, name="x")


def test_inv_001_one_that_was_rewound_keeps_its_params_and_may_change_the_rest(scheduler: Scheduler) -> None:
    job = scheduler.submit("one")
    scheduler.end(job)
    scheduler.set_pools(**{"global": 0})
    scheduler.rewind(job)
    with pytest.raises(
        Conflict, match=r"^Cannot modify params after dispatch: job-1 has run before; .*rota cancel job-1"
    ):
        edited(scheduler, job, params={"a": 1}, name="x")
    assert scheduler.job(job).spec.name is None
    told = edited(scheduler, job, name="x", priority=3, timeout="5s", delay="1h", retries=4)
    assert told.fields == ["name", "not_before", "priority", "retry", "timeout"]
    assert scheduler.detail(job) == "not before 2026-01-01T01:00:00Z"


def test_a_retry_is_edited_and_what_its_chain_was_asked_before_stays(scheduler: Scheduler) -> None:
    failed = scheduler.submit("one", retries=3, params={"a": 1}, name="was")
    scheduler.end(failed, 1)
    retry = JobId(2)
    before = scheduler.job(failed)
    with pytest.raises(
        Conflict, match=r"after dispatch: job-1 is FAILED; job-2 of its chain is QUEUED, and can be changed"
    ):
        edited(scheduler, failed, params={"a": 2})
    edited(scheduler, retry, command=["two"], params={"a": 2}, name="now", delay=None, retries=1)
    assert scheduler.job(failed) == before
    assert scheduler.executor.starts[-1].argv == ("two",), "and it started in the same call"
    with pytest.raises(Conflict, match="job-2 of its chain is RUNNING, and can be changed no more"):
        edited(scheduler, failed, params={"a": 2})
    scheduler.end(retry, 1)
    assert scheduler.job(retry).permanently_failed, "one retry was all"


def test_retries_keep_the_delays_the_job_has_and_a_name_brings_its_own(closed: Scheduler) -> None:
    job = closed.submit(flow="f", retry="default")
    edited(closed, job, retries=2)
    assert closed.job(job).spec.retry == RetryPolicy(max_retries=2)
    job = closed.submit(flow="f")
    edited(closed, job, retries=2)
    assert closed.job(job).spec.retry == RetryPolicy(max_retries=2, base=timedelta(seconds=30))
    edited(closed, job, retry="default")
    assert closed.job(job).spec.retry == RetryPolicy()
    edited(closed, job, retry="fleet", retries=9)
    assert closed.job(job).spec.retry == RetryPolicy(max_retries=9, base=timedelta(seconds=30))
    edited(closed, job, retry=None)
    assert closed.job(job).spec.retry is None


def test_a_shorter_delay_starts_it_and_a_longer_one_takes_it_out_of_its_lane(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="1h")
    edited(scheduler, job, delay="10s")
    assert scheduler.engine.next_due == scheduler.clock.moment + timedelta(seconds=10)
    edited(scheduler, job, delay=None)
    assert scheduler.started() == [job]
    ready = scheduler.submit(locks=["repo"])
    behind = scheduler.submit(locks=["repo"])
    edited(scheduler, ready, delay="1h")
    assert scheduler.detail(ready) == "not before 2026-01-01T01:00:00Z"
    assert scheduler.status(behind) is Status.QUEUED, "it has the turn now"
    scheduler.end(job)
    assert scheduler.started() == [job, behind]


def test_a_delay_of_one_that_waits_for_another_counts_when_that_has_ended(scheduler: Scheduler) -> None:
    first = scheduler.submit()
    job = scheduler.submit(after=[first])
    edited(scheduler, job, delay="10s")
    assert scheduler.status(job) is Status.WAITING_ON_DEPS
    scheduler.end(first)
    assert scheduler.detail(job) == "not before 2026-01-01T00:00:10Z"


def test_inv_004_a_priority_counts_at_once_in_the_queue_and_in_the_queues_of_locks(scheduler: Scheduler) -> None:
    blocker = scheduler.submit()
    low, locked, last = scheduler.submit(), scheduler.submit(locks=["repo"]), scheduler.submit(locks=["repo"])
    assert scheduler.status(last) is Status.WAITING_ON_LOCKS
    edited(scheduler, last, priority=5)
    assert [scheduler.status(job) for job in (locked, last)] == [Status.WAITING_ON_LOCKS, Status.QUEUED]
    edited(scheduler, low, priority=-1)
    assert scheduler.drain() == [blocker, last, locked, low]


def test_a_claim_that_came_to_nothing_can_be_edited(scheduler: Scheduler) -> None:
    job = scheduler.submit("one")
    scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no such program"))
    edited(scheduler, job, command=["two"], delay=None)
    assert scheduler.executor.starts[-1].argv == ("two",)


def test_an_edit_survives_a_crash(closed: Scheduler) -> None:
    job = closed.submit("one")
    edited(closed, job, command=["two"], priority=3)
    closed.crash()
    closed.set_pools(**{"global": 1})
    assert closed.executor.starts[-1].argv == ("two",)
