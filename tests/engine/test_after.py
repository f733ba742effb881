"""Edges: chain, fan-out, fan-in, diamond, cascade, and the policies."""

from __future__ import annotations

import pytest

from harness import Raw, Scheduler
from rota.core.status import Status
from rota.ids import JobId
from rota.wire.job import WaitForm


def test_a_chain_runs_in_order(wide: Scheduler) -> None:
    jobs = [wide.submit()]
    for _ in range(9):
        jobs.append(wide.submit(after=[jobs[-1]]))
    assert wide.started() == jobs[:1]
    assert wide.drain() == jobs


def test_a_fan_out_starts_together_and_a_fan_in_waits_for_all(wide: Scheduler) -> None:
    root = wide.submit()
    middle = [wide.submit(after=[root]) for _ in range(20)]
    last = wide.submit(after=middle)
    wide.end(root)
    assert wide.started() == [root, *middle]
    for job in middle[:-1]:
        wide.end(job)
    assert wide.status(last) is Status.WAITING_ON_DEPS
    wide.end(middle[-1])
    assert wide.started()[-1] == last


def test_a_diamond_runs_its_end_once(wide: Scheduler) -> None:
    top = wide.submit()
    left, right = wide.submit(after=[top]), wide.submit(after=[top])
    bottom = wide.submit(after=[left, right])
    assert wide.drain() == [top, left, right, bottom]


def test_a_successor_is_decided_in_the_transaction_of_the_end(wide: Scheduler) -> None:
    """LESSONS: finish, route and tick were three steps. Here one turn is one commit."""
    first = wide.submit()
    second = wide.submit(after=[first])
    wide.end(first)
    kinds = [(event.kind, event.job) for event in wide.events[-3:]]
    assert kinds == [("job.completed", first), ("job.queued", second), ("job.dispatched", second)]


@pytest.mark.parametrize("depth", [200])
def test_the_whole_cascade_falls_in_one_pass(wide: Scheduler, depth: int) -> None:
    """LESSONS Retry: dependency cascade only one level deep."""
    root = wide.submit()
    jobs = [root]
    for _ in range(depth):
        jobs.append(wide.submit(after=[jobs[-1]]))
    wide.end(root, 1)
    assert {wide.status(job) for job in jobs[1:]} == {Status.BLOCKED_BY_DEPENDENCY}
    assert wide.job(jobs[1]).reason == "dependency failed for job job-1 (FAILED)"
    assert wide.job(jobs[-1]).reason == f"dependency failed for job job-{jobs[-2]} (BLOCKED_BY_DEPENDENCY)"
    assert wide.started() == [root]


ENDS = {
    "COMPLETED": {"code": 0},
    "FAILED": {"code": 1},
    "SKIPPED": {"code": 0, "skipped": "no need"},
}


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
def test_policies_say_the_same_whenever_the_job_is_submitted(
    wide: Scheduler, policy: str, end: str, status: Status, reason: str | None, is_late: bool
) -> None:
    first = wide.submit()
    if is_late:
        wide.end(first, **ENDS[end])  # type: ignore[arg-type]
    job = wide.submit(after=[f"job-{first}:{policy}"])
    if not is_late:
        wide.end(first, **ENDS[end])  # type: ignore[arg-type]
    found = wide.job(job)
    assert (found.status, found.reason) == (status, reason)
    assert found.run is None or status is Status.DISPATCHED


@pytest.mark.parametrize(("policy", "status"), [
    ("success", Status.BLOCKED_BY_DEPENDENCY), ("finished", Status.DISPATCHED), ("failed", Status.SKIPPED),
])  # fmt: skip
def test_a_cancelled_predecessor(wide: Scheduler, policy: str, status: Status) -> None:
    first = wide.submit(delay="1h")
    job = wide.submit(after=[f"job-{first}:{policy}"])
    wide.cancel(first)
    assert wide.status(job) is status


def test_a_skipped_job_satisfies_success_and_a_blocked_one_only_finished(wide: Scheduler) -> None:
    first = wide.submit()
    skipped = wide.submit(after=[f"job-{first}:failed"])
    good = wide.submit(after=[skipped])
    wide.end(first)
    assert wide.status(skipped) is Status.SKIPPED
    assert good in wide.started()

    bad = wide.submit()
    blocked = wide.submit(after=[bad])
    cleanup = wide.submit(after=[f"job-{blocked}:finished"])
    wide.end(bad, 1)
    assert wide.status(blocked) is Status.BLOCKED_BY_DEPENDENCY
    assert cleanup in wide.started()


def test_one_edge_that_cannot_be_met_decides_though_others_are_open(wide: Scheduler) -> None:
    slow, bad = wide.submit(), wide.submit()
    job = wide.submit(after=[slow, bad])
    wide.end(bad, 1)
    assert wide.status(job) is Status.BLOCKED_BY_DEPENDENCY
    wide.end(slow)
    assert wide.status(job) is Status.BLOCKED_BY_DEPENDENCY


def test_the_first_unmet_edge_speaks(wide: Scheduler) -> None:
    one, two = wide.submit(), wide.submit()
    job = wide.submit(after=[two, one])
    assert wide.detail(job) == f"waiting on job job-{two}"
    wide.end(two)
    assert wide.detail(job) == f"waiting on job job-{one}"


def test_a_predecessor_whose_record_is_gone_blocks_by_name(wide: Scheduler, raw: Raw) -> None:
    """LESSONS Dispatch: an unreadable status counted as open, and closed work was dispatched again. Unknown is not
    ready."""
    first = wide.submit(delay="1h")
    job = wide.submit(after=[first])
    raw(f"DELETE FROM event WHERE job = {first}")
    raw(f"DELETE FROM job WHERE id = {first}")
    wide.crash()
    found = wide.job(job)
    assert (found.status, found.reason) == (Status.BLOCKED_BY_DEPENDENCY, f"missing job dependency job-{first}")


def test_a_blocked_job_keeps_its_text(wide: Scheduler) -> None:
    first = wide.submit()
    job = wide.submit(after=[first])
    wide.end(first, 1)
    form = wide.show(job)
    assert form.wait == WaitForm(kind="dependencies", detail=f"dependency failed for job job-{first} (FAILED)", on=[])
    assert form.waited_on == ["dependencies"]
    assert (form.exit_code, form.run, form.started_at) == (None, None, None)
    assert form.finished_at is not None


def test_nothing_but_its_own_edges_wakes_a_job(wide: Scheduler) -> None:
    """Nothing is written for a job whose status and kind did not change."""
    first, other = wide.submit(), wide.submit()
    job = wide.submit(after=[first])
    before = wide.reader.events_of(job)
    wide.end(other)
    wide.turn()
    assert wide.reader.events_of(JobId(job)) == before
