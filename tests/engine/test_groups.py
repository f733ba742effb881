"""Groups: effects of a failure on other members (DEC-012) and the end of a group (INV-006)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rota.errors import Conflict, InvalidInput, NotFound
from rota.executor.port import ExitReport, StartFailure
from rota.groups.commands import cancel, close, create_group
from rota.ids import GroupId, JobId, format_group_id, format_job_id
from rota.jobs.retry import RetryOutcome, retry
from rota.jobs.rewind import RewindReport, find_group_rewind_set, probe_rewind_facts, render_reports, rewind
from rota.jobs.schemas import Predecessor
from rota.jobs.submission import DefaultEnvironment, GroupRequest, Submission
from rota.jobs.submit import DeferredSubmit, DuplicateSubmit, submit
from rota.kernel.backpressure import QueueLimit
from rota.kernel.status import Status
from tests.harness import Scheduler, SqlRunner

ENVIRONMENT = DefaultEnvironment(cwd="/", variables={})
C, F, S, X, B = (Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED, Status.BLOCKED_BY_DEPENDENCY)


def statuses(scheduler: Scheduler, jobs: list[JobId]) -> list[Status]:
    return [scheduler.status(job) for job in jobs]


def group_ends(scheduler: Scheduler, group: GroupId) -> list[Any]:
    """Return the data of each `group.finished` event of the group."""
    return [event.data for event in scheduler.events if event.kind == "group.finished" and event.group == group]


def retry_job(scheduler: Scheduler, job: JobId) -> RetryOutcome:
    result: RetryOutcome = scheduler.run_request(lambda tx: retry(tx, format_job_id(job), actor="tester"))
    return result


def test_sequential_group_runs_one_member_at_a_time(unlimited_scheduler: Scheduler) -> None:
    group, jobs = unlimited_scheduler.submit_group({}, {}, {}, mode="sequential", name="nightly")
    assert unlimited_scheduler.started_jobs() == jobs[:1]
    assert unlimited_scheduler.wait_detail(jobs[1]) == f"waiting on job {format_job_id(jobs[0])}"
    assert unlimited_scheduler.show_job(jobs[1]).after == [Predecessor(job=format_job_id(jobs[0]), policy="finished")]
    assert unlimited_scheduler.drain() == jobs
    shown = unlimited_scheduler.show_group(group)
    assert (shown.status, shown.counts, shown.total, shown.name) == ("COMPLETED", {"COMPLETED": 3}, 3, "nightly")
    assert group_ends(unlimited_scheduler, group) == [
        {"group": "group-1", "status": "COMPLETED", "counts": {"COMPLETED": 3}, "total": 3}
    ]


def test_dec_012_failure_stops_sequential_group(unlimited_scheduler: Scheduler) -> None:
    """DEC-012: the remaining members are cancelled, none of them starts, and the group is PARTIAL."""
    group, jobs = unlimited_scheduler.submit_group({}, {}, {}, {}, mode="sequential")
    unlimited_scheduler.end_run(jobs[0])
    unlimited_scheduler.end_run(jobs[1], 1)
    assert statuses(unlimited_scheduler, jobs) == [C, F, X, X]
    assert {(unlimited_scheduler.job(job).reason, unlimited_scheduler.job(job).exit_code) for job in jobs[2:]} == {
        ("predecessor failed", 143)
    }
    assert unlimited_scheduler.show_group(group).status == "PARTIAL"
    assert unlimited_scheduler.started_jobs() == jobs[:2]
    assert [end["status"] for end in group_ends(unlimited_scheduler, group)] == ["PARTIAL"]


def test_dec_012_member_is_retried_before_the_group_decides(unlimited_scheduler: Scheduler) -> None:
    """DEC-012, LESSONS Groups: a group stayed PARTIAL though its member succeeded on retry."""
    group, jobs = unlimited_scheduler.submit_group({"retries": 1}, {}, mode="sequential")
    unlimited_scheduler.end_run(jobs[0], 1)
    assert unlimited_scheduler.show_group(group).status == "RUNNING"
    assert unlimited_scheduler.status(jobs[1]) is Status.WAITING_ON_DEPS
    unlimited_scheduler.clock.advance(minutes=1)
    unlimited_scheduler.run_turns()
    again = unlimited_scheduler.started_jobs()[-1]
    assert unlimited_scheduler.job(again).group == group
    unlimited_scheduler.end_run(again)
    unlimited_scheduler.end_run(jobs[1])
    assert unlimited_scheduler.show_group(group).status == "COMPLETED"
    assert unlimited_scheduler.show_group(group).jobs == [format_job_id(again), format_job_id(jobs[1])]


def test_inv_006_group_does_not_end_while_a_member_is_active(unlimited_scheduler: Scheduler) -> None:
    """INV-006: members that run when another fails continue, and so does the group."""
    group, jobs = unlimited_scheduler.submit_group({}, {}, {"retries": 2})
    assert unlimited_scheduler.show_group(group).status == "RUNNING"
    unlimited_scheduler.end_run(jobs[0], 1)
    unlimited_scheduler.end_run(jobs[2], 1)
    assert statuses(unlimited_scheduler, jobs) == [F, Status.DISPATCHED, F]
    unlimited_scheduler.end_run(jobs[1])
    assert unlimited_scheduler.show_group(group).status == "RUNNING"
    assert group_ends(unlimited_scheduler, group) == []
    unlimited_scheduler.clock.advance(minutes=1)
    unlimited_scheduler.run_turns()
    unlimited_scheduler.end_run(unlimited_scheduler.started_jobs()[-1])
    assert unlimited_scheduler.show_group(group).status == "PARTIAL"
    assert len(group_ends(unlimited_scheduler, group)) == 1


def test_group_without_started_members_is_queued(make_scheduler: Any) -> None:
    scheduler = make_scheduler(**{"global": 0})
    group, jobs = scheduler.submit_group({}, {})
    assert scheduler.show_group(group).status == "QUEUED"
    scheduler.cancel(jobs[0])
    assert scheduler.show_group(group).status == "QUEUED"
    scheduler.set_pools(**{"global": 1})
    assert scheduler.show_group(group).status == "RUNNING"


@pytest.mark.parametrize(("policy", "outcome"), [("stop", X), ("skip", S)])
def test_policy_decides_before_the_after_gate(unlimited_scheduler: Scheduler, policy: str, outcome: Status) -> None:
    """A member that needs the failed one's success is not BLOCKED, although its edge cannot be met."""
    _, jobs = unlimited_scheduler.submit_group({"local": "a"}, {"after": ["a"]}, {"after": ["a"]}, on_failure=policy)
    unlimited_scheduler.end_run(jobs[0], 1)
    assert statuses(unlimited_scheduler, jobs) == [F, outcome, outcome]


def test_continue_policy_starts_next_member(unlimited_scheduler: Scheduler) -> None:
    group, jobs = unlimited_scheduler.submit_group(
        {"local": "a"}, {"after": ["a"]}, {}, mode="sequential", on_failure="continue"
    )
    unlimited_scheduler.end_run(jobs[0], 1)
    assert statuses(unlimited_scheduler, jobs) == [F, B, Status.DISPATCHED]
    unlimited_scheduler.end_run(jobs[2])
    assert unlimited_scheduler.show_group(group).status == "PARTIAL"


@pytest.mark.parametrize("edge", ["a:finished", "a:failed"])
def test_member_with_explicit_edge_to_the_failure_is_spared(unlimited_scheduler: Scheduler, edge: str) -> None:
    group, jobs = unlimited_scheduler.submit_group({"local": "a"}, {}, {"after": [edge]}, mode="sequential")
    unlimited_scheduler.end_run(jobs[0], 1)
    assert statuses(unlimited_scheduler, jobs) == [F, X, Status.DISPATCHED]
    unlimited_scheduler.end_run(jobs[2])
    assert unlimited_scheduler.show_group(group).status == "PARTIAL"


def test_dependent_of_spared_member_is_not_spared(unlimited_scheduler: Scheduler) -> None:
    _, jobs = unlimited_scheduler.submit_group(
        {"local": "a"}, {"local": "b", "after": ["a:finished"]}, {"after": ["b"]}
    )
    unlimited_scheduler.end_run(jobs[0], 1)
    assert statuses(unlimited_scheduler, jobs) == [F, Status.DISPATCHED, X]


def test_member_waiting_for_retry_is_not_cancelled(make_scheduler: Any) -> None:
    scheduler = make_scheduler(**{"global": 2})
    _, jobs = scheduler.submit_group({"retries": 1}, {}, {})
    scheduler.end_run(jobs[0], 1)
    again = JobId(jobs[-1] + 1)
    assert scheduler.started_jobs() == jobs
    scheduler.end_run(jobs[1], 1)
    assert scheduler.status(again) is Status.QUEUED
    scheduler.end_run(jobs[2])
    scheduler.clock.advance(minutes=1)
    scheduler.run_turns()
    assert scheduler.started_jobs()[-1] == again


def test_skipped_by_policy_is_no_success_outside_the_group(unlimited_scheduler: Scheduler) -> None:
    """This holds immediately, for a later submit, after a crash and after a rewind."""
    _, jobs = unlimited_scheduler.submit_group({"local": "a"}, {"local": "b", "after": ["a"]}, on_failure="skip")
    outside, whatever = (
        unlimited_scheduler.submit(after=[jobs[1]]),
        unlimited_scheduler.submit(after=[f"job-{jobs[1]}:finished"]),
    )
    unlimited_scheduler.end_run(jobs[0], 1)
    assert statuses(unlimited_scheduler, [jobs[1], outside, whatever]) == [S, B, Status.DISPATCHED]
    assert unlimited_scheduler.job(outside).reason == f"dependency failed for job {format_job_id(jobs[1])} (SKIPPED)"
    later = unlimited_scheduler.submit(after=[jobs[1]])
    assert unlimited_scheduler.status(later) is B
    with pytest.raises(Conflict, match="would be blocked again"):
        retry_job(unlimited_scheduler, outside)
    unlimited_scheduler.crash()
    unlimited_scheduler.rewind(later)
    assert unlimited_scheduler.status(later) is B
    assert unlimited_scheduler.job(later).reason == f"dependency failed for job {format_job_id(jobs[1])} (SKIPPED)"


def test_skipped_by_policy_is_a_success_within_the_group(unlimited_scheduler: Scheduler) -> None:
    _, jobs = unlimited_scheduler.submit_group(
        {"local": "a"}, {"local": "b", "after": ["a"]}, {"after": ["a:finished", "b"]}, on_failure="skip"
    )
    unlimited_scheduler.end_run(jobs[0], 1)
    assert statuses(unlimited_scheduler, jobs) == [F, S, Status.DISPATCHED]


def test_producer_skipped_by_policy_has_not_produced(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.submit_group({"local": "a"}, {"after": ["a"], "produces": ["custom:t:x"]}, on_failure="skip")
    needs = unlimited_scheduler.submit(needs=["custom:t:x"])
    unlimited_scheduler.end_run(JobId(1), 1)
    assert unlimited_scheduler.job(needs).reason == "dependency failed for custom:t:x"


def test_cancelled_member_is_no_failure(unlimited_scheduler: Scheduler) -> None:
    group, jobs = unlimited_scheduler.submit_group({}, {}, {}, mode="sequential")
    unlimited_scheduler.cancel(jobs[1])
    unlimited_scheduler.end_run(jobs[0])
    assert statuses(unlimited_scheduler, jobs) == [C, X, Status.DISPATCHED]
    unlimited_scheduler.end_run(jobs[2])
    assert unlimited_scheduler.show_group(group).status == "PARTIAL"


def test_member_that_cannot_start_has_failed(unlimited_scheduler: Scheduler) -> None:
    _, jobs = unlimited_scheduler.submit_group({}, {}, mode="sequential")
    for _ in range(3):
        unlimited_scheduler.receive(StartFailure(run=unlimited_scheduler.find_run(jobs[0]), error="no such program"))
        unlimited_scheduler.clock.advance(seconds=10)
        unlimited_scheduler.run_turns()
    assert statuses(unlimited_scheduler, jobs) == [F, X]


def test_group_ends_when_its_last_claimed_member_cannot_start(unlimited_scheduler: Scheduler) -> None:
    """The member is claimed when the policy decides, so it is dropped when its start fails, and the group ends then."""
    group, (failed, claimed) = unlimited_scheduler.submit_group({}, {})
    unlimited_scheduler.clock.advance(seconds=1)
    unlimited_scheduler.end_run(failed, 1)
    assert group_ends(unlimited_scheduler, group) == []
    unlimited_scheduler.receive(StartFailure(run=unlimited_scheduler.find_run(claimed), error="no such program"))
    assert statuses(unlimited_scheduler, [failed, claimed]) == [F, X]
    assert [end["status"] for end in group_ends(unlimited_scheduler, group)] == ["PARTIAL"]


def test_claimed_member_is_dropped_once_after_two_failures(unlimited_scheduler: Scheduler) -> None:
    _, (first, second, claimed) = unlimited_scheduler.submit_group({}, {}, {}, on_failure="stop")
    unlimited_scheduler.end_run(first, 1)
    unlimited_scheduler.end_run(second, 1)
    unlimited_scheduler.receive(StartFailure(run=unlimited_scheduler.find_run(claimed), error="no such program"))
    assert unlimited_scheduler.status(claimed) is Status.CANCELLED
    ends = [event for event in unlimited_scheduler.events if (event.kind, event.job) == ("job.cancelled", claimed)]
    assert len(ends) == 1


def test_claimed_member_is_dropped_when_clock_is_set_back(unlimited_scheduler: Scheduler) -> None:
    """By the clock it was queued after the failure; by order of events, it was claimed before."""
    _, (failed, claimed) = unlimited_scheduler.submit_group({}, {})
    unlimited_scheduler.clock.advance(minutes=-1)
    unlimited_scheduler.end_run(failed, 1)
    unlimited_scheduler.receive(StartFailure(run=unlimited_scheduler.find_run(claimed), error="no such program"))
    assert statuses(unlimited_scheduler, [failed, claimed]) == [F, X]


def test_claimed_member_is_dropped_when_both_are_reported_together(unlimited_scheduler: Scheduler) -> None:
    _, (failed, claimed) = unlimited_scheduler.submit_group({}, {})
    unlimited_scheduler.clock.advance(minutes=-1)
    run = unlimited_scheduler.find_run(failed)
    unlimited_scheduler.receive(
        ExitReport(run=run, at=unlimited_scheduler.clock.moment.timestamp(), code=1),
        StartFailure(run=unlimited_scheduler.find_run(claimed), error="no such program"),
    )
    assert statuses(unlimited_scheduler, [failed, claimed]) == [F, X]


def test_member_rewound_after_the_failure_is_kept_whatever_the_clock(unlimited_scheduler: Scheduler) -> None:
    _, (failed, again) = unlimited_scheduler.submit_group({}, {})
    unlimited_scheduler.end_run(again)
    unlimited_scheduler.end_run(failed, 1)
    unlimited_scheduler.clock.advance(minutes=-1)
    unlimited_scheduler.rewind(again)
    unlimited_scheduler.receive(StartFailure(run=unlimited_scheduler.find_run(again), error="no such program"))
    assert unlimited_scheduler.job(again).status is Status.QUEUED


def test_blocked_member_has_failed(unlimited_scheduler: Scheduler) -> None:
    other = unlimited_scheduler.submit()
    group, jobs = unlimited_scheduler.submit_group({"after": [other]}, {}, {}, mode="sequential")
    unlimited_scheduler.end_run(other, 1)
    assert statuses(unlimited_scheduler, jobs) == [B, X, X]
    assert unlimited_scheduler.show_group(group).status == "PARTIAL"


def test_cancel_of_group_cancels_all_members(unlimited_scheduler: Scheduler) -> None:
    group, jobs = unlimited_scheduler.submit_group(
        {"retries": 3}, {"retries": 3}, {"after": ["b"]}, {"local": "b"}, name="g"
    )
    unlimited_scheduler.end_run(jobs[0], 1)
    unlimited_scheduler.run_request(lambda tx: cancel(tx, "g", actor="tester"))
    assert unlimited_scheduler.show_group(group).status == "RUNNING"
    assert unlimited_scheduler.executor.stops == [
        unlimited_scheduler.find_run(jobs[1]),
        unlimited_scheduler.find_run(jobs[3]),
    ]
    for job in (jobs[1], jobs[3]):
        unlimited_scheduler.end_run(job, None, signal=15, ended_by="stop")
    shown = unlimited_scheduler.show_group(group)
    assert (shown.status, shown.counts) == ("CANCELLED", {"CANCELLED": 4})
    assert unlimited_scheduler.job(jobs[2]).exit_code == 143
    assert unlimited_scheduler.job(jobs[2]).reason == "cancelled by tester"
    assert [end["status"] for end in group_ends(unlimited_scheduler, group)] == ["CANCELLED"]
    unlimited_scheduler.run_request(lambda tx: cancel(tx, format_group_id(group), actor="tester"))
    with pytest.raises(Conflict, match="was cancelled"):
        unlimited_scheduler.submit(group="group-1")


def test_cancelled_group_whose_members_succeeded_is_completed(unlimited_scheduler: Scheduler) -> None:
    group, jobs = unlimited_scheduler.submit_group({})
    unlimited_scheduler.run_request(lambda tx: cancel(tx, format_group_id(group), actor="tester"))
    unlimited_scheduler.end_run(jobs[0])
    assert unlimited_scheduler.show_group(group).status == "COMPLETED"
    other, jobs = unlimited_scheduler.submit_group({})
    unlimited_scheduler.end_run(jobs[0])
    with pytest.raises(Conflict, match="over already"):
        unlimited_scheduler.run_request(lambda tx: cancel(tx, format_group_id(other), actor="tester"))


def test_manual_retry_stays_in_the_group(unlimited_scheduler: Scheduler) -> None:
    """LESSONS Groups: manual retry dropped the group."""
    group, jobs = unlimited_scheduler.submit_group({}, {}, {}, mode="sequential")
    unlimited_scheduler.end_run(jobs[0], 1)
    result = retry_job(unlimited_scheduler, jobs[0])
    assert result.dropped == jobs[1:]
    assert (
        result.advice
        == "job-2, job-3 stay as the group's policy left them; `rota group rewind group-1` lets them run too"
    )
    assert unlimited_scheduler.show_group(group).status == "RUNNING"
    assert unlimited_scheduler.show_group(group).finished_at is None
    unlimited_scheduler.end_run(result.job)
    assert unlimited_scheduler.job(result.job).group == group
    assert unlimited_scheduler.show_group(group).status == "PARTIAL"
    assert [end["counts"] for end in group_ends(unlimited_scheduler, group)] == [
        {"CANCELLED": 2, "FAILED": 1},
        {"CANCELLED": 2, "COMPLETED": 1},
    ]


def test_rewound_group_runs_and_ends_again(unlimited_scheduler: Scheduler) -> None:
    group, jobs = unlimited_scheduler.submit_group({}, {}, {}, mode="sequential")
    unlimited_scheduler.end_run(jobs[0])
    unlimited_scheduler.end_run(jobs[1], 1)
    assert unlimited_scheduler.rewind(jobs[1]).reset == [format_job_id(job) for job in jobs[1:]]
    assert unlimited_scheduler.show_group(group).status == "RUNNING"
    unlimited_scheduler.end_run(jobs[1])
    unlimited_scheduler.end_run(jobs[2])
    assert unlimited_scheduler.show_group(group).status == "COMPLETED"
    assert [end["status"] for end in group_ends(unlimited_scheduler, group)] == ["PARTIAL", "COMPLETED"]


def test_rewound_group_is_not_cancelled(unlimited_scheduler: Scheduler) -> None:
    group, jobs = unlimited_scheduler.submit_group({}, {}, mode="sequential")
    unlimited_scheduler.run_request(lambda tx: cancel(tx, format_group_id(group), actor="tester"))
    unlimited_scheduler.end_run(jobs[0], None, signal=15, ended_by="stop")
    unlimited_scheduler.rewind(jobs[0])
    assert unlimited_scheduler.show_group(group).cancelled_at is None
    unlimited_scheduler.drain()
    assert unlimited_scheduler.show_group(group).status == "COMPLETED"


def test_empty_group_stays_open_until_closed(unlimited_scheduler: Scheduler) -> None:
    group = unlimited_scheduler.run_request(
        lambda tx: create_group(tx, GroupRequest(name="slow", mode="sequential"), actor="tester")
    )
    assert unlimited_scheduler.show_group(group).status == "QUEUED"
    first = unlimited_scheduler.submit(group="slow")
    unlimited_scheduler.end_run(first)
    assert unlimited_scheduler.show_group(group).status == "RUNNING"
    second = unlimited_scheduler.submit(group="slow")
    third = unlimited_scheduler.submit(group=format_group_id(group))
    assert (unlimited_scheduler.job(second).sequence, unlimited_scheduler.job(third).sequence) == (2, 3)
    assert unlimited_scheduler.show_job(third).after == [Predecessor(job=format_job_id(second), policy="finished")]
    unlimited_scheduler.run_request(lambda tx: close(tx, "slow", actor="tester"))
    unlimited_scheduler.drain()
    assert unlimited_scheduler.show_group(group).status == "COMPLETED"
    assert len(group_ends(unlimited_scheduler, group)) == 1
    with pytest.raises(Conflict, match="is over"):
        unlimited_scheduler.submit(group="group-1")


def test_close_finishes_group_whose_members_have_ended(unlimited_scheduler: Scheduler) -> None:
    group = unlimited_scheduler.run_request(lambda tx: create_group(tx, GroupRequest(), actor="tester"))
    unlimited_scheduler.end_run(unlimited_scheduler.submit(group=format_group_id(group)))
    assert group_ends(unlimited_scheduler, group) == []
    unlimited_scheduler.run_request(lambda tx: close(tx, format_group_id(group), actor="tester"))
    unlimited_scheduler.run_request(lambda tx: close(tx, format_group_id(group), actor="tester"))
    assert [end["status"] for end in group_ends(unlimited_scheduler, group)] == ["COMPLETED"]


def test_member_that_would_end_immediately_cannot_join(unlimited_scheduler: Scheduler) -> None:
    group, jobs = unlimited_scheduler.submit_group({}, {})
    unlimited_scheduler.end_run(jobs[0], 1)
    with pytest.raises(Conflict, match="takes no further members: job-1 is FAILED and its policy is stop"):
        unlimited_scheduler.submit(group=format_group_id(group))
    spared = unlimited_scheduler.submit(group=format_group_id(group), after=[f"job-{jobs[0]}:failed"])
    assert unlimited_scheduler.status(spared) is Status.DISPATCHED
    assert unlimited_scheduler.show_group(group).total == 3


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"group": "missing"}, NotFound, "no such group: missing"),
        ({"group": "group-9"}, NotFound, "no such group: group-9"),
        ({"group": "group-x"}, InvalidInput, "not a group id"),
    ],
)
def test_unknown_groups_are_refused(unlimited_scheduler: Scheduler, fields: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        unlimited_scheduler.submit(**fields)


def test_invalid_policies_and_cycles_are_refused_and_leave_no_trace(unlimited_scheduler: Scheduler) -> None:
    with pytest.raises(InvalidInput, match="known: stop, continue, skip"):
        unlimited_scheduler.submit_group({}, on_failure="shrug")
    with pytest.raises(InvalidInput, match="invalid --after cycle"):
        unlimited_scheduler.submit_group({"after": ["b"]}, {"local": "b"}, mode="sequential")
    for name in ("group-7", "7", "a/b", "a b", ""):
        with pytest.raises(InvalidInput, match="not a usable name"):
            unlimited_scheduler.submit_group({}, name=name)
    with pytest.raises(InvalidInput, match="cannot join another"):
        unlimited_scheduler.submit_group({"group": "g"})
    assert unlimited_scheduler.reader.groups.list_ids(limit=9, with_ended=True) == []
    assert unlimited_scheduler.submit_group({})[0] == 1


def test_deferred_or_duplicate_submit_creates_no_group(unlimited_scheduler: Scheduler) -> None:
    """A group is one submit, accepted or refused as a whole."""
    holder = unlimited_scheduler.submit(unique="k")
    result = unlimited_scheduler.try_submit_group({}, {"unique": "k"})
    assert isinstance(result, DuplicateSubmit)
    assert result.jobs == [holder]
    unlimited_scheduler.set_pools(**{"global": 0})
    unlimited_scheduler.submit()
    unlimited_scheduler.set_queue_limits(QueueLimit(hard=1))
    assert isinstance(unlimited_scheduler.try_submit_group({}, {}), DeferredSubmit)
    assert unlimited_scheduler.reader.groups.list_ids(limit=9, with_ended=True) == []


def test_members_that_join_in_one_batch_run_in_order(unlimited_scheduler: Scheduler) -> None:
    unlimited_scheduler.submit_group({}, {}, mode="sequential", name="g")
    result = unlimited_scheduler.run_request(
        lambda tx: submit(tx, [Submission(command=["true"], group="g")] * 2, ENVIRONMENT, actor="tester")
    )
    assert [unlimited_scheduler.job(job).sequence for job in result.jobs] == [3, 4]
    assert [edge.predecessor for job in result.jobs for edge in unlimited_scheduler.job(job).after] == [2, 3]
    assert unlimited_scheduler.drain() == [1, 2, 3, 4]
    other = unlimited_scheduler.submit_group({}, name="h")[0]
    unlimited_scheduler.submit_group({}, name="h")
    with pytest.raises(Conflict, match="several unfinished groups are named 'h': group-3, group-2"):
        unlimited_scheduler.submit(group="h")
    assert unlimited_scheduler.job(unlimited_scheduler.submit(group=format_group_id(other))).group == other


def test_why_names_the_failed_member(unlimited_scheduler: Scheduler) -> None:
    _, jobs = unlimited_scheduler.submit_group({}, {}, mode="sequential")
    unlimited_scheduler.end_run(jobs[0], 1)
    assert unlimited_scheduler.explain_wait(jobs[1])["text"] == (
        "job-2 is CANCELLED: predecessor failed; job-1 of group-1 failed, and its policy is stop"
    )


def test_recovery_finishes_groups(unlimited_scheduler: Scheduler, run_sql: Any) -> None:
    group, jobs = unlimited_scheduler.submit_group({})
    unlimited_scheduler.end_run(jobs[0])
    run_sql("UPDATE job_group SET finished_at = NULL")
    unlimited_scheduler.crash()
    reports = [event.data for event in unlimited_scheduler.events if event.kind == "scheduler.recovered"]
    assert [report["groups_recovered"] for report in reports] == [1]
    assert unlimited_scheduler.show_group(group).finished_at is not None
    unlimited_scheduler.crash()
    assert len([event for event in unlimited_scheduler.events if event.kind == "scheduler.recovered"]) == 1


class OddPolicy:
    """Policy of a user: skips every second member, and fails for the number 3."""

    def outcomes(self, failed: Any, waiting: Any) -> Any:
        if failed.sequence == 3:
            raise RuntimeError("three")
        return {member.job: "skip" for member in waiting if member.sequence % 2}


def test_custom_policy_decides(unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.engine.groups.load_group_policy", lambda _name: OddPolicy())
    monkeypatch.setattr("rota.groups.commands.load_group_policy", lambda _name: OddPolicy())
    wait = {"after": ["z"]}
    _, jobs = unlimited_scheduler.submit_group({"local": "z"}, {}, wait, wait, wait, on_failure="odd")
    unlimited_scheduler.end_run(jobs[1], 1)
    assert statuses(unlimited_scheduler, jobs[2:]) == [S, Status.WAITING_ON_DEPS, S]


def test_policy_that_raises_counts_as_stop(
    unlimited_scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rota.engine.groups.load_group_policy", lambda _name: OddPolicy())
    monkeypatch.setattr("rota.groups.commands.load_group_policy", lambda _name: OddPolicy())
    _, jobs = unlimited_scheduler.submit_group({"local": "z"}, {}, {}, {"after": ["z"]}, on_failure="odd")
    with caplog.at_level(logging.ERROR):
        unlimited_scheduler.end_run(jobs[2], 1)
    assert unlimited_scheduler.status(jobs[3]) is X
    assert "the failure policy odd of group-1 failed; stop is used" in caplog.text


def test_missing_policy_counts_as_stop(unlimited_scheduler: Scheduler, run_sql: Any) -> None:
    _, jobs = unlimited_scheduler.submit_group({}, {}, mode="sequential", on_failure="continue")
    run_sql("UPDATE job_group SET on_failure = 'gone'")
    unlimited_scheduler.end_run(jobs[0], 1)
    assert unlimited_scheduler.status(jobs[1]) is X


def test_dropped_members_leave_their_locks_and_lanes(make_scheduler: Any) -> None:
    scheduler = make_scheduler(**{"global": 2})
    _, jobs = scheduler.submit_group({}, {"locks": [{"key": "k"}]}, {"locks": [{"key": "k"}]}, {})
    other = scheduler.submit(locks=["k"])
    assert scheduler.started_jobs() == jobs[:2]
    scheduler.end_run(jobs[0], 1)
    assert statuses(scheduler, jobs) == [F, Status.DISPATCHED, X, X]
    scheduler.end_run(jobs[1])
    assert scheduler.started_jobs()[-1] == other


def test_failed_members_are_rewound_together(unlimited_scheduler: Scheduler) -> None:
    group, jobs = unlimited_scheduler.submit_group(
        {}, {"local": "b"}, {"after": ["b"]}, {"after": ["b"], "local": "d"}, on_failure="skip"
    )
    after = unlimited_scheduler.submit(after=[jobs[3]])
    unlimited_scheduler.end_run(jobs[0])
    unlimited_scheduler.end_run(jobs[1], 1)
    assert statuses(unlimited_scheduler, [*jobs, after]) == [C, F, S, S, B]
    report = rewind_group(unlimited_scheduler, group)
    assert report.reset == [format_job_id(job) for job in [*jobs[1:], after]]
    assert unlimited_scheduler.show_group(group).status == "RUNNING"
    unlimited_scheduler.drain()
    assert unlimited_scheduler.show_group(group).status == "COMPLETED"
    assert unlimited_scheduler.status(after) is C
    with pytest.raises(Conflict, match="nothing of group-1 has failed"):
        rewind_group(unlimited_scheduler, group)


def test_rewind_warns_of_members_dropped_by_policy(unlimited_scheduler: Scheduler) -> None:
    _, jobs = unlimited_scheduler.submit_group({"local": "a"}, {}, {"after": ["a"]}, {"after": ["a"], "delay": "1h"})
    unlimited_scheduler.end_run(jobs[0], 1)
    unlimited_scheduler.end_run(jobs[1], 1)
    assert unlimited_scheduler.rewind(jobs[1]).warnings == [
        "job-3, job-4 of group-1 stay as its policy left them; `rota group rewind group-1` rewinds them too"
    ]
    assert unlimited_scheduler.rewind(jobs[0]).warnings == []


def rewind_group(scheduler: Scheduler, group: GroupId) -> RewindReport:
    area = find_group_rewind_set(scheduler.reader, format_group_id(group), scheduler.view_context.observations)
    facts = probe_rewind_facts(area, scheduler.probe, scheduler.engine.fact_cache.begin_probe())
    report: RewindReport = scheduler.run_request(lambda tx: rewind(tx, area, facts, actor="tester"), render_reports)
    return report


MANY = 2_000


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_number_of_statements_does_not_depend_on_group_size(make_scheduler: Any, mode: str) -> None:
    """All members end in the transaction of the failure, each with its event."""
    scheduler = make_scheduler(**{"global": 1})
    counts = []
    for size in (3, MANY):
        group, jobs = scheduler.submit_group(*[{}] * size, mode=mode)
        with recorded_statements(scheduler) as statements:
            scheduler.end_run(jobs[0], 1)
        assert scheduler.show_group(group).counts == {"FAILED": 1, "CANCELLED": size - 1}
        assert (
            len([event for event in scheduler.events if event.cause == "group" and event.job in set(jobs)]) == size - 1
        )
        counts.append(len(statements))
    assert counts[1] <= counts[0] + 5


@contextmanager
def recorded_statements(scheduler: Scheduler) -> Iterator[list[str]]:
    """Collect the names of the statements that run inside."""
    database, names = scheduler.session._db, list[str]()
    with pytest.MonkeyPatch.context() as patch:
        for verb in ("rows", "run", "run_many"):
            patch.setattr(database, verb, _recording(getattr(database, verb), names))
        yield names


def _recording(verb: Any, names: list[str]) -> Any:
    def record(name: str, /, *args: Any, **values: Any) -> Any:
        names.append(name)
        return verb(name, *args, **values)

    return record


@pytest.mark.parametrize(("policy", "status"), [("stop", Status.CANCELLED), ("skip", Status.SKIPPED)])
def test_failed_start_after_the_policy_decided_is_dropped(
    make_scheduler: Callable[..., Scheduler], policy: str, status: Status
) -> None:
    scheduler = make_scheduler(**{"global": 3})
    _, (first, second, third) = scheduler.submit_group({"local": "a"}, {}, {"after": ["a:finished"]}, on_failure=policy)
    scheduler.end_run(first, 1)
    scheduler.receive(StartFailure(run=scheduler.find_run(second), error="no such program"))
    assert scheduler.status(second) is status
    assert scheduler.status(third) is Status.DISPATCHED
    scheduler.receive(StartFailure(run=scheduler.find_run(third), error="no such program"))
    assert scheduler.status(third) is Status.QUEUED


def test_member_retried_after_the_policy_decided_is_kept(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    _, (first, second) = scheduler.submit_group({}, {"delay": "1h"}, on_failure="stop")
    scheduler.end_run(first, 1)
    assert scheduler.status(second) is Status.CANCELLED
    scheduler.clock.advance(minutes=1)
    again: RetryOutcome = scheduler.run_request(lambda tx: retry(tx, format_job_id(second), actor="me"))
    scheduler.receive(StartFailure(run=scheduler.find_run(again.job), error="no such program"))
    assert scheduler.status(again.job) is Status.QUEUED


def test_ambiguous_name_is_refused(scheduler: Scheduler) -> None:
    first, _ = scheduler.submit_group({}, name="night")
    second, _ = scheduler.submit_group({"delay": "1h"}, name="night")
    with pytest.raises(
        Conflict, match=f"{format_group_id(second)}, {format_group_id(first)}; use the id of one of them"
    ):
        scheduler.run_request(lambda tx: cancel(tx, "night", actor="me"))
    scheduler.end_run(scheduler.started_jobs()[0] if scheduler.started_jobs() else JobId(1))
    assert scheduler.reader.groups.find("night").id == second


def test_member_with_unreadable_record_fails_and_others_are_unaffected(
    make_scheduler: Callable[..., Scheduler], run_sql: SqlRunner
) -> None:
    """The policy ends members that were read together with the unreadable one: those reads are stale."""
    scheduler = make_scheduler(**{"global": 5})
    before = scheduler.submit()
    _, members = scheduler.submit_group(*[{"after": [f"{format_job_id(before)}:finished"]}] * 3, on_failure="stop")
    run_sql(f"UPDATE job SET waited_on = 'bogus' WHERE id = {members[0]}")
    scheduler.end_run(before)
    assert scheduler.engine.store_error is None
    assert [scheduler.status(job) for job in members] == [Status.FAILED, Status.CANCELLED, Status.CANCELLED]
    assert scheduler.status(scheduler.submit()) is Status.DISPATCHED
