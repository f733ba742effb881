"""Reads: paged lists, counts, lock holders and pool usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from rota.ids import JobId, RunId
from rota.kernel.job import Spec
from rota.kernel.status import ACTIVE, TERMINAL, Status
from tests.db.harness import FAILED_RESULT, StoreHarness, add_job
from tests.harness import SqlRunner


@pytest.fixture
def populated(harness: StoreHarness) -> StoreHarness:
    """Harness with jobs 1 to 9: 1 completed, 2 failed, 3 running, 4 dispatched, the rest queued; 8 is first, 9 is
    last."""
    for priority in (0, 0, 0, 0, 0, 0, 0, 5, -5):
        harness.add(priority=10 if priority == 0 and len(harness.ready_jobs()) < 4 else priority)
    harness.claim(**{"global": 4})
    harness.finish(JobId(1))
    harness.finish(JobId(2), FAILED_RESULT)
    harness.confirm(JobId(3))
    return harness


IN_ORDER = [3, 4, 8, 5, 6, 7, 9, 2, 1]
"""Started jobs, then waiting ones in queue order, then ended ones, newest first."""


def test_list_has_active_jobs_in_queue_order_then_ended_newest_first(populated: StoreHarness) -> None:
    assert populated.reader.jobs.list_ids(Status, limit=100) == IN_ORDER


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9])
def test_joined_pages_equal_the_whole_list(populated: StoreHarness, size: int) -> None:
    pages: list[JobId] = []
    while len(pages) < len(IN_ORDER):
        last = pages[-1] if pages else None
        page = populated.reader.jobs.list_ids(Status, limit=size, after=last)
        assert 0 < len(page) <= size
        pages += page
    assert pages == IN_ORDER
    assert populated.reader.jobs.list_ids(Status, limit=size, after=pages[-1]) == []


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
def test_list_filters_by_status(populated: StoreHarness, statuses: set[Status], expected: list[int]) -> None:
    assert populated.reader.jobs.list_ids(statuses, limit=100) == expected


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
def test_newest_jobs_ignore_rank(populated: StoreHarness, statuses: set[Status], expected: list[int]) -> None:
    for limit in (1, 2, 100):
        assert populated.reader.jobs.newest_ids(statuses, limit=limit) == expected[:limit]


def test_list_filters_by_name_type_flow_phase_and_target(harness: StoreHarness) -> None:
    with harness.transaction() as session:
        plain = Spec(command=("true",), cwd="/", environment=session.jobs.environment_id({}))
        for fields in (
            {"type": "a", "flow": "f"},
            {"type": "a", "target": "w", "phase": "p"},
            {"type": "b", "name": "a"},
            {"type": "a", "flow": "f"},
            {},
        ):
            add_job(session, spec=msgspec.structs.replace(plain, **fields))
    harness.claim(**{"global": 2})
    harness.finish(JobId(1))

    def list_ids(limit: int = 9, after: JobId | None = None, **filters: str) -> list[int]:
        return list(harness.reader.jobs.list_ids(Status, limit=limit, after=after, filters=filters))

    assert list_ids() == [2, 3, 4, 5, 1]
    assert list_ids(type="a") == [2, 4, 1]
    assert list_ids(type="a", limit=1, after=JobId(2)) == [4]
    assert list_ids(type="a", flow="f") == [4, 1]
    assert list_ids(target="w") == [2]
    assert list_ids(phase="p") == [2]
    assert list_ids(name="a") == [3]
    assert list_ids(name="a", type="a") == []
    assert list_ids(type="") == []


def test_started_jobs_precede_waiting_jobs_of_any_priority(populated: StoreHarness) -> None:
    urgent = populated.add(priority=100)
    assert populated.reader.jobs.list_ids(Status, limit=100) == [3, 4, urgent, 8, 5, 6, 7, 9, 2, 1]


def test_page_continues_after_cursor_whose_job_has_ended(populated: StoreHarness) -> None:
    page = populated.reader.jobs.list_ids(Status, limit=1)
    assert page == [3]
    cursor = populated.reader.jobs.cursor_of(page[0])
    populated.finish(JobId(3))
    assert populated.reader.jobs.list_ids(Status, limit=100, cursor=cursor) == [4, 8, 5, 6, 7, 9, 3, 2, 1]


def test_count_listed_counts_matching_jobs(populated: StoreHarness) -> None:
    assert populated.reader.jobs.count_listed(Status) == 9
    assert populated.reader.jobs.count_listed({Status.QUEUED, Status.FAILED}) == 6
    assert populated.reader.jobs.count_listed(Status, filters={"name": "x"}) == 0


def test_jobs_keep_requested_order_and_skip_missing(populated: StoreHarness) -> None:
    assert [job.id for job in populated.reader.jobs.find_all([JobId(5), JobId(99), JobId(1)])] == [5, 1]
    assert populated.reader.jobs.find(JobId(99)) is None
    assert populated.reader.jobs.find_all([]) == []


def test_status_counts_match_the_table(populated: StoreHarness) -> None:
    rows = populated.run_sql("SELECT status, count(*) FROM job GROUP BY status")
    assert populated.reader.jobs.count_by_status() == {Status(status): count for status, count in rows}
    assert populated.reader.jobs.count_by_status() == {
        Status.COMPLETED: 1,
        Status.FAILED: 1,
        Status.RUNNING: 1,
        Status.DISPATCHED: 1,
        Status.QUEUED: 5,
    }


def test_only_open_runs_use_a_pool(populated: StoreHarness) -> None:
    """LESSONS: the running count included finished jobs."""
    assert populated.reader.jobs.using_pool("global") == [3, 4]
    assert populated.reader.jobs.using_pool("flow/x") == []
    assert populated.reader.queue.pool_usage()[0] == {"global": 2}


def test_last_dispatch_and_last_of_chain(populated: StoreHarness) -> None:
    assert populated.reader.jobs.last_dispatch() is not None
    assert populated.reader.chains.last_job(JobId(2)) == (2, Status.FAILED)
    assert populated.reader.chains.last_job(JobId(99)) is None


def test_empty_store_reads_are_empty(harness: StoreHarness) -> None:
    assert harness.reader.jobs.list_ids(Status, limit=10) == []
    assert harness.reader.jobs.count_by_status() == {}
    assert harness.reader.lanes.depths() == []
    assert harness.reader.jobs.last_dispatch() is None
    assert harness.reader.jobs.count_active()[1] == {}
    assert harness.reader.events.since(0, 10) == []


RUNS = (Status.RUNNING, Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED)


def list_run_ids(
    harness: StoreHarness, *, statuses: Sequence[Status] = RUNS, before_id: int = 99, limit: int = 9, **filters: Any
) -> list[int]:
    return [
        listed.run.id
        for listed in harness.reader.runs.list_latest(statuses=statuses, before_id=before_id, limit=limit, **filters)
    ]


def test_runs_are_listed_newest_first_with_paging_and_filters(populated: StoreHarness) -> None:
    assert list_run_ids(populated) == [4, 3, 2, 1]
    assert [
        list_run_ids(populated, limit=2),
        list_run_ids(populated, before_id=3, limit=2),
        list_run_ids(populated, before_id=1),
    ] == [[4, 3], [2, 1], []]
    assert list_run_ids(populated, statuses=[Status.RUNNING]) == [4, 3]
    assert list_run_ids(populated, statuses=[Status.RUNNING], before_id=4) == [3]
    assert list_run_ids(populated, statuses=[Status.RUNNING, Status.FAILED]) == [4, 3, 2]
    assert list_run_ids(populated, statuses=[Status.CANCELLED]) == []
    assert list_run_ids(populated, job=JobId(2)) == [2]
    assert list_run_ids(populated, job=JobId(2), statuses=[Status.RUNNING]) == []
    workers = {
        listed.run.id: listed.run.worker
        for listed in populated.reader.runs.list_latest(statuses=RUNS, before_id=99, limit=9)
    }
    assert list_run_ids(populated, worker=workers[RunId(3)], statuses=[Status.RUNNING]) == [3]
    assert (
        list_run_ids(populated, worker="unknown/1")
        == list_run_ids(populated, worker="unknown/1", statuses=[Status.RUNNING])
        == []
    )


def test_run_with_a_later_run_is_superseded(populated: StoreHarness, run_sql: SqlRunner) -> None:
    run_sql("INSERT INTO run (id, job, worker, status, started_at, finished_at) VALUES (9, 1, 'w/9', 'FAILED', 1, 2)")
    run_sql("UPDATE job SET rewound_run = 1 WHERE id = 1")
    runs = populated.reader.runs.list_latest(statuses=RUNS, before_id=99, limit=9, job=JobId(1))
    assert [(listed.run.id, listed.is_superseded, listed.rewound_run) for listed in runs] == [
        (9, False, 1),
        (1, True, 1),
    ]
