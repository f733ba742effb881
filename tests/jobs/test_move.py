"""`move` and `reorder`: within a priority, before dispatch, completely or not at all (DEC-005)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota.errors import Conflict, InvalidInput, NotFound, RotaError
from rota.ids import JobId, format_job_id
from rota.jobs.move import MoveOutcome, MoveRequest, move, reorder
from rota.jobs.queries import list_queue, show_job_with_place
from rota.jobs.result_schemas import QueuedJob
from rota.kernel.status import Status
from tests.db.invariants import check_store
from tests.harness import Scheduler, SqlRunner


def move_job(scheduler: Scheduler, job: JobId, **target: Any) -> MoveOutcome:
    request = msgspec.convert(
        {name: format_job_id(value) if name in ("before", "after") else value for name, value in target.items()},
        MoveRequest,
    )
    result: MoveOutcome = scheduler.run_request(lambda tx: move(tx, job, request, actor="ann"))
    return result


def reorder_jobs(scheduler: Scheduler, *jobs: JobId) -> MoveOutcome:
    result: MoveOutcome = scheduler.run_request(
        lambda tx: reorder(tx, [format_job_id(job) for job in jobs], actor="ann")
    )
    return result


def read_queue(scheduler: Scheduler) -> list[QueuedJob]:
    return list_queue(scheduler.reader, scheduler.view_context, limit=1000).jobs


def queue_order(scheduler: Scheduler) -> list[JobId]:
    return [JobId(int(queued.id.removeprefix("job-"))) for queued in read_queue(scheduler)]


@pytest.fixture
def jobs(idle_scheduler: Scheduler) -> list[JobId]:
    return [idle_scheduler.submit() for _ in range(5)]


@pytest.mark.parametrize(
    ("index", "target", "expected"),
    [
        (4, {"first": True}, [5, 1, 2, 3, 4]),
        (0, {"last": True}, [2, 3, 4, 5, 1]),
        (0, {"to": 3}, [2, 3, 1, 4, 5]),
        (4, {"to": 3}, [1, 2, 5, 3, 4]),
        (0, {"to": 5}, [2, 3, 4, 5, 1]),
        (3, {"to": 1}, [4, 1, 2, 3, 5]),
        (4, {"before": 2}, [1, 5, 2, 3, 4]),
        (0, {"before": 5}, [2, 3, 4, 1, 5]),
        (4, {"after": 1}, [1, 5, 2, 3, 4]),
        (0, {"after": 5}, [2, 3, 4, 5, 1]),
    ],
)
def test_dec_005_move_changes_queue_order(
    idle_scheduler: Scheduler, jobs: list[JobId], index: int, target: dict[str, Any], expected: list[int]
) -> None:
    assert move_job(idle_scheduler, jobs[index], **target).has_moved
    assert queue_order(idle_scheduler) == expected
    assert [queued.place for queued in read_queue(idle_scheduler)] == [1, 2, 3, 4, 5]
    assert not move_job(idle_scheduler, jobs[index], **target).has_moved, "it is in place already"
    event = idle_scheduler.events[-1]
    assert (event.kind, event.cause, event.actor, event.job) == ("job.moved", "move", "ann", jobs[index])
    assert event.data["position"] == idle_scheduler.job(jobs[index]).position
    idle_scheduler.set_pools(**{"global": 1})
    assert idle_scheduler.drain() == expected


def test_job_moved_last_precedes_later_submits(idle_scheduler: Scheduler, jobs: list[JobId]) -> None:
    for job in jobs * 20:
        move_job(idle_scheduler, job, last=True)
        assert queue_order(idle_scheduler)[-1] == job
    later = idle_scheduler.submit()
    assert queue_order(idle_scheduler) == [*jobs, later]
    move_job(idle_scheduler, jobs[0], last=True)
    assert queue_order(idle_scheduler) == [*jobs[1:], later, jobs[0]]


def test_move_first_stays_within_priority(idle_scheduler: Scheduler, jobs: list[JobId]) -> None:
    urgent = idle_scheduler.submit(priority=5)
    move_job(idle_scheduler, jobs[2], first=True)
    assert queue_order(idle_scheduler) == [urgent, 3, 1, 2, 4, 5]
    assert [queued.place for queued in read_queue(idle_scheduler)] == [1, 1, 2, 3, 4, 5]
    assert show_job_with_place(idle_scheduler.reader, jobs[0], idle_scheduler.view_context)[1] == 2


def test_exhausted_gaps_are_respaced(idle_scheduler: Scheduler, jobs: list[JobId], run_sql: SqlRunner) -> None:
    """Respacing covers all active jobs of the priority, running ones too, and keeps their order."""
    idle_scheduler.set_pools(**{"global": 1})
    idle_scheduler.confirm_start(jobs[0])
    apart = idle_scheduler.submit(type="x", locks=["own"])
    other = idle_scheduler.submit(priority=1, locks=["repo"])
    locked = idle_scheduler.submit(locks=["repo"])
    for n in range(12):
        move_job(idle_scheduler, jobs[3 + n % 2], after=jobs[1])
        assert queue_order(idle_scheduler)[1:3] == [2, 4 + n % 2]
        check_store(run_sql)
    assert [event.data for event in idle_scheduler.events if event.kind == "queue.renumbered"] == [
        {"priority": 0, "jobs": 7}
    ]
    assert idle_scheduler.job(other).position == 700
    assert queue_order(idle_scheduler) == [other, 2, 5, 4, 3, apart, locked]
    positions = [idle_scheduler.job(job).position for job in (jobs[0], *queue_order(idle_scheduler)[1:])]
    assert positions == sorted(positions)
    assert positions[-1] == 800, "the last job is directly before the next submit"
    later = idle_scheduler.submit()
    assert idle_scheduler.drain() == [jobs[0], other, 2, 5, 4, 3, apart, locked, later]


def test_job_moved_first_gets_lock_next(unlimited_scheduler: Scheduler) -> None:
    holder = unlimited_scheduler.submit(locks=["repo"])
    first, second, third = (unlimited_scheduler.submit(locks=["repo"]) for _ in range(3))
    move_job(unlimited_scheduler, third, first=True)
    assert unlimited_scheduler.drain() == [holder, third, first, second]


def test_job_moved_last_yields_lock_turn(scheduler: Scheduler) -> None:
    blocker = scheduler.submit()
    ready = scheduler.submit(locks=["repo"])
    waiting = scheduler.submit(locks=["repo"])
    assert [scheduler.status(job) for job in (ready, waiting)] == [Status.QUEUED, Status.WAITING_ON_LOCKS]
    move_job(scheduler, ready, last=True)
    assert [scheduler.status(job) for job in (ready, waiting)] == [Status.WAITING_ON_LOCKS, Status.QUEUED]
    move_job(scheduler, ready, before=waiting)
    assert scheduler.drain() == [blocker, ready, waiting]


def test_exclusive_waiter_moved_last_lets_shared_waiters_start(unlimited_scheduler: Scheduler) -> None:
    holder = unlimited_scheduler.submit(locks=["repo:shared"])
    exclusive = unlimited_scheduler.submit(locks=["repo"])
    shared = [unlimited_scheduler.submit(locks=["repo:shared"]) for _ in range(2)]
    assert unlimited_scheduler.started_jobs() == [holder]
    move_job(unlimited_scheduler, exclusive, last=True)
    assert unlimited_scheduler.started_jobs() == [holder, *shared], "they start in the same turn"


def test_reorder_permutes_places_of_named_jobs(idle_scheduler: Scheduler, jobs: list[JobId]) -> None:
    assert reorder_jobs(idle_scheduler, jobs[4], jobs[0], jobs[2]).has_moved
    assert queue_order(idle_scheduler) == [5, 2, 1, 4, 3]
    assert not reorder_jobs(idle_scheduler, jobs[4], jobs[0], jobs[2]).has_moved
    result = [event.job for event in idle_scheduler.events if event.kind == "job.moved"]
    assert result == [jobs[4], jobs[0], jobs[2]]


def test_reorder_separates_jobs_with_equal_positions(
    idle_scheduler: Scheduler, jobs: list[JobId], run_sql: SqlRunner
) -> None:
    run_sql("UPDATE job SET position = 300")
    run_sql("UPDATE lane SET position = 300")
    reorder_jobs(idle_scheduler, jobs[2], jobs[1])
    assert queue_order(idle_scheduler) == [1, 3, 2, 4, 5]


@pytest.mark.parametrize(
    ("target", "kind", "text"),
    [
        ({}, InvalidInput, "exactly one target"),
        ({"first": True, "last": True}, InvalidInput, "exactly one target"),
        ({"to": 0}, InvalidInput, "counted from 1"),
        ({"to": 6}, Conflict, "there is no place 6: 5 jobs wait at priority 0; `last` puts it last"),
        ({"before": 2}, InvalidInput, "job-2 cannot move before itself"),
        (
            {"after": 6},
            Conflict,
            "job-6 has priority 3 and job-2 has 0.*`rota edit job-2 --priority 3` changes it first",
        ),
        ({"before": 99}, NotFound, "no such job: job-99"),
        ({"before": 7}, Conflict, r"job-7 has ended \(CANCELLED\)"),
    ],
)
def test_invalid_move_is_refused_without_changes(
    idle_scheduler: Scheduler, jobs: list[JobId], target: dict[str, Any], kind: type[RotaError], text: str
) -> None:
    idle_scheduler.submit(priority=3)
    idle_scheduler.cancel(idle_scheduler.submit())
    before = queue_order(idle_scheduler), len(idle_scheduler.events)
    with pytest.raises(kind, match=text):
        move_job(idle_scheduler, jobs[1], **target)
    assert (queue_order(idle_scheduler), len(idle_scheduler.events)) == before


def test_dec_005_move_after_dispatch_is_refused(scheduler: Scheduler) -> None:
    running, waiting = scheduler.submit(), scheduler.submit()
    with pytest.raises(Conflict, match="job-1 is RUNNING; only waiting jobs can be moved"):
        move_job(scheduler, running, last=True)
    with pytest.raises(Conflict, match="job-1 is RUNNING"):
        move_job(scheduler, waiting, before=running)
    with pytest.raises(Conflict, match="job-1 is RUNNING; only waiting jobs can be reordered"):
        reorder_jobs(scheduler, waiting, running)
    scheduler.end_run(running)
    with pytest.raises(Conflict, match=r"job-1 has ended \(COMPLETED\)"):
        move_job(scheduler, running, first=True)


def test_reorder_refuses_mixed_priorities_and_repeats(idle_scheduler: Scheduler, jobs: list[JobId]) -> None:
    other = idle_scheduler.submit(priority=1)
    with pytest.raises(Conflict, match="jobs only move within a priority"):
        reorder_jobs(idle_scheduler, jobs[1], jobs[0], other)
    with pytest.raises(InvalidInput, match="job-2 is named more than once"):
        reorder_jobs(idle_scheduler, jobs[1], jobs[0], jobs[1])
    with pytest.raises(NotFound):
        reorder_jobs(idle_scheduler, jobs[1], JobId(99))
    assert queue_order(idle_scheduler) == [other, *jobs]


def test_move_of_failed_job_names_waiting_retry(scheduler: Scheduler) -> None:
    failed = scheduler.submit(retries=1)
    others = [scheduler.submit() for _ in range(2)]
    scheduler.end_run(failed, 1)
    retry = JobId(4)
    with pytest.raises(Conflict, match=r"job-1 has ended \(FAILED\).*job-4 of its chain is QUEUED, and can be changed"):
        move_job(scheduler, failed, last=True)
    move_job(scheduler, retry, last=True)
    scheduler.clock.advance(seconds=60)
    scheduler.run_turns()
    assert scheduler.drain() == [failed, *others, retry]


def test_queue_page_continues_after_cancelled_job(idle_scheduler: Scheduler, jobs: list[JobId]) -> None:
    page = list_queue(idle_scheduler.reader, idle_scheduler.view_context, limit=2)
    assert [queued.id for queued in page.jobs] == ["job-1", "job-2"]
    assert page.last is not None
    idle_scheduler.cancel(jobs[1])
    page = list_queue(idle_scheduler.reader, idle_scheduler.view_context, after=page.last, limit=3)
    assert [(queued.id, queued.place) for queued in page.jobs] == [("job-3", 2), ("job-4", 3), ("job-5", 4)]
    assert page.last is None
