"""Artifacts between jobs: existence, producers, and the checks before a start."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pytest

from rota.artifacts.commands import declare_artifact
from rota.engine.facts import record_observation
from rota.engine.transaction import TurnRequest
from rota.errors import InvalidInput, NotFound
from rota.executor.port import ExitReport, StartFailure
from rota.ids import JobId
from rota.jobs.explain import explain_wait
from rota.jobs.schemas import PinnedHeadView, WaitReason
from rota.jobs.submit import warn_of_ended
from rota.kernel.artifacts import parse_artifact
from rota.kernel.facts import UNREADABLE, BranchFile, BranchHead, Fact, FactValue, FileExists
from rota.kernel.status import Status
from tests.harness import Scheduler

PLAN = FileExists("/plan.md")
REPOSITORY = "/repo/.git"
OID = "a" * 40


def _count(real: Callable[..., Any], written: list[str], name: str, *values: Any, **named: Any) -> Any:
    written.append(name)
    return real(name, *values, **named)


def test_existing_artifact_satisfies_need_whatever_its_producer_did(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    scheduler.probe.values[PLAN] = True
    producer = scheduler.submit("false", produces=["file:/plan.md"])
    scheduler.end_run(producer, 1)
    job = scheduler.submit(needs=["file:/plan.md"])
    assert scheduler.status(job) is Status.DISPATCHED
    assert scheduler.show_job(job).needs == ["file:/plan.md"]
    assert scheduler.show_job(producer).produces == ["file:/plan.md"]


def test_consumer_waits_for_producer_and_starts_when_artifact_exists(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    producer = scheduler.submit(produces=["file:/plan.md"])
    job = scheduler.submit(needs=["file:/plan.md"])
    assert (scheduler.status(job), scheduler.wait_detail(job)) == (Status.WAITING_ON_DEPS, "waiting on file:/plan.md")
    assert scheduler.show_job(job).wait == WaitReason(
        kind="dependencies", detail="waiting on file:/plan.md", topics=["artifact:file:/plan.md"]
    )
    scheduler.probe.values[PLAN] = True
    scheduler.record_changed_facts()
    assert scheduler.status(job) is Status.WAITING_ON_DEPS, "it is still being written"
    scheduler.end_run(producer)
    assert scheduler.status(job) is Status.DISPATCHED
    assert scheduler.show_job(job).waited_on == ["dependencies"]


@pytest.mark.parametrize(("code", "reason"), [(0, "missing file:/plan.md"), (1, "dependency failed for file:/plan.md")])
def test_producer_that_ends_without_product_blocks_consumer(scheduler: Scheduler, code: int, reason: str) -> None:
    producer = scheduler.submit(produces=["file:/plan.md"])
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.end_run(producer, code)
    assert (scheduler.status(job), scheduler.job(job).reason) == (Status.BLOCKED_BY_DEPENDENCY, reason)


def test_missing_producer_policy_blocks_or_waits(scheduler: Scheduler) -> None:
    blocked = scheduler.submit(needs=["file:/plan.md"], missing_producer="block")
    waiting = scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    assert scheduler.job(blocked).reason == "missing file:/plan.md"
    assert scheduler.wait_detail(waiting) == "awaiting producer for file:/plan.md"
    scheduler.probe.values[PLAN] = True
    scheduler.record_changed_facts()
    assert scheduler.status(waiting) is Status.DISPATCHED


def test_file_without_producer_is_awaited(scheduler: Scheduler) -> None:
    job = scheduler.submit(needs=["file:/plan.md"])
    assert scheduler.status(job) is Status.WAITING_ON_DEPS
    assert explain_wait(scheduler.reader, job, scheduler.view_context).text == (
        f"job-{job} is WAITING_ON_DEPS: awaiting producer for file:/plan.md; no job produces it, so it waits until"
        " /plan.md exists"
    )
    scheduler.probe.values[PLAN] = True
    scheduler.record_changed_facts()
    assert scheduler.status(job) is Status.DISPATCHED


def test_custom_artifact_without_producer_is_awaited(scheduler: Scheduler) -> None:
    job = scheduler.submit(needs=["custom:approval:go live"])
    assert explain_wait(scheduler.reader, job, scheduler.view_context).text == (
        f"job-{job} is WAITING_ON_DEPS: awaiting producer for custom:approval:go live; no job produces it, so it waits"
        " until `rota artifact put 'custom:approval:go live'` puts it"
    )
    artifact = parse_artifact("custom:approval:go live")
    scheduler.run_request(
        partial(declare_artifact, artifact=artifact, payload=None, job=None, repository="/repo/.git", actor="ann")
    )
    assert scheduler.status(job) is Status.DISPATCHED


@pytest.mark.parametrize("artifact", ["file:/plan.md", "custom:approval:x"])
def test_file_or_custom_artifact_whose_producers_failed_blocks(scheduler: Scheduler, artifact: str) -> None:
    producer = scheduler.submit(produces=[artifact])
    job = scheduler.submit(needs=[artifact])
    scheduler.end_run(producer, 1)
    assert scheduler.job(job).reason == f"dependency failed for {artifact}"


@pytest.mark.parametrize(
    "artifact",
    ["plan_branch:x", "plan_doc:x", "plan_commits:x", "target_branch:x", "merge_sentinel:x", "command_patch:job-1"],
)
def test_seed_types_block_without_producer(scheduler: Scheduler, artifact: str) -> None:
    scheduler.end_run(scheduler.submit(), 1)
    job = scheduler.submit(needs=[artifact])
    assert scheduler.status(job) is Status.BLOCKED_BY_DEPENDENCY


def test_submit_warns_of_jobs_that_ended_immediately(scheduler: Scheduler) -> None:
    response = scheduler.submit_with_result(needs=["plan_doc:x"])
    warned = scheduler.run_request(partial(warn_of_ended, outcome=response))
    (text,) = warned.warnings
    assert text == (
        "ended at once, without a run: job-1 BLOCKED_BY_DEPENDENCY: missing plan_doc:x (draft/x); resolve that, then"
        " `rota rewind job-1` queues it again"
    )


def test_consumer_waits_for_chain_that_still_retries(scheduler: Scheduler) -> None:
    producer = scheduler.submit("false", produces=["file:/plan.md"], retries=1)
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.end_run(producer, 1)
    assert scheduler.wait_detail(job) == "waiting on file:/plan.md"
    scheduler.clock.advance(seconds=20)
    scheduler.run_turns()
    scheduler.probe.values[PLAN] = True
    scheduler.end_run(JobId(3))
    assert scheduler.status(job) is Status.DISPATCHED


def test_consumer_waits_for_any_active_producer(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    first, second = (scheduler.submit(produces=["file:/plan.md"]) for _ in range(2))
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.end_run(first)
    assert scheduler.wait_detail(job) == "waiting on file:/plan.md"
    scheduler.end_run(second, 1)
    assert scheduler.job(job).reason == "missing file:/plan.md", "one succeeded"


def test_pin_is_checked_again_before_the_start(scheduler: Scheduler) -> None:
    """The job was ready for an hour while another ran; the branch moved, and no probe has reported it yet."""
    scheduler.probe.values[BranchHead(REPOSITORY, "main")] = OID
    other = scheduler.submit()
    job = scheduler.submit(pin="main")
    assert scheduler.status(job) is Status.QUEUED
    scheduler.probe.values[BranchHead(REPOSITORY, "main")] = "b" * 40
    scheduler.end_run(other)
    assert scheduler.started_jobs() == [other]
    assert (scheduler.status(job), scheduler.wait_detail(job)) == (
        Status.WAITING_ON_DEPS,
        "pinned head mismatch on main",
    )
    assert scheduler.show_job(job).pinned_head == PinnedHeadView(branch="main", oid=OID)
    scheduler.probe.values[BranchHead(REPOSITORY, "main")] = OID
    scheduler.record_changed_facts()
    assert scheduler.status(job) is Status.DISPATCHED
    assert scheduler.show_job(job).waited_on == ["pinned_head"]


def test_deleted_branch_waits_and_does_not_stop_other_jobs(scheduler: Scheduler) -> None:
    head = BranchHead(REPOSITORY, "main")
    scheduler.probe.values[head] = OID
    other = scheduler.submit()
    job = scheduler.submit(pin=f"main@{OID[:8]}")
    behind = scheduler.submit()
    del scheduler.probe.values[head]
    scheduler.end_run(other)
    assert scheduler.wait_detail(job) == "pinned head mismatch on main"
    assert scheduler.status(behind) is Status.DISPATCHED


def test_fact_observed_for_one_job_decides_the_next(scheduler: Scheduler) -> None:
    """Both jobs are ready. The check of the first job also decides the second."""
    head = BranchHead(REPOSITORY, "topic")
    scheduler.probe.values[head] = OID
    other = scheduler.submit()
    pinned = scheduler.submit(pin="topic")
    needing = scheduler.submit(needs=["plan_branch:x (topic)"])
    del scheduler.probe.values[head]
    scheduler.end_run(other)
    assert scheduler.started_jobs() == [other]
    assert scheduler.wait_detail(pinned) == "pinned head mismatch on topic"
    assert scheduler.job(needing).reason == "missing plan_branch:x (topic)"


def test_producer_that_starts_withdraws_existing_file(scheduler: Scheduler) -> None:
    """A file does not count while a producer rewrites it, even if its consumer was ready."""
    scheduler.probe.values[PLAN] = True
    other = scheduler.submit()
    job = scheduler.submit(needs=["file:/plan.md"])
    producer = scheduler.submit(produces=["file:/plan.md"], priority=1)
    scheduler.end_run(other)
    assert scheduler.started_jobs() == [other, producer]
    assert scheduler.wait_detail(job) == "waiting on file:/plan.md"
    scheduler.end_run(producer)
    assert scheduler.started_jobs() == [other, producer, job]


def test_consumer_chosen_with_producer_in_one_turn_starts_after_it(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    scheduler.probe.values[PLAN] = True
    others = [scheduler.submit() for _ in range(2)]
    producer = scheduler.submit(produces=["file:/plan.md"])
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.set_pools(**{"global": 4})
    assert scheduler.started_jobs() == [*others, producer]
    assert scheduler.wait_detail(job) == "waiting on file:/plan.md"


def test_check_is_repeated_when_its_result_cannot_be_used(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job was chosen, and during the check of its needs the machine ran out of processes."""
    scheduler.probe.values[PLAN] = True
    other = scheduler.submit()
    job = scheduler.submit(needs=["file:/plan.md"])
    observe = scheduler.probe.observe

    def observe_and_fail(facts: Collection[Fact]) -> dict[Fact, FactValue]:
        monkeypatch.undo()
        failure = StartFailure(run=scheduler.find_run(other), error="no processes left", is_machine_failure=True)
        scheduler.executor.inbox.append(failure)
        return observe(facts)

    monkeypatch.setattr(scheduler.probe, "observe", observe_and_fail)
    scheduler.set_pools(**{"global": 2})
    assert scheduler.started_jobs() == [other]
    scheduler.cancel(other)
    scheduler.clock.advance(seconds=2)
    scheduler.run_turns()
    assert scheduler.started_jobs() == [other, job]


def test_consumer_waits_after_failed_start_of_its_producer(scheduler: Scheduler) -> None:
    producer = scheduler.submit(produces=["file:/plan.md"])
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.receive(StartFailure(run=scheduler.find_run(producer), error="no such program"))
    assert scheduler.wait_detail(job) == "waiting on file:/plan.md"


@pytest.mark.parametrize(
    ("artifact", "fact"),
    [
        ("plan_branch:foo (draft/foo)", BranchHead(REPOSITORY, "draft/foo")),
        ("plan_commits:foo (draft/foo)", BranchHead(REPOSITORY, "draft/foo")),
        ("plan_doc:foo (draft/foo)", BranchFile(REPOSITORY, "draft/foo", "plans/foo.md")),
        ("target_branch:main", BranchHead(REPOSITORY, "main")),
    ],
)
def test_git_artifact_types(scheduler: Scheduler, artifact: str, fact: Fact) -> None:
    job = scheduler.submit(needs=[artifact], missing_producer="wait")
    assert scheduler.wait_detail(job) == f"awaiting producer for {artifact}"
    scheduler.probe.values[fact] = True
    scheduler.record_changed_facts()
    assert scheduler.status(job) is Status.DISPATCHED


def test_home_artifact_types(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 4})
    first = scheduler.submit()
    job = scheduler.submit(needs=["merge_sentinel:foo"], missing_producer="wait")
    patch = scheduler.submit(needs=[f"command_patch:job-{first}"])
    assert scheduler.wait_detail(job) == "awaiting producer for merge_sentinel:foo"
    assert scheduler.wait_detail(patch) == f"waiting on command_patch:job-{first}", "the job that it names produces it"
    scheduler.probe.values[FileExists(str(scheduler.home / "tmp/merge-conflicts/foo.json"))] = True
    scheduler.record_changed_facts()
    assert scheduler.status(job) is Status.DISPATCHED
    scheduler.end_run(first)
    assert scheduler.status(patch) is Status.DISPATCHED, "it COMPLETED"
    assert scheduler.show_job(first).produces == []


def test_patch_of_failed_job_exists(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 4})
    first = scheduler.submit()
    patch = scheduler.submit(needs=[f"command_patch:job-{first}"])
    scheduler.probe.values[FileExists(str(scheduler.home / f"jobs/{first}/command.patch"))] = True
    scheduler.end_run(first, 1)
    assert scheduler.status(patch) is Status.DISPATCHED, "it left its patch"


@pytest.mark.both_databases
def test_crash_checks_all_facts_again(scheduler: Scheduler) -> None:
    job = scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    scheduler.probe.values[PLAN] = True
    scheduler.crash()
    assert scheduler.status(job) is Status.DISPATCHED


def test_facts_seen_by_submit_wake_all_waiting_jobs(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 4})
    first = scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    pinned = scheduler.submit(pin=f"main@{OID}")
    branch = scheduler.submit(needs=["plan_branch:x (main)"], missing_producer="wait")
    scheduler.probe.values[PLAN] = True
    scheduler.probe.values[BranchHead(REPOSITORY, "main")] = OID
    last = scheduler.submit(needs=["file:/plan.md", "target_branch:main"])
    assert sorted(scheduler.started_jobs()) == [first, pinned, branch, last]


def test_observation_started_before_the_end_does_not_decide(scheduler: Scheduler) -> None:
    """The slow observation arrives after the producer has ended and the file exists."""
    producer = scheduler.submit(produces=["file:/plan.md"])
    job = scheduler.submit(needs=["file:/plan.md"])
    slow = scheduler.probe_watched_facts()
    scheduler.executor.inbox.append(ExitReport(run=scheduler.find_run(producer), at=0, code=0))
    scheduler.probe.values[PLAN] = True
    scheduler.engine.turn()
    scheduler.engine.turn([TurnRequest(lambda tx: record_observation(tx, slow), lambda _: None)])
    assert scheduler.status(job) is Status.WAITING_ON_DEPS
    scheduler.run_turns()
    assert scheduler.status(job) is Status.DISPATCHED


@pytest.mark.parametrize("fields", [{"needs": ["file:/plan.md"]}, {"needs": ["target_branch:main"]}, {"pin": "main"}])
def test_unreadable_fact_is_awaited_and_never_abandoned(scheduler: Scheduler, fields: dict[str, Any]) -> None:
    """A mount is down or git is out of memory: existence is unknown."""
    facts = (PLAN, BranchHead(REPOSITORY, "main"))
    scheduler.probe.values.update(dict.fromkeys(facts, OID))
    other = scheduler.submit(produces=["file:/plan.md", "target_branch:main"])
    job = scheduler.submit(**fields)
    scheduler.probe.values.update(dict.fromkeys(facts, UNREADABLE))
    scheduler.end_run(other)
    assert scheduler.status(job) is Status.WAITING_ON_DEPS
    scheduler.record_changed_facts()
    assert scheduler.status(job) is Status.WAITING_ON_DEPS
    scheduler.probe.values.update(dict.fromkeys(facts, OID))
    scheduler.record_changed_facts()
    assert scheduler.status(job) is Status.DISPATCHED


def test_unchanged_facts_write_nothing(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count every write statement at the database."""
    scheduler.probe.values[BranchHead(REPOSITORY, "main")] = OID
    scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    scheduler.submit(pin="main")
    scheduler.submit(pin=f"main@{'b' * 40}")
    scheduler.submit(after=[JobId(1)])
    scheduler.submit(locks=["repo"])
    written: list[str] = []
    database = scheduler.session._db
    for verb in ("run", "run_many"):
        monkeypatch.setattr(database, verb, partial(_count, getattr(database, verb), written))
    for _ in range(3):
        scheduler.record_changed_facts()
        scheduler.run_turns()
    assert written == []
    assert not scheduler.probe_requests


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"needs": ["plan:foo"]}, "unknown artifact type in 'plan:foo'; known types: plan_branch:<slug> (<branch>)"),
        ({"produces": ["plan_doc:"]}, "malformed artifact: 'plan_doc:'; expected plan_doc:<slug> (<branch>)"),
        ({"pin": "main@xyz"}, "malformed pin: 'main@xyz'"),
        ({"pin": "gone"}, "no branch gone in /repo/.git"),
    ],
)
def test_invalid_artifact_is_refused_by_name(scheduler: Scheduler, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=r".*") as refusal:
        scheduler.submit(**fields)
    assert refusal.value.message.startswith(message)
    assert scheduler.reader.jobs.list_ids(list(Status), limit=5) == []


def test_directory_outside_repository_is_refused(scheduler: Scheduler) -> None:
    scheduler.probe.repository = None
    with pytest.raises(InvalidInput, match="/ is not in a git repository, and plan_doc:foo"):
        scheduler.submit(needs=["plan_doc:foo"])
    with pytest.raises(InvalidInput, match="/ is not in a git repository, and `pin` main"):
        scheduler.submit(pin="main")
    assert scheduler.submit(produces=["file:x"]) == 1, "a file needs none"


def test_other_job_cannot_produce_patch_of_job(scheduler: Scheduler) -> None:
    scheduler.submit()
    with pytest.raises(InvalidInput, match="command_patch:job-1 is the patch of job-1; no other job can produce it"):
        scheduler.submit(produces=["command_patch:job-1"])


def test_patch_of_unknown_job_is_refused(scheduler: Scheduler) -> None:
    with pytest.raises(NotFound, match="unknown job in `needs` command_patch:job-9"):
        scheduler.submit(needs=["command_patch:job-9"])


def test_cycle_over_patch_of_retry_is_refused(scheduler: Scheduler) -> None:
    """The named job is the second of its chain, and the chain waits as a whole."""
    scheduler.probe.values[FileExists("/a")] = True
    first = scheduler.submit("false", needs=["file:/a"], retries=1, missing_producer="wait")
    scheduler.end_run(first, 1)
    scheduler.probe.values[FileExists("/a")] = False
    scheduler.record_changed_facts()
    with pytest.raises(InvalidInput, match="invalid `needs` cycle: job-3 -> job-1 -> job-3"):
        scheduler.submit(needs=["command_patch:job-2"], produces=["file:/a"])


def test_cycle_over_artifacts_is_refused(scheduler: Scheduler) -> None:
    """LESSONS Waiting: a cycle blocked both sides for good."""
    scheduler.submit(needs=["file:/a"], produces=["file:/b"], missing_producer="wait")
    with pytest.raises(InvalidInput, match="invalid `needs` cycle: job-2 -> job-1 -> job-2"):
        scheduler.submit(needs=["file:/b"], produces=["file:/a"])
    with pytest.raises(InvalidInput, match="invalid `needs` cycle: job-2 -> job-1 -> job-2"):
        scheduler.submit(after=[JobId(1)], produces=["file:/a"])
    with pytest.raises(InvalidInput, match="invalid `needs` cycle: job-2 -> job-1 -> job-2"):
        scheduler.submit(needs=["command_patch:job-1"], produces=["file:/a"])
    assert scheduler.submit(produces=["file:/a"]) == 2, "nothing was stored, and no number spent"


def test_file_left_by_failed_attempt_exists_until_the_next_attempt_runs(scheduler: Scheduler) -> None:
    """An existing file satisfies the need, whatever its producer did. A job that needs success uses `after`."""
    producer = scheduler.submit("false", produces=["file:/plan.md"], retries=1)
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.probe.values[PLAN] = True
    scheduler.end_run(producer, 1)
    assert scheduler.status(job) is Status.DISPATCHED
    assert scheduler.status(JobId(3)) is Status.QUEUED


def test_producer_claimed_during_consumer_check_goes_first(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    scheduler.probe.values[PLAN] = True
    others = [scheduler.submit() for _ in range(2)]
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.executor.inbox.append(ExitReport(run=scheduler.find_run(others[0]), at=0, code=0))
    scheduler.engine.turn()
    assert scheduler.probe_requests, "it was chosen, and is checked again"
    scheduler.executor.inbox.append(ExitReport(run=scheduler.find_run(others[1]), at=0, code=0))
    producer = scheduler.submit(produces=["file:/plan.md"], priority=1)
    assert scheduler.started_jobs() == [*others, producer]
    assert scheduler.wait_detail(job) == "waiting on file:/plan.md"


def test_observation_before_predecessor_end_does_not_block(unlimited_scheduler: Scheduler) -> None:
    """The file appears just before its predecessor exits, and no job has declared it as a product."""
    first = unlimited_scheduler.submit()
    second = unlimited_scheduler.submit(after=[f"job-{first}"], needs=["file:/go"], missing_producer="block")
    unlimited_scheduler.tick()
    unlimited_scheduler.probe.values[FileExists("/go")] = True
    unlimited_scheduler.end_run(first)
    assert unlimited_scheduler.status(second) is Status.DISPATCHED


def test_missing_artifact_blocks_after_one_more_check(unlimited_scheduler: Scheduler) -> None:
    first = unlimited_scheduler.submit()
    second = unlimited_scheduler.submit(after=[f"job-{first}"], needs=["file:/go"], missing_producer="block")
    unlimited_scheduler.end_run(first)
    assert unlimited_scheduler.status(second) is Status.BLOCKED_BY_DEPENDENCY
    assert unlimited_scheduler.engine.fact_cache.stale == {}


def test_cancel_does_not_block_by_old_observation(unlimited_scheduler: Scheduler) -> None:
    first = unlimited_scheduler.submit(delay="1h")
    second = unlimited_scheduler.submit(after=[f"job-{first}:finished"], needs=["file:/go"], missing_producer="block")
    unlimited_scheduler.tick()
    unlimited_scheduler.probe.values[FileExists("/go")] = True
    unlimited_scheduler.cancel(first)
    assert unlimited_scheduler.status(second) is Status.DISPATCHED


def _missing_products(scheduler: Scheduler, job: JobId) -> list[list[str]]:
    events = [event for event in scheduler.events if (event.kind, event.job) == ("job.products_missing", job)]
    return [event.data["artifacts"] for event in events]


def test_success_without_declared_products_is_a_warning(scheduler: Scheduler) -> None:
    scheduler.probe.values[FileExists("/there.md")] = True
    produces = ["file:/there.md", "file:/plan.md", "custom:report:weekly", "custom:report:daily"]
    job = scheduler.submit(produces=produces)
    daily = parse_artifact("custom:report:daily")
    scheduler.run_request(
        partial(declare_artifact, artifact=daily, payload=None, job=None, repository=REPOSITORY, actor="ann")
    )
    scheduler.end_run(job)
    assert scheduler.status(job) is Status.COMPLETED
    assert scheduler.show_job(job).missing_products == ["file:/plan.md", "custom:report:weekly"]
    assert _missing_products(scheduler, job) == [["file:/plan.md", "custom:report:weekly"]]


def test_failed_job_has_no_missing_products(scheduler: Scheduler) -> None:
    job = scheduler.submit(produces=["file:/plan.md"])
    scheduler.end_run(job, 1)
    assert (scheduler.show_job(job).missing_products, _missing_products(scheduler, job)) == ([], [])


def test_unreadable_product_is_not_missing(scheduler: Scheduler) -> None:
    scheduler.probe.values[PLAN] = UNREADABLE
    job = scheduler.submit(produces=["file:/plan.md"])
    scheduler.end_run(job)
    assert (scheduler.show_job(job).missing_products, _missing_products(scheduler, job)) == ([], [])


def test_products_are_checked_after_crash(scheduler: Scheduler) -> None:
    job = scheduler.submit(produces=["file:/plan.md"])
    scheduler.executor.inbox.append(ExitReport(run=scheduler.find_run(job), at=0.0, code=0))
    scheduler.engine.turn()
    assert scheduler.status(job) is Status.COMPLETED
    scheduler.probe_requests.clear()
    scheduler.crash()
    assert scheduler.show_job(job).missing_products == ["file:/plan.md"]
    assert _missing_products(scheduler, job) == [["file:/plan.md"]]
