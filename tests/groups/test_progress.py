"""Progress of a group: the running members, and the members that ended since a cursor."""

from __future__ import annotations

import pytest

from rota.errors import InvalidInput
from rota.groups.queries import show_progress
from rota.groups.schemas import GroupProgress
from rota.ids import GroupId, JobId, format_group_id
from tests.harness import Scheduler


def read_progress(scheduler: Scheduler, group: GroupId, cursor: str | None = None) -> GroupProgress:
    return show_progress(scheduler.reader, format_group_id(group), cursor)


def test_each_end_is_returned_once(scheduler: Scheduler) -> None:
    group, (one, two) = scheduler.submit_group({"name": "one"}, {"name": "two", "retries": 1}, on_failure="continue")
    scheduler.confirm_start(one)
    first = read_progress(scheduler, group)
    assert ([job.name for job in first.running], first.ended, first.total) == (["one"], [], 2)
    assert read_progress(scheduler, group, first.cursor) == first
    scheduler.end_run(one)
    second = read_progress(scheduler, group, first.cursor)
    assert [(job.name, job.status) for job in second.ended] == [("one", "COMPLETED")]
    scheduler.confirm_start(two)
    third = read_progress(scheduler, group, second.cursor)
    assert (third.ended, [job.name for job in third.running]) == ([], ["two"])
    scheduler.end_run(two, 3)
    fourth = read_progress(scheduler, group, third.cursor)
    assert [(job.status, job.exit_code, job.retried_as) for job in fourth.ended] == [("FAILED", 3, "job-3")]
    assert (fourth.counts, fourth.is_finished) == ({"QUEUED": 1, "COMPLETED": 1}, False)
    scheduler.clock.advance(hours=1)
    scheduler.run_turns()
    scheduler.confirm_start(JobId(3))
    scheduler.end_run(JobId(3))
    last = read_progress(scheduler, group, fourth.cursor)
    assert (last.status, last.is_finished, [job.id for job in last.ended]) == ("COMPLETED", True, ["job-3"])
    assert [job.id for job in read_progress(scheduler, group).ended] == ["job-1", "job-2", "job-3"]


def test_members_that_end_together_are_all_returned(scheduler: Scheduler) -> None:
    group, jobs = scheduler.submit_group(*({"name": f"n{n}"} for n in range(1200)), on_failure="stop")
    scheduler.confirm_start(jobs[0])
    scheduler.end_run(jobs[0], 1)
    ended: list[str] = []
    progress = read_progress(scheduler, group)
    while progress.ended:
        ended += [job.id for job in progress.ended]
        progress = read_progress(scheduler, group, progress.cursor)
    assert ended == [f"job-{n + 1}" for n in range(1200)]


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.x", "-1.2", f"{2**70}.1"])
def test_invalid_cursor_is_refused(scheduler: Scheduler, cursor: str) -> None:
    group, _ = scheduler.submit_group({})
    with pytest.raises(InvalidInput, match="invalid cursor"):
        read_progress(scheduler, group, cursor)
