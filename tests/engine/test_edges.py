"""Dependency edges: chain, fan-out, fan-in, diamond, cascade and the dependency policies."""

from __future__ import annotations

import pytest

from rota.ids import JobId
from rota.jobs.schemas import WaitReason
from rota.kernel.status import Status
from tests.harness import Scheduler, SqlRunner


def test_chain_runs_in_order(unlimited_scheduler: Scheduler) -> None:
    jobs = [unlimited_scheduler.submit()]
    for _ in range(9):
        jobs.append(unlimited_scheduler.submit(after=[jobs[-1]]))
    assert unlimited_scheduler.started_jobs() == jobs[:1]
    assert unlimited_scheduler.drain() == jobs


def test_fan_out_starts_together_and_fan_in_waits_for_all(unlimited_scheduler: Scheduler) -> None:
    root = unlimited_scheduler.submit()
    middle = [unlimited_scheduler.submit(after=[root]) for _ in range(20)]
    last = unlimited_scheduler.submit(after=middle)
    unlimited_scheduler.end_run(root)
    assert unlimited_scheduler.started_jobs() == [root, *middle]
    for job in middle[:-1]:
        unlimited_scheduler.end_run(job)
    assert unlimited_scheduler.status(last) is Status.WAITING_ON_DEPS
    unlimited_scheduler.end_run(middle[-1])
    assert unlimited_scheduler.started_jobs()[-1] == last


def test_last_job_of_diamond_runs_once(unlimited_scheduler: Scheduler) -> None:
    top = unlimited_scheduler.submit()
    left, right = unlimited_scheduler.submit(after=[top]), unlimited_scheduler.submit(after=[top])
    bottom = unlimited_scheduler.submit(after=[left, right])
    assert unlimited_scheduler.drain() == [top, left, right, bottom]


def test_successor_is_decided_in_transaction_of_the_end(unlimited_scheduler: Scheduler) -> None:
    """LESSONS: finish, route and tick were three steps. One turn is one commit."""
    first = unlimited_scheduler.submit()
    second = unlimited_scheduler.submit(after=[first])
    unlimited_scheduler.end_run(first)
    kinds = [(event.kind, event.job) for event in unlimited_scheduler.events[-3:]]
    assert kinds == [("job.completed", first), ("job.queued", second), ("job.dispatched", second)]


@pytest.mark.parametrize("depth", [200])
def test_failed_root_blocks_whole_chain_in_one_pass(unlimited_scheduler: Scheduler, depth: int) -> None:
    """LESSONS Retry: dependency cascade only one level deep."""
    root = unlimited_scheduler.submit()
    jobs = [root]
    for _ in range(depth):
        jobs.append(unlimited_scheduler.submit(after=[jobs[-1]]))
    unlimited_scheduler.end_run(root, 1)
    assert {unlimited_scheduler.status(job) for job in jobs[1:]} == {Status.BLOCKED_BY_DEPENDENCY}
    assert unlimited_scheduler.job(jobs[1]).reason == "dependency failed for job job-1 (FAILED)"
    assert (
        unlimited_scheduler.job(jobs[-1]).reason == f"dependency failed for job job-{jobs[-2]} (BLOCKED_BY_DEPENDENCY)"
    )
    assert unlimited_scheduler.started_jobs() == [root]


ENDS = {"COMPLETED": {"code": 0}, "FAILED": {"code": 1}, "SKIPPED": {"code": 0, "skip_reason": "no need"}}


@pytest.mark.parametrize(
    ("policy", "end", "status", "reason"),
    [
        ("success", "COMPLETED", Status.DISPATCHED, None),
        ("success", "SKIPPED", Status.DISPATCHED, None),
        ("success", "FAILED", Status.BLOCKED_BY_DEPENDENCY, "dependency failed for job job-1 (FAILED)"),
        ("finished", "COMPLETED", Status.DISPATCHED, None),
        ("finished", "SKIPPED", Status.DISPATCHED, None),
        ("finished", "FAILED", Status.DISPATCHED, None),
        ("failed", "FAILED", Status.DISPATCHED, None),
        ("failed", "COMPLETED", Status.SKIPPED, "not needed: job-1 COMPLETED"),
        ("failed", "SKIPPED", Status.SKIPPED, "not needed: job-1 SKIPPED"),
    ],
)
@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
def test_policy_gives_same_result_before_and_after_the_end(
    unlimited_scheduler: Scheduler, policy: str, end: str, status: Status, reason: str | None, is_late: bool
) -> None:
    first = unlimited_scheduler.submit()
    if is_late:
        unlimited_scheduler.end_run(first, **ENDS[end])  # type: ignore[arg-type]
    job = unlimited_scheduler.submit(after=[f"job-{first}:{policy}"])
    if not is_late:
        unlimited_scheduler.end_run(first, **ENDS[end])  # type: ignore[arg-type]
    result = unlimited_scheduler.job(job)
    assert (result.status, result.reason) == (status, reason)
    assert result.run is None or status is Status.DISPATCHED


@pytest.mark.parametrize(
    ("policy", "status"),
    [("success", Status.BLOCKED_BY_DEPENDENCY), ("finished", Status.DISPATCHED), ("failed", Status.SKIPPED)],
)
def test_cancelled_predecessor_decides_by_policy(unlimited_scheduler: Scheduler, policy: str, status: Status) -> None:
    first = unlimited_scheduler.submit(delay="1h")
    job = unlimited_scheduler.submit(after=[f"job-{first}:{policy}"])
    unlimited_scheduler.cancel(first)
    assert unlimited_scheduler.status(job) is status


def test_skipped_predecessor_satisfies_success_and_blocked_only_finished(unlimited_scheduler: Scheduler) -> None:
    first = unlimited_scheduler.submit()
    skipped = unlimited_scheduler.submit(after=[f"job-{first}:failed"])
    good = unlimited_scheduler.submit(after=[skipped])
    unlimited_scheduler.end_run(first)
    assert unlimited_scheduler.status(skipped) is Status.SKIPPED
    assert good in unlimited_scheduler.started_jobs()

    bad = unlimited_scheduler.submit()
    blocked = unlimited_scheduler.submit(after=[bad])
    cleanup = unlimited_scheduler.submit(after=[f"job-{blocked}:finished"])
    unlimited_scheduler.end_run(bad, 1)
    assert unlimited_scheduler.status(blocked) is Status.BLOCKED_BY_DEPENDENCY
    assert cleanup in unlimited_scheduler.started_jobs()


def test_edge_that_cannot_be_met_decides_while_others_are_open(unlimited_scheduler: Scheduler) -> None:
    slow, bad = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    job = unlimited_scheduler.submit(after=[slow, bad])
    unlimited_scheduler.end_run(bad, 1)
    assert unlimited_scheduler.status(job) is Status.BLOCKED_BY_DEPENDENCY
    unlimited_scheduler.end_run(slow)
    assert unlimited_scheduler.status(job) is Status.BLOCKED_BY_DEPENDENCY


def test_wait_detail_names_first_unmet_edge(unlimited_scheduler: Scheduler) -> None:
    one, two = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    job = unlimited_scheduler.submit(after=[two, one])
    assert unlimited_scheduler.wait_detail(job) == f"waiting on job job-{two}"
    unlimited_scheduler.end_run(two)
    assert unlimited_scheduler.wait_detail(job) == f"waiting on job job-{one}"


def test_deleted_predecessor_blocks_and_is_named(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """LESSONS Dispatch: an unreadable status counted as open, and closed work was dispatched again. Unknown is not
    ready."""
    first = unlimited_scheduler.submit(delay="1h")
    job = unlimited_scheduler.submit(after=[first])
    run_sql(f"DELETE FROM event WHERE job = {first}")
    run_sql(f"DELETE FROM job WHERE id = {first}")
    unlimited_scheduler.crash()
    blocked = unlimited_scheduler.job(job)
    assert (blocked.status, blocked.reason) == (Status.BLOCKED_BY_DEPENDENCY, f"missing job dependency job-{first}")


def test_blocked_job_keeps_its_wait_detail(unlimited_scheduler: Scheduler) -> None:
    first = unlimited_scheduler.submit()
    job = unlimited_scheduler.submit(after=[first])
    unlimited_scheduler.end_run(first, 1)
    shown = unlimited_scheduler.show_job(job)
    assert shown.wait == WaitReason(
        kind="dependencies", detail=f"dependency failed for job job-{first} (FAILED)", topics=[]
    )
    assert shown.waited_on == ["dependencies"]
    assert (shown.exit_code, shown.run, shown.started_at) == (None, None, None)
    assert shown.finished_at is not None


def test_end_of_unrelated_job_writes_nothing(unlimited_scheduler: Scheduler) -> None:
    """Nothing is written for a job whose status and kind did not change."""
    first, other = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    job = unlimited_scheduler.submit(after=[first])
    before = unlimited_scheduler.reader.events.of_job(job)
    unlimited_scheduler.end_run(other)
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.reader.events.of_job(JobId(job)) == before
