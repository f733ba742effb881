"""What somebody who follows a group is told: what runs, and what has ended since he last looked."""

from __future__ import annotations

import pytest

from harness import Scheduler
from rota.errors import InvalidInput
from rota.ids import GroupId, JobId, show_group
from rota.view.progress import progress
from rota.wire.progress import ProgressForm


def look(scheduler: Scheduler, group: GroupId, seen: str | None = None) -> ProgressForm:
    return progress(scheduler.reader, show_group(group), seen)


def test_each_end_is_told_once(scheduler: Scheduler) -> None:
    group, (one, two) = scheduler.submit_group({"name": "one"}, {"name": "two", "retries": 1}, on_failure="continue")
    scheduler.start(one)
    first = look(scheduler, group)
    assert ([job.name for job in first.running], first.ended, first.total) == (["one"], [], 2)
    assert look(scheduler, group, first.seen) == first
    scheduler.end(one)
    second = look(scheduler, group, first.seen)
    assert [(job.name, job.status) for job in second.ended] == [("one", "COMPLETED")]
    scheduler.start(two)
    third = look(scheduler, group, second.seen)
    assert (third.ended, [job.name for job in third.running]) == ([], ["two"])
    scheduler.end(two, 3)
    fourth = look(scheduler, group, third.seen)
    assert [(job.status, job.exit_code, job.retried_as) for job in fourth.ended] == [("FAILED", 3, "job-3")]
    assert (fourth.counts, fourth.is_over) == ({"QUEUED": 1, "COMPLETED": 1}, False)
    scheduler.clock.advance(hours=1)
    scheduler.turn()
    scheduler.start(JobId(3))
    scheduler.end(JobId(3))
    last = look(scheduler, group, fourth.seen)
    assert (last.status, last.is_over, [job.id for job in last.ended]) == ("COMPLETED", True, ["job-3"])
    assert [job.id for job in look(scheduler, group).ended] == ["job-1", "job-2", "job-3"]


def test_those_that_end_in_one_moment_are_all_told(scheduler: Scheduler) -> None:
    group, jobs = scheduler.submit_group(*({"name": f"n{n}"} for n in range(1200)), on_failure="stop")
    scheduler.start(jobs[0])
    scheduler.end(jobs[0], 1)
    told: list[str] = []
    form = look(scheduler, group)
    while form.ended:
        told += [job.id for job in form.ended]
        form = look(scheduler, group, form.seen)
    assert told == [f"job-{n + 1}" for n in range(1200)]


@pytest.mark.parametrize("seen", ["", "x", "1", "1.x", "-1.2", f"{2**70}.1"])
def test_a_mark_that_is_none_is_refused(scheduler: Scheduler, seen: str) -> None:
    group, _ = scheduler.submit_group({})
    with pytest.raises(InvalidInput, match="not a mark of progress"):
        look(scheduler, group, seen)
