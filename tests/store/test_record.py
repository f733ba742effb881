"""Reading: lists in pages, counts, holders, users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from harness import Raw
from rota.core.job import Spec
from rota.core.status import ACTIVE, TERMINAL, Status
from rota.ids import JobId, RunId
from store.desk import BROKEN, Desk, add_job


@pytest.fixture
def full(desk: Desk) -> Desk:
    """Jobs 1 to 9: 1 completed, 2 failed, 3 running, 4 dispatched, the rest queued; 8 goes first, 9 last."""
    for priority in (0, 0, 0, 0, 0, 0, 0, 5, -5):
        desk.add(priority=10 if priority == 0 and len(desk.ready()) < 4 else priority)
    desk.claim(**{"global": 4})
    desk.finish(JobId(1))
    desk.finish(JobId(2), BROKEN)
    desk.confirm(JobId(3))
    return desk


IN_ORDER = [3, 4, 8, 5, 6, 7, 9, 2, 1]
"""Active ones in queue order, then ended ones from the newest."""


def test_a_list_is_active_in_queue_order_then_ended_from_the_newest(full: Desk) -> None:
    assert full.reader.list_jobs(Status, limit=100) == IN_ORDER


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9])
def test_pages_joined_are_the_whole_list(full: Desk, size: int) -> None:
    pages: list[JobId] = []
    while len(pages) < len(IN_ORDER):
        last = pages[-1] if pages else None
        is_past_active = last is not None and full.status(last) in TERMINAL
        page = full.reader.list_jobs(Status, limit=size, after=last, is_past_active=is_past_active)
        assert 0 < len(page) <= size
        pages += page
    assert pages == IN_ORDER
    assert full.reader.list_jobs(Status, limit=size, after=pages[-1], is_past_active=True) == []


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (ACTIVE, [3, 4, 8, 5, 6, 7, 9]),
        (TERMINAL, [2, 1]),
        ({Status.QUEUED}, [8, 5, 6, 7, 9]),
        ({Status.QUEUED, Status.FAILED}, [8, 5, 6, 7, 9, 2]),
        ({Status.CANCELLED}, []),
        (set(), []),
    ],
)
def test_a_list_has_only_the_statuses_asked_for(full: Desk, statuses: set[Status], expected: list[int]) -> None:
    assert full.reader.list_jobs(statuses, limit=100) == expected


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (set(Status), [9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (ACTIVE, [9, 8, 7, 6, 5, 4, 3]),
        ({Status.QUEUED, Status.FAILED}, [9, 8, 7, 6, 5, 2]),
        ({Status.RUNNING, Status.COMPLETED}, [3, 1]),
        (set(), []),
    ],
)
def test_the_newest_are_first_whatever_their_rank(full: Desk, statuses: set[Status], expected: list[int]) -> None:
    for limit in (1, 2, 100):
        assert full.reader.newest_jobs(statuses, limit=limit) == expected[:limit]


def test_a_list_has_only_the_name_type_flow_phase_and_target_asked_for(desk: Desk) -> None:
    with desk.writing() as session:
        plain = Spec(command=("true",), cwd="/", surroundings=session.surroundings({}))
        for fields in (
            {"type": "a", "flow": "f"},
            {"type": "a", "target": "w", "phase": "p"},
            {"type": "b", "name": "a"},
            {"type": "a", "flow": "f"},
            {},
        ):
            add_job(session, spec=msgspec.structs.replace(plain, **fields))
    desk.claim(**{"global": 2})
    desk.finish(JobId(1))

    def listed(limit: int = 9, after: JobId | None = None, **only: str) -> list[int]:
        return list(desk.reader.list_jobs(Status, limit=limit, after=after, only=only))

    assert listed() == [2, 3, 4, 5, 1]
    assert listed(type="a") == [2, 4, 1]
    assert listed(type="a", limit=1, after=JobId(2)) == [4]
    assert listed(type="a", flow="f") == [4, 1]
    assert listed(target="w") == [2]
    assert listed(phase="p") == [2]
    assert listed(name="a") == [3]
    assert listed(name="a", type="a") == []
    assert listed(type="") == []


def test_a_page_goes_on_behind_a_job_that_ended_meanwhile_without_losing_active_ones(full: Desk) -> None:
    page = full.reader.list_jobs(Status, limit=1)
    assert page == [3]
    full.finish(JobId(3))
    rest = full.reader.list_jobs(Status, limit=100, after=JobId(3))
    assert set(rest) >= {4, 8, 5, 6, 7, 9}


def test_jobs_come_in_the_order_asked_for_without_those_that_are_not_there(full: Desk) -> None:
    assert [job.id for job in full.reader.jobs([JobId(5), JobId(99), JobId(1)])] == [5, 1]
    assert full.reader.job(JobId(99)) is None
    assert full.reader.jobs([]) == []


def test_counts_by_status(full: Desk) -> None:
    by_hand = full.raw("SELECT status, count(*) FROM job GROUP BY status")
    assert full.reader.counts() == {Status(status): count for status, count in by_hand}
    assert full.reader.counts() == {
        Status.COMPLETED: 1,
        Status.FAILED: 1,
        Status.RUNNING: 1,
        Status.DISPATCHED: 1,
        Status.QUEUED: 5,
    }


def test_only_open_runs_use_a_pool(full: Desk) -> None:
    """LESSONS: the running count counted the finished."""
    assert full.reader.users_of("global") == [3, 4]
    assert full.reader.users_of("flow/x") == []
    assert full.reader.used()[0] == {"global": 2}


def test_the_last_dispatch_and_the_last_of_a_chain(full: Desk) -> None:
    assert full.reader.last_dispatch() is not None
    assert full.reader.last_of_chain(JobId(2)) == (2, Status.FAILED)
    assert full.reader.last_of_chain(JobId(99)) is None


def test_an_empty_store_has_nothing_to_tell(desk: Desk) -> None:
    assert desk.reader.list_jobs(Status, limit=10) == []
    assert desk.reader.counts() == {}
    assert desk.reader.lanes() == []
    assert desk.reader.last_dispatch() is None
    assert desk.reader.active_counts()[1] == {}
    assert desk.reader.events_since(0, 10) == []


RUNS = (Status.RUNNING, Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED)


def listed(desk: Desk, *, statuses: Sequence[Status] = RUNS, below: int = 99, limit: int = 9, **only: Any) -> list[int]:
    return [each.run.id for each in desk.reader.list_runs(statuses=statuses, below=below, limit=limit, **only)]


def test_runs_are_listed_from_the_newest_in_pages_and_by_what_is_asked(full: Desk) -> None:
    assert listed(full) == [4, 3, 2, 1]
    assert [listed(full, limit=2), listed(full, below=3, limit=2), listed(full, below=1)] == [[4, 3], [2, 1], []]
    assert listed(full, statuses=[Status.RUNNING]) == [4, 3]
    assert listed(full, statuses=[Status.RUNNING], below=4) == [3]
    assert listed(full, statuses=[Status.RUNNING, Status.FAILED]) == [4, 3, 2]
    assert listed(full, statuses=[Status.CANCELLED]) == []
    assert listed(full, job=JobId(2)) == [2]
    assert listed(full, job=JobId(2), statuses=[Status.RUNNING]) == []
    workers = {each.run.id: each.run.worker for each in full.reader.list_runs(statuses=RUNS, below=99, limit=9)}
    assert listed(full, worker=workers[RunId(3)], statuses=[Status.RUNNING]) == [3]
    assert listed(full, worker="nobody/1") == listed(full, worker="nobody/1", statuses=[Status.RUNNING]) == []


def test_a_run_that_has_a_later_one_is_superseded(full: Desk, raw: Raw) -> None:
    raw("INSERT INTO run (id, job, worker, status, started_at, finished_at) VALUES (9, 1, 'w/9', 'FAILED', 1, 2)")
    raw("UPDATE job SET rewound_run = 1 WHERE id = 1")
    found = full.reader.list_runs(statuses=RUNS, below=99, limit=9, job=JobId(1))
    assert [(each.run.id, each.is_superseded, each.rewound_run) for each in found] == [(9, False, 1), (1, True, 1)]
