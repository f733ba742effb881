"""Groups: what a failure does to the others (DEC-012), and when all is over (INV-006)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness import Raw, Scheduler
from rota.command.backpressure import Deferred
from rota.command.group import add, cancel, close
from rota.command.retry import Retried, retry
from rota.command.rewind import Report, look, reports, rewind, survey_group
from rota.command.submission import GroupWanted, Submission, Surroundings
from rota.command.submit import AlreadyActive, submit
from rota.core.backpressure import QueueLimit
from rota.core.status import Status
from rota.errors import Conflict, InvalidInput, NotFound
from rota.executor.port import Exited, FailedToStart
from rota.ids import GroupId, JobId, show_group, show_job
from rota.wire.job import EdgeForm

AROUND = Surroundings(cwd="/", variables={})
C, F, S, X, B = (
    Status.COMPLETED,
    Status.FAILED,
    Status.SKIPPED,
    Status.CANCELLED,
    Status.BLOCKED_BY_DEPENDENCY,
)


def statuses(scheduler: Scheduler, jobs: list[JobId]) -> list[Status]:
    return [scheduler.status(job) for job in jobs]


def finished(scheduler: Scheduler, group: GroupId) -> list[Any]:
    """What was said of each end of the group."""
    return [event.data for event in scheduler.events if event.kind == "group.finished" and event.group == group]


def try_again(scheduler: Scheduler, job: JobId) -> Retried:
    told: Retried = scheduler.do(lambda work: retry(work, show_job(job), actor="tester"))
    return told


def test_a_sequential_group_runs_one_after_the_other(wide: Scheduler) -> None:
    group, jobs = wide.submit_group({}, {}, {}, mode="sequential", name="nightly")
    assert wide.started() == jobs[:1]
    assert wide.detail(jobs[1]) == f"waiting on job {show_job(jobs[0])}"
    assert wide.show(jobs[1]).after == [EdgeForm(job=show_job(jobs[0]), policy="finished")]
    assert wide.drain() == jobs
    form = wide.group(group)
    assert (form.status, form.counts, form.total, form.name) == ("COMPLETED", {"COMPLETED": 3}, 3, "nightly")
    assert finished(wide, group) == [
        {"group": "group-1", "status": "COMPLETED", "counts": {"COMPLETED": 3}, "total": 3}
    ]  # fmt: skip


def test_dec_012_a_failure_stops_a_sequential_group(wide: Scheduler) -> None:
    """DEC-012: those that remain are cancelled, none of them starts, and the group is PARTIAL."""
    group, jobs = wide.submit_group({}, {}, {}, {}, mode="sequential")
    wide.end(jobs[0])
    wide.end(jobs[1], 1)
    assert statuses(wide, jobs) == [C, F, X, X]
    assert {(wide.job(job).reason, wide.job(job).exit_code) for job in jobs[2:]} == {("predecessor failed", 143)}
    assert wide.group(group).status == "PARTIAL"
    assert wide.started() == jobs[:2]
    assert [each["status"] for each in finished(wide, group)] == ["PARTIAL"]


def test_dec_012_a_member_is_retried_before_the_group_decides(wide: Scheduler) -> None:
    """DEC-012, LESSONS Groups: a group stayed PARTIAL though its member succeeded on retry."""
    group, jobs = wide.submit_group({"retries": 1}, {}, mode="sequential")
    wide.end(jobs[0], 1)
    assert wide.group(group).status == "RUNNING"
    assert wide.status(jobs[1]) is Status.WAITING_ON_DEPS
    wide.clock.advance(minutes=1)
    wide.turn()
    again = wide.started()[-1]
    assert wide.job(again).group == group
    wide.end(again)
    wide.end(jobs[1])
    assert wide.group(group).status == "COMPLETED"
    assert wide.group(group).jobs == [show_job(again), show_job(jobs[1])]


def test_inv_006_no_group_is_over_while_a_member_is_active(wide: Scheduler) -> None:
    """INV-006: what runs when another fails goes on, and the group with it."""
    group, jobs = wide.submit_group({}, {}, {"retries": 2})
    assert wide.group(group).status == "RUNNING"
    wide.end(jobs[0], 1)
    wide.end(jobs[2], 1)
    assert statuses(wide, jobs) == [F, Status.DISPATCHED, F]
    wide.end(jobs[1])
    assert wide.group(group).status == "RUNNING"
    assert finished(wide, group) == []
    wide.clock.advance(minutes=1)
    wide.turn()
    wide.end(wide.started()[-1])
    assert wide.group(group).status == "PARTIAL"
    assert len(finished(wide, group)) == 1


def test_nothing_started_is_queued(make_scheduler: Any) -> None:
    scheduler = make_scheduler(**{"global": 0})
    group, jobs = scheduler.submit_group({}, {})
    assert scheduler.group(group).status == "QUEUED"
    scheduler.cancel(jobs[0])
    assert scheduler.group(group).status == "QUEUED"
    scheduler.set_pools(**{"global": 1})
    assert scheduler.group(group).status == "RUNNING"


@pytest.mark.parametrize(("policy", "fate"), [("stop", X), ("skip", S)])
def test_the_policy_speaks_before_the_after_gate(wide: Scheduler, policy: str, fate: Status) -> None:
    """One that wanted the failed one's success is not BLOCKED, though its edge cannot be met."""
    _, jobs = wide.submit_group({"local": "a"}, {"after": ["a"]}, {"after": ["a"]}, on_failure=policy)
    wide.end(jobs[0], 1)
    assert statuses(wide, jobs) == [F, fate, fate]


def test_continue_goes_on(wide: Scheduler) -> None:
    group, jobs = wide.submit_group({"local": "a"}, {"after": ["a"]}, {}, mode="sequential", on_failure="continue")
    wide.end(jobs[0], 1)
    assert statuses(wide, jobs) == [F, B, Status.DISPATCHED]
    wide.end(jobs[2])
    assert wide.group(group).status == "PARTIAL"


@pytest.mark.parametrize("edge", ["a:finished", "a:failed"])
def test_members_named_for_the_failure_are_spared(wide: Scheduler, edge: str) -> None:
    group, jobs = wide.submit_group({"local": "a"}, {}, {"after": [edge]}, mode="sequential")
    wide.end(jobs[0], 1)
    assert statuses(wide, jobs) == [F, X, Status.DISPATCHED]
    wide.end(jobs[2])
    assert wide.group(group).status == "PARTIAL"


def test_what_follows_a_spared_member_is_not_spared_itself(wide: Scheduler) -> None:
    _, jobs = wide.submit_group({"local": "a"}, {"local": "b", "after": ["a:finished"]}, {"after": ["b"]})
    wide.end(jobs[0], 1)
    assert statuses(wide, jobs) == [F, Status.DISPATCHED, X]


def test_one_that_waits_for_its_retry_has_started(make_scheduler: Any) -> None:
    scheduler = make_scheduler(**{"global": 2})
    _, jobs = scheduler.submit_group({"retries": 1}, {}, {})
    scheduler.end(jobs[0], 1)
    again = JobId(jobs[-1] + 1)
    assert scheduler.started() == jobs
    scheduler.end(jobs[1], 1)
    assert scheduler.status(again) is Status.QUEUED
    scheduler.end(jobs[2])
    scheduler.clock.advance(minutes=1)
    scheduler.turn()
    assert scheduler.started()[-1] == again


def test_skipped_by_policy_is_no_success_outside_the_group(wide: Scheduler) -> None:
    """Now, when it is submitted later, after a crash, and when it is rewound."""
    _, jobs = wide.submit_group({"local": "a"}, {"local": "b", "after": ["a"]}, on_failure="skip")
    outside, whatever = wide.submit(after=[jobs[1]]), wide.submit(after=[f"job-{jobs[1]}:finished"])
    wide.end(jobs[0], 1)
    assert statuses(wide, [jobs[1], outside, whatever]) == [S, B, Status.DISPATCHED]
    assert wide.job(outside).reason == f"dependency failed for job {show_job(jobs[1])} (SKIPPED)"
    later = wide.submit(after=[jobs[1]])
    assert wide.status(later) is B
    with pytest.raises(Conflict, match="would be blocked again"):
        try_again(wide, outside)
    wide.crash()
    wide.rewind(later)
    assert wide.status(later) is B
    assert wide.job(later).reason == f"dependency failed for job {show_job(jobs[1])} (SKIPPED)"


def test_skipped_by_policy_is_a_success_within_the_group(wide: Scheduler) -> None:
    _, jobs = wide.submit_group(
        {"local": "a"}, {"local": "b", "after": ["a"]}, {"after": ["a:finished", "b"]}, on_failure="skip"
    )
    wide.end(jobs[0], 1)
    assert statuses(wide, jobs) == [F, S, Status.DISPATCHED]


def test_a_producer_that_the_policy_skipped_has_made_nothing(wide: Scheduler) -> None:
    wide.submit_group(
        {"local": "a"}, {"after": ["a"], "produces": ["custom:t:x"]}, on_failure="skip"
    )  # fmt: skip
    needs = wide.submit(needs=["custom:t:x"])
    wide.end(JobId(1), 1)
    assert wide.job(needs).reason == "dependency failed for custom:t:x"


def test_cancelled_by_hand_is_no_failure(wide: Scheduler) -> None:
    group, jobs = wide.submit_group({}, {}, {}, mode="sequential")
    wide.cancel(jobs[1])
    wide.end(jobs[0])
    assert statuses(wide, jobs) == [C, X, Status.DISPATCHED]
    wide.end(jobs[2])
    assert wide.group(group).status == "PARTIAL"


def test_one_that_cannot_be_started_has_failed(wide: Scheduler) -> None:
    _, jobs = wide.submit_group({}, {}, mode="sequential")
    for _ in range(3):
        wide.say(FailedToStart(run=wide.run_of(jobs[0]), error="no such program"))
        wide.clock.advance(seconds=10)
        wide.turn()
    assert statuses(wide, jobs) == [F, X]


def test_a_group_whose_last_member_could_not_be_started_and_is_dropped_is_over(wide: Scheduler) -> None:
    """It was claimed when the policy spoke, so it is dropped when it comes back; then nobody is left to end it."""
    group, (failed, claimed) = wide.submit_group({}, {})
    wide.clock.advance(seconds=1)
    wide.end(failed, 1)
    assert finished(wide, group) == []
    wide.say(FailedToStart(run=wide.run_of(claimed), error="no such program"))
    assert statuses(wide, [failed, claimed]) == [F, X]
    assert [told["status"] for told in finished(wide, group)] == ["PARTIAL"]


def test_also_where_the_clock_was_set_back_meanwhile(wide: Scheduler) -> None:
    """By the clock it came into the queue after the failure; by what happened, it was claimed before."""
    _, (failed, claimed) = wide.submit_group({}, {})
    wide.clock.advance(minutes=-1)
    wide.end(failed, 1)
    wide.say(FailedToStart(run=wide.run_of(claimed), error="no such program"))
    assert statuses(wide, [failed, claimed]) == [F, X]


def test_also_where_both_are_told_at_once(wide: Scheduler) -> None:
    _, (failed, claimed) = wide.submit_group({}, {})
    wide.clock.advance(minutes=-1)
    run = wide.run_of(failed)
    wide.say(
        Exited(run=run, at=wide.clock.moment.timestamp(), code=1),
        FailedToStart(run=wide.run_of(claimed), error="no such program"),
    )
    assert statuses(wide, [failed, claimed]) == [F, X]


def test_who_was_put_back_after_the_failure_stays_whatever_the_clock_says(wide: Scheduler) -> None:
    _, (failed, again) = wide.submit_group({}, {})
    wide.end(again)
    wide.end(failed, 1)
    wide.clock.advance(minutes=-1)
    wide.rewind(again)
    wide.say(FailedToStart(run=wide.run_of(again), error="no such program"))
    assert wide.job(again).status is Status.QUEUED


def test_a_blocked_member_has_failed(wide: Scheduler) -> None:
    other = wide.submit()
    group, jobs = wide.submit_group({"after": [other]}, {}, {}, mode="sequential")
    wide.end(other, 1)
    assert statuses(wide, jobs) == [B, X, X]
    assert wide.group(group).status == "PARTIAL"


def test_cancelled_as_a_whole(wide: Scheduler) -> None:
    group, jobs = wide.submit_group({"retries": 3}, {"retries": 3}, {"after": ["b"]}, {"local": "b"}, name="g")
    wide.end(jobs[0], 1)
    wide.do(lambda work: cancel(work, "g", actor="tester"))
    assert wide.group(group).status == "RUNNING"
    assert wide.executor.stops == [wide.run_of(jobs[1]), wide.run_of(jobs[3])]
    for job in (jobs[1], jobs[3]):
        wide.end(job, None, signal=15, ended_by="stop")
    form = wide.group(group)
    assert (form.status, form.counts) == ("CANCELLED", {"CANCELLED": 4})
    assert wide.job(jobs[2]).exit_code == 143
    assert wide.job(jobs[2]).reason == "cancelled by tester"
    assert [each["status"] for each in finished(wide, group)] == ["CANCELLED"]
    wide.do(lambda work: cancel(work, show_group(group), actor="tester"))
    with pytest.raises(Conflict, match="was cancelled"):
        wide.submit(group="group-1")


def test_cancelled_after_all_had_succeeded_it_has_succeeded(wide: Scheduler) -> None:
    group, jobs = wide.submit_group({})
    wide.do(lambda work: cancel(work, show_group(group), actor="tester"))
    wide.end(jobs[0])
    assert wide.group(group).status == "COMPLETED"
    other, jobs = wide.submit_group({})
    wide.end(jobs[0])
    with pytest.raises(Conflict, match="over already"):
        wide.do(lambda work: cancel(work, show_group(other), actor="tester"))


def test_a_manual_retry_stays_in_the_group(wide: Scheduler) -> None:
    """LESSONS Groups: manual retry dropped the group."""
    group, jobs = wide.submit_group({}, {}, {}, mode="sequential")
    wide.end(jobs[0], 1)
    told = try_again(wide, jobs[0])
    assert told.dropped == jobs[1:]
    assert (
        told.advice
        == "job-2, job-3 stay as the group's policy left them; `rota group rewind group-1` lets them run too"
    )
    assert wide.group(group).status == "RUNNING"
    assert wide.group(group).finished_at is None
    wide.end(told.job)
    assert wide.job(told.job).group == group
    assert wide.group(group).status == "PARTIAL"
    assert [each["counts"] for each in finished(wide, group)] == [
        {"CANCELLED": 2, "FAILED": 1}, {"CANCELLED": 2, "COMPLETED": 1},
    ]  # fmt: skip


def test_a_rewound_group_runs_again_and_ends_anew(wide: Scheduler) -> None:
    group, jobs = wide.submit_group({}, {}, {}, mode="sequential")
    wide.end(jobs[0])
    wide.end(jobs[1], 1)
    assert wide.rewind(jobs[1]).reset == [show_job(job) for job in jobs[1:]]
    assert wide.group(group).status == "RUNNING"
    wide.end(jobs[1])
    wide.end(jobs[2])
    assert wide.group(group).status == "COMPLETED"
    assert [each["status"] for each in finished(wide, group)] == ["PARTIAL", "COMPLETED"]


def test_a_rewound_group_is_not_cancelled_any_more(wide: Scheduler) -> None:
    group, jobs = wide.submit_group({}, {}, mode="sequential")
    wide.do(lambda work: cancel(work, show_group(group), actor="tester"))
    wide.end(jobs[0], None, signal=15, ended_by="stop")
    wide.rewind(jobs[0])
    assert wide.group(group).cancelled_at is None
    wide.drain()
    assert wide.group(group).status == "COMPLETED"


def test_an_empty_group_stays_open_until_it_is_closed(wide: Scheduler) -> None:
    group = wide.do(lambda work: add(work, GroupWanted(name="slow", mode="sequential"), actor="tester"))
    assert wide.group(group).status == "QUEUED"
    first = wide.submit(group="slow")
    wide.end(first)
    assert wide.group(group).status == "RUNNING"
    second = wide.submit(group="slow")
    third = wide.submit(group=show_group(group))
    assert (wide.job(second).sequence, wide.job(third).sequence) == (2, 3)
    assert wide.show(third).after == [EdgeForm(job=show_job(second), policy="finished")]
    wide.do(lambda work: close(work, "slow", actor="tester"))
    wide.drain()
    assert wide.group(group).status == "COMPLETED"
    assert len(finished(wide, group)) == 1
    with pytest.raises(Conflict, match="is over"):
        wide.submit(group="group-1")


def test_closing_one_whose_members_have_ended_finishes_it(wide: Scheduler) -> None:
    group = wide.do(lambda work: add(work, GroupWanted(), actor="tester"))
    wide.end(wide.submit(group=show_group(group)))
    assert finished(wide, group) == []
    wide.do(lambda work: close(work, show_group(group), actor="tester"))
    wide.do(lambda work: close(work, show_group(group), actor="tester"))
    assert [each["status"] for each in finished(wide, group)] == ["COMPLETED"]


def test_who_would_be_ended_at_once_cannot_join(wide: Scheduler) -> None:
    group, jobs = wide.submit_group({}, {})
    wide.end(jobs[0], 1)
    with pytest.raises(Conflict, match="takes no further members: job-1 is FAILED and its policy is stop"):
        wide.submit(group=show_group(group))
    spared = wide.submit(group=show_group(group), after=[f"job-{jobs[0]}:failed"])
    assert wide.status(spared) is Status.DISPATCHED
    assert wide.group(group).total == 3


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"group": "nobody"}, NotFound, "no such group: nobody"),
        ({"group": "group-9"}, NotFound, "no such group: group-9"),
        ({"group": "group-x"}, InvalidInput, "not a group id"),
    ],
)
def test_unknown_groups_are_refused(wide: Scheduler, fields: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        wide.submit(**fields)


def test_unknown_policies_and_rings_are_refused_and_leave_no_trace(wide: Scheduler) -> None:
    with pytest.raises(InvalidInput, match="there is stop, continue, skip"):
        wide.submit_group({}, on_failure="shrug")
    with pytest.raises(InvalidInput, match="invalid --after cycle"):
        wide.submit_group({"after": ["b"]}, {"local": "b"}, mode="sequential")
    for name in ("group-7", "7", "a/b", "a b", ""):
        with pytest.raises(InvalidInput, match="not a usable name"):
            wide.submit_group({}, name=name)
    with pytest.raises(InvalidInput, match="cannot join another"):
        wide.submit_group({"group": "g"})
    assert wide.reader.list_groups(limit=9, with_ended=True) == []
    assert wide.submit_group({})[0] == 1


def test_what_is_put_off_or_active_already_makes_no_group(wide: Scheduler) -> None:
    """A group is one submit, taken or not as a whole."""
    holder = wide.submit(unique="k")
    told = wide.answer_group({}, {"unique": "k"})
    assert isinstance(told, AlreadyActive)
    assert told.jobs == [holder]
    wide.set_pools(**{"global": 0})
    wide.submit()
    wide.set_queue(QueueLimit(hard=1))
    assert isinstance(wide.answer_group({}, {}), Deferred)
    assert wide.reader.list_groups(limit=9, with_ended=True) == []


def test_several_join_in_one_batch_and_stand_behind_each_other(wide: Scheduler) -> None:
    wide.submit_group({}, {}, mode="sequential", name="g")
    told = wide.do(lambda work: submit(work, [Submission(command=["true"], group="g")] * 2, AROUND, actor="tester"))
    assert [wide.job(job).sequence for job in told.jobs] == [3, 4]
    assert [edge.predecessor for job in told.jobs for edge in wide.job(job).after] == [2, 3]
    assert wide.drain() == [1, 2, 3, 4]
    other = wide.submit_group({}, name="h")[0]
    wide.submit_group({}, name="h")
    with pytest.raises(Conflict, match="several groups that are not over are called 'h': group-3, group-2"):
        wide.submit(group="h")
    assert wide.job(wide.submit(group=show_group(other))).group == other


def test_why_says_whose_failure_it_was(wide: Scheduler) -> None:
    _, jobs = wide.submit_group({}, {}, mode="sequential")
    wide.end(jobs[0], 1)
    assert wide.why(jobs[1])["text"] == (
        "job-2 is CANCELLED: predecessor failed; job-1 of group-1 failed, and its policy is stop"
    )


def test_recovery_finishes_what_was_left(wide: Scheduler, raw: Any) -> None:
    group, jobs = wide.submit_group({})
    wide.end(jobs[0])
    raw("UPDATE job_group SET finished_at = NULL")
    wide.crash()
    reports = [event.data for event in wide.events if event.kind == "scheduler.recovered"]
    assert [each["groups_recovered"] for each in reports] == [1]
    assert wide.group(group).finished_at is not None
    wide.crash()
    assert len([event for event in wide.events if event.kind == "scheduler.recovered"]) == 1


class Odd:
    """A user's own policy: skips every second one, and cannot bear the number 3."""

    def fates(self, failed: Any, waiting: Any) -> Any:
        if failed.sequence == 3:
            raise RuntimeError("three")
        return {member.job: "skip" for member in waiting if member.sequence % 2}


def test_a_policy_of_ones_own(wide: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.engine.group.group_policy_named", lambda _name: Odd())
    monkeypatch.setattr("rota.command.group.group_policy_named", lambda _name: Odd())
    wait = {"after": ["z"]}
    _, jobs = wide.submit_group({"local": "z"}, {}, wait, wait, wait, on_failure="odd")
    wide.end(jobs[1], 1)
    assert statuses(wide, jobs[2:]) == [S, Status.WAITING_ON_DEPS, S]


def test_a_policy_that_raises_counts_as_stop(
    wide: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rota.engine.group.group_policy_named", lambda _name: Odd())
    monkeypatch.setattr("rota.command.group.group_policy_named", lambda _name: Odd())
    _, jobs = wide.submit_group({"local": "z"}, {}, {}, {"after": ["z"]}, on_failure="odd")
    with caplog.at_level(logging.ERROR):
        wide.end(jobs[2], 1)
    assert wide.status(jobs[3]) is X
    assert "the failure policy odd of group-1 failed; stop is used" in caplog.text


def test_a_policy_that_is_gone_counts_as_stop(wide: Scheduler, raw: Any) -> None:
    _, jobs = wide.submit_group({}, {}, mode="sequential", on_failure="continue")
    raw("UPDATE job_group SET on_failure = 'gone'")
    wide.end(jobs[0], 1)
    assert wide.status(jobs[1]) is X


def test_locks_and_lanes_of_dropped_members_are_left(make_scheduler: Any) -> None:
    scheduler = make_scheduler(**{"global": 2})
    _, jobs = scheduler.submit_group({}, {"locks": [{"key": "k"}]}, {"locks": [{"key": "k"}]}, {})
    other = scheduler.submit(locks=["k"])
    assert scheduler.started() == jobs[:2]
    scheduler.end(jobs[0], 1)
    assert statuses(scheduler, jobs) == [F, Status.DISPATCHED, X, X]
    scheduler.end(jobs[1])
    assert scheduler.started()[-1] == other


def test_what_failed_of_a_group_is_rewound_together(wide: Scheduler) -> None:
    group, jobs = wide.submit_group(
        {}, {"local": "b"}, {"after": ["b"]}, {"after": ["b"], "local": "d"}, on_failure="skip"
    )
    after = wide.submit(after=[jobs[3]])
    wide.end(jobs[0])
    wide.end(jobs[1], 1)
    assert statuses(wide, [*jobs, after]) == [C, F, S, S, B]
    report = rewind_group(wide, group)
    assert report.reset == [show_job(job) for job in [*jobs[1:], after]]
    assert wide.group(group).status == "RUNNING"
    wide.drain()
    assert wide.group(group).status == "COMPLETED"
    assert wide.status(after) is C
    with pytest.raises(Conflict, match="nothing of group-1 has failed"):
        rewind_group(wide, group)


def test_a_rewind_says_whom_the_policy_has_left_out(wide: Scheduler) -> None:
    _, jobs = wide.submit_group({"local": "a"}, {}, {"after": ["a"]}, {"after": ["a"], "delay": "1h"})
    wide.end(jobs[0], 1)
    wide.end(jobs[1], 1)
    assert wide.rewind(jobs[1]).warnings == [
        "job-3, job-4 of group-1 stay as its policy left them; `rota group rewind group-1` puts them back too"
    ]
    assert wide.rewind(jobs[0]).warnings == []


def rewind_group(scheduler: Scheduler, group: GroupId) -> Report:
    area = survey_group(scheduler.reader, show_group(group), scheduler.sight.outside)
    sighted = look(area, scheduler.probe, scheduler.engine.known.begin())
    report: Report = scheduler.do(lambda work: rewind(work, area, sighted, actor="tester"), reports)
    return report


MANY = 2_000


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_thousands_end_in_as_many_statements_as_two(make_scheduler: Any, mode: str) -> None:
    """All in the transaction of the failure, each with its event."""
    scheduler = make_scheduler(**{"global": 1})
    took = []
    for size in (3, MANY):
        group, jobs = scheduler.submit_group(*[{}] * size, mode=mode)
        with counting(scheduler) as statements:
            scheduler.end(jobs[0], 1)
        assert scheduler.group(group).counts == {"FAILED": 1, "CANCELLED": size - 1}
        assert (
            len([event for event in scheduler.events if event.cause == "group" and event.job in set(jobs)]) == size - 1
        )
        took.append(len(statements))
    assert took[1] <= took[0] + 5


@contextmanager
def counting(scheduler: Scheduler) -> Iterator[list[str]]:
    """The names of the statements that are run meanwhile."""
    database, names = scheduler.session._db, list[str]()
    with pytest.MonkeyPatch.context() as patch:
        for verb in ("rows", "run", "run_many"):
            patch.setattr(database, verb, _noting(getattr(database, verb), names))
        yield names


def _noting(verb: Any, names: list[str]) -> Any:
    def noted(name: str, /, *args: Any, **values: Any) -> Any:
        names.append(name)
        return verb(name, *args, **values)

    return noted


@pytest.mark.parametrize(("policy", "status"), [("stop", Status.CANCELLED), ("skip", Status.SKIPPED)])
def test_a_claim_that_comes_to_nothing_after_the_policy_has_spoken_is_ended_too(
    make_scheduler: Callable[..., Scheduler], policy: str, status: Status
) -> None:
    scheduler = make_scheduler(**{"global": 3})
    _, (first, second, third) = scheduler.submit_group(
        {"local": "a"}, {}, {"after": ["a:finished"]}, on_failure=policy
    )  # fmt: skip
    scheduler.end(first, 1)
    scheduler.say(FailedToStart(run=scheduler.run_of(second), error="no such program"))
    assert scheduler.status(second) is status
    assert scheduler.status(third) is Status.DISPATCHED
    scheduler.say(FailedToStart(run=scheduler.run_of(third), error="no such program"))
    assert scheduler.status(third) is Status.QUEUED


def test_who_was_put_back_by_hand_after_that_goes_on(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    _, (first, second) = scheduler.submit_group({}, {"delay": "1h"}, on_failure="stop")
    scheduler.end(first, 1)
    assert scheduler.status(second) is Status.CANCELLED
    scheduler.clock.advance(minutes=1)
    again: Retried = scheduler.do(lambda work: retry(work, show_job(second), actor="me"))
    scheduler.say(FailedToStart(run=scheduler.run_of(again.job), error="no such program"))
    assert scheduler.status(again.job) is Status.QUEUED


def test_a_name_that_two_have_names_neither(scheduler: Scheduler) -> None:
    one, _ = scheduler.submit_group({}, name="night")
    two, _ = scheduler.submit_group({"delay": "1h"}, name="night")
    with pytest.raises(Conflict, match=f"{show_group(two)}, {show_group(one)}; name one by its id"):
        scheduler.do(lambda work: cancel(work, "night", actor="me"))
    scheduler.end(scheduler.started()[0] if scheduler.started() else JobId(1))
    assert scheduler.reader.group_called("night").id == two


def test_a_member_whose_record_cannot_be_read_ends_the_others_and_harms_nobody_else(
    make_scheduler: Callable[..., Scheduler], raw: Raw
) -> None:
    """The policy ends members that were read together with it: what was read of them before counts no more."""
    scheduler = make_scheduler(**{"global": 5})
    before = scheduler.submit()
    _, members = scheduler.submit_group(*[{"after": [f"{show_job(before)}:finished"]}] * 3, on_failure="stop")
    raw(f"UPDATE job SET waited_on = 'bogus' WHERE id = {members[0]}")
    scheduler.end(before)
    assert scheduler.engine.trouble is None
    assert [scheduler.status(job) for job in members] == [Status.FAILED, Status.CANCELLED, Status.CANCELLED]
    assert scheduler.status(scheduler.submit()) is Status.DISPATCHED
