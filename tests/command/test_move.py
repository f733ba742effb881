"""`move` and `reorder`: within a priority, before dispatch, whole or not at all (DEC-005)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from harness import Raw, Scheduler
from rota.command.move import Move, Moved, move, reorder
from rota.core.status import Status
from rota.errors import Conflict, InvalidInput, NotFound, RotaError
from rota.ids import JobId, show_job
from rota.view.queue import placed, queue
from rota.wire.queue import QueueForm
from store.invariants import check_store

pytestmark = pytest.mark.usefixtures("whole_at_the_end")


def moved(scheduler: Scheduler, job: JobId, **where: Any) -> Moved:
    wanted = msgspec.convert({name: show_job(value) if name in ("before", "after") else value
                              for name, value in where.items()}, Move)  # fmt: skip
    told: Moved = scheduler.do(lambda work: move(work, job, wanted, actor="ann"))
    return told


def reordered(scheduler: Scheduler, *jobs: JobId) -> Moved:
    told: Moved = scheduler.do(lambda work: reorder(work, [show_job(job) for job in jobs], actor="ann"))
    return told


def line(scheduler: Scheduler) -> list[QueueForm]:
    return queue(scheduler.reader, scheduler.sight, limit=1000).jobs


def order(scheduler: Scheduler) -> list[JobId]:
    return [JobId(int(form.id.removeprefix("job-"))) for form in line(scheduler)]


@pytest.fixture
def jobs(closed: Scheduler) -> list[JobId]:
    return [closed.submit() for _ in range(5)]


@pytest.mark.parametrize(
    ("which", "where", "expected"),
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
def test_dec_005_a_move_is_a_move_in_the_list(
    closed: Scheduler, jobs: list[JobId], which: int, where: dict[str, Any], expected: list[int]
) -> None:
    assert moved(closed, jobs[which], **where).has_moved
    assert order(closed) == expected
    assert [form.place for form in line(closed)] == [1, 2, 3, 4, 5]
    assert not moved(closed, jobs[which], **where).has_moved, "it stands there already"
    event = closed.events[-1]
    assert (event.kind, event.cause, event.actor, event.job) == ("job.moved", "move", "ann", jobs[which])
    assert event.data["position"] == closed.job(jobs[which]).position
    closed.set_pools(**{"global": 1})
    assert closed.drain() == expected


def test_last_is_before_whatever_is_submitted_later(closed: Scheduler, jobs: list[JobId]) -> None:
    for job in jobs * 20:
        moved(closed, job, last=True)
        assert order(closed)[-1] == job
    later = closed.submit()
    assert order(closed) == [*jobs, later]
    moved(closed, jobs[0], last=True)
    assert order(closed) == [*jobs[1:], later, jobs[0]]


def test_first_is_only_within_its_priority(closed: Scheduler, jobs: list[JobId]) -> None:
    urgent = closed.submit(priority=5)
    moved(closed, jobs[2], first=True)
    assert order(closed) == [urgent, 3, 1, 2, 4, 5]
    assert [form.place for form in line(closed)] == [1, 1, 2, 3, 4, 5]
    assert placed(closed.reader, jobs[0], closed.sight)[1] == 2


def test_gaps_that_are_used_up_are_made_anew(closed: Scheduler, jobs: list[JobId], raw: Raw) -> None:
    """All active jobs of the priority, running ones too, in their order; others are left alone."""
    closed.set_pools(**{"global": 1})
    closed.start(jobs[0])
    apart = closed.submit(type="x", locks=["own"])
    other = closed.submit(priority=1, locks=["repo"])
    locked = closed.submit(locks=["repo"])
    for n in range(12):
        moved(closed, jobs[3 + n % 2], after=jobs[1])
        assert order(closed)[1:3] == [2, 4 + n % 2]
        check_store(raw)
    assert [event.data for event in closed.events if event.kind == "queue.respaced"] == [{"priority": 0, "jobs": 7}]
    assert closed.job(other).position == 700
    assert order(closed) == [other, 2, 5, 4, 3, apart, locked]
    positions = [closed.job(job).position for job in (jobs[0], *order(closed)[1:])]
    assert positions == sorted(positions)
    assert positions[-1] == 800, "the last stands right before the next submit"
    later = closed.submit()
    assert closed.drain() == [jobs[0], other, 2, 5, 4, 3, apart, locked, later]


def test_a_job_moved_to_the_front_of_a_keys_queue_gets_the_lock_next(wide: Scheduler) -> None:
    holder = wide.submit(locks=["repo"])
    first, second, third = (wide.submit(locks=["repo"]) for _ in range(3))
    moved(wide, third, first=True)
    assert wide.drain() == [holder, third, first, second]


def test_one_that_had_its_turn_and_is_moved_back_gives_it_up(scheduler: Scheduler) -> None:
    blocker = scheduler.submit()
    ready = scheduler.submit(locks=["repo"])
    waiting = scheduler.submit(locks=["repo"])
    assert [scheduler.status(job) for job in (ready, waiting)] == [Status.QUEUED, Status.WAITING_ON_LOCKS]
    moved(scheduler, ready, last=True)
    assert [scheduler.status(job) for job in (ready, waiting)] == [Status.WAITING_ON_LOCKS, Status.QUEUED]
    moved(scheduler, ready, before=waiting)
    assert scheduler.drain() == [blocker, ready, waiting]


def test_an_exclusive_waiter_moved_behind_shared_ones_lets_them_through(wide: Scheduler) -> None:
    holder = wide.submit(locks=["repo:shared"])
    exclusive = wide.submit(locks=["repo"])
    shared = [wide.submit(locks=["repo:shared"]) for _ in range(2)]
    assert wide.started() == [holder]
    moved(wide, exclusive, last=True)
    assert wide.started() == [holder, *shared], "in the same call"


def test_reorder_shares_out_the_places_they_have(closed: Scheduler, jobs: list[JobId]) -> None:
    assert reordered(closed, jobs[4], jobs[0], jobs[2]).has_moved
    assert order(closed) == [5, 2, 1, 4, 3]
    assert not reordered(closed, jobs[4], jobs[0], jobs[2]).has_moved
    told = [event.job for event in closed.events if event.kind == "job.moved"]
    assert told == [jobs[4], jobs[0], jobs[2]]


def test_reorder_tells_apart_those_at_one_position(closed: Scheduler, jobs: list[JobId], raw: Raw) -> None:
    raw("UPDATE job SET position = 300")
    raw("UPDATE lane SET position = 300")
    reordered(closed, jobs[2], jobs[1])
    assert order(closed) == [1, 3, 2, 4, 5]


@pytest.mark.parametrize(
    ("where", "kind", "text"),
    [
        ({}, InvalidInput, "in one way"),
        ({"first": True, "last": True}, InvalidInput, "in one way"),
        ({"to": 0}, InvalidInput, "counted from 1"),
        ({"to": 6}, Conflict, "there is no place 6: 5 jobs wait at priority 0; `last` puts it last"),
        ({"before": 2}, InvalidInput, "job-2 cannot stand before itself"),
        ({"after": 6}, Conflict, "job-6 has priority 3 and job-2 has 0.*`rota edit job-2 --priority 3` changes that"),
        ({"before": 99}, NotFound, "no such job: job-99"),
        ({"before": 7}, Conflict, r"job-7 has ended \(CANCELLED\)"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_changes_nothing(
    closed: Scheduler, jobs: list[JobId], where: dict[str, Any], kind: type[RotaError], text: str
) -> None:
    closed.submit(priority=3)
    closed.cancel(closed.submit())
    before = order(closed), len(closed.events)
    with pytest.raises(kind, match=text):
        moved(closed, jobs[1], **where)
    assert (order(closed), len(closed.events)) == before


def test_dec_005_only_before_dispatch(scheduler: Scheduler) -> None:
    running, waiting = scheduler.submit(), scheduler.submit()
    with pytest.raises(Conflict, match="job-1 is RUNNING: only what waits can be moved"):
        moved(scheduler, running, last=True)
    with pytest.raises(Conflict, match="job-1 is RUNNING"):
        moved(scheduler, waiting, before=running)
    with pytest.raises(Conflict, match="job-1 is RUNNING: only what waits can be reordered"):
        reordered(scheduler, waiting, running)
    scheduler.end(running)
    with pytest.raises(Conflict, match=r"job-1 has ended \(COMPLETED\)"):
        moved(scheduler, running, first=True)


def test_reorder_is_of_one_priority_and_names_each_once(closed: Scheduler, jobs: list[JobId]) -> None:
    other = closed.submit(priority=1)
    with pytest.raises(Conflict, match="places are within a priority"):
        reordered(closed, jobs[1], jobs[0], other)
    with pytest.raises(InvalidInput, match="job-2 is named more than once"):
        reordered(closed, jobs[1], jobs[0], jobs[1])
    with pytest.raises(NotFound):
        reordered(closed, jobs[1], JobId(99))
    assert order(closed) == [other, *jobs]


def test_a_retry_that_waits_is_moved_and_named_where_an_earlier_one_is_meant(scheduler: Scheduler) -> None:
    failed = scheduler.submit(retries=1)
    others = [scheduler.submit() for _ in range(2)]
    scheduler.end(failed, 1)
    retry = JobId(4)
    with pytest.raises(Conflict, match=r"job-1 has ended \(FAILED\).*job-4 of its chain is QUEUED, and can be changed"):
        moved(scheduler, failed, last=True)
    moved(scheduler, retry, last=True)
    scheduler.clock.advance(seconds=60)
    scheduler.turn()
    assert scheduler.drain() == [failed, *others, retry]


def test_a_page_goes_on_where_the_last_ended_though_that_job_is_gone(closed: Scheduler, jobs: list[JobId]) -> None:
    page = queue(closed.reader, closed.sight, limit=2)
    assert [form.id for form in page.jobs] == ["job-1", "job-2"]
    assert page.last is not None
    closed.cancel(jobs[1])
    page = queue(closed.reader, closed.sight, behind=page.last, limit=3)
    assert [(form.id, form.place) for form in page.jobs] == [("job-3", 2), ("job-4", 3), ("job-5", 4)]
    assert page.last is None
