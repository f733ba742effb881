"""Rewind in the engine: jobs that are reset, cleared state, jobs that are left alone, and refusals."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from rota.engine.transaction import Transaction
from rota.errors import Conflict, NotFound
from rota.executor.port import ExitReport, RunReport, StartFailure
from rota.ids import JobId, format_job_id
from rota.jobs.files import JobFileMirror
from rota.jobs.retry import retry
from rota.jobs.rewind import StartFacts, render_reports, rewind
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import submit
from rota.kernel.artifacts import parse_artifact
from rota.kernel.facts import BranchHead, FileExists
from rota.kernel.holds import format_time
from rota.kernel.job import edit
from rota.kernel.rewind import MERGE_IN_PROGRESS
from rota.kernel.status import Status
from tests.db.invariants import check_store
from tests.harness import Scheduler, SqlRunner

PLAN = FileExists("/plan.md")
OID = "a" * 40


def diamond(scheduler: Scheduler) -> list[JobId]:
    """Submit 1 -> 2, 3 -> 4, and 5 beside them."""
    first = scheduler.submit()
    left, right = scheduler.submit(after=[first]), scheduler.submit(after=[first])
    return [first, left, right, scheduler.submit(after=[left, right]), scheduler.submit()]


def report_fields(report: Any, *names: str) -> list[list[str]]:
    return [getattr(report, name) for name in names]


def test_job_and_all_downstream_run_again(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    first, left, right, last, unrelated = diamond(scheduler)
    scheduler.drain()
    before = scheduler.job(first), scheduler.job(right), scheduler.job(unrelated)
    scheduler.clock.advance(seconds=5)
    report = scheduler.rewind(left)
    assert (report.requested_job, report.root) == ("job-2", "job-2")
    assert report_fields(report, "rewind_set", "reset", "restarted") == [
        ["job-2", "job-4"],
        ["job-2", "job-4"],
        ["job-2"],
    ]
    assert report_fields(report, "last_successful_point", "cancelled", "warnings") == [["job-1"], [], []]
    check_store(run_sql)
    assert (scheduler.job(first), scheduler.job(right), scheduler.job(unrelated)) == before
    assert scheduler.wait_detail(last) == "waiting on job job-2"
    assert scheduler.drain()[-2:] == [left, last]
    assert {scheduler.status(job) for job in (first, left, right, last, unrelated)} == {Status.COMPLETED}
    check_store(run_sql)


def test_rewind_that_creates_a_cycle_is_refused(scheduler: Scheduler) -> None:
    """A dependent of a job may have produced its needs: together they would wait forever."""
    first = scheduler.submit(needs=["file:/plan.md"], missing_producer="block")
    assert scheduler.status(first) is Status.BLOCKED_BY_DEPENDENCY
    second = scheduler.submit(after=[f"job-{first}:finished"], produces=["file:/plan.md"])
    assert scheduler.status(second) is Status.DISPATCHED
    scheduler.end_run(second)
    ring = "these jobs would wait for each other forever: job-1 -> job-2 -> job-1"
    with pytest.raises(Conflict, match=ring):
        scheduler.rewind(first)
    assert [scheduler.status(job) for job in (first, second)] == [Status.BLOCKED_BY_DEPENDENCY, Status.COMPLETED]
    third = scheduler.submit(after=[f"job-{first}:finished"], produces=["file:/plan.md"], delay="1h")
    with pytest.raises(Conflict, match="job-1 -> job-3 -> job-1; submit a new job"):
        scheduler.run_request(lambda tx: retry(tx, format_job_id(first), actor="tester"))
    assert scheduler.wait_detail(third) == "not before 2026-01-01T01:00:00Z"


def test_state_of_earlier_runs_is_cleared(scheduler: Scheduler) -> None:
    job = scheduler.submit("false", after=[scheduler.submit()])
    scheduler.drain()
    scheduler.rewind(job)
    for _ in range(3):
        scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no"))
        scheduler.clock.advance(seconds=5)
        scheduler.run_turns()
    before = scheduler.job(job)
    assert (before.reason, before.dispatch_failures, before.waited_on) == ("circuit-broken: no", 3, ())
    scheduler.submit("sleep")
    scheduler.clock.advance(seconds=1)
    scheduler.rewind(job)
    record = scheduler.job(job)
    assert (record.status, record.queued_at) == (Status.QUEUED, scheduler.clock.moment)
    assert (record.started_at, record.finished_at, record.not_before, record.wait_kind) == (None, None, None, None)
    assert (record.exit_code, record.reason, record.waited_on, record.pid) == (None, None, (), None)
    assert (record.retries, record.permanently_failed, record.stop_requested) == (0, False, None)
    assert (record.dispatch_failures, record.last_failure) == (0, None)
    same = ("spec", "chain", "attempt", "priority", "position", "created_at", "after")
    assert all(getattr(record, name) == getattr(before, name) for name in same)
    assert record.was_dispatched, "INV-001: its spec stays frozen"
    shown = scheduler.show_job(job)
    assert (shown.run, shown.pid, shown.exit_code, shown.reason) == (None, None, None, None)


def test_stop_request_is_cleared(scheduler: Scheduler) -> None:
    job = scheduler.submit("sleep")
    scheduler.confirm_start(job)
    scheduler.cancel(job)
    scheduler.end_run(job, None, signal=15, ended_by="stop")
    assert scheduler.job(job).stop_requested is not None
    assert scheduler.rewind(job).cancelled == ["job-1"]
    scheduler.end_run(job, 1)
    assert scheduler.status(job) is Status.FAILED


def test_inv_001_params_stay_frozen(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.end_run(job)
    scheduler.submit("sleep")
    scheduler.rewind(job)
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit(scheduler.job(job), {"params": {"a": 1}})


def test_permanent_failure_gets_its_retries_again(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    job = scheduler.submit("false", retries=1)
    scheduler.end_run(job, 1)
    scheduler.clock.advance(minutes=1)
    scheduler.run_turns()
    second = scheduler.started_jobs()[-1]
    scheduler.end_run(second, 1)
    assert scheduler.job(second).permanently_failed
    report = scheduler.rewind(job)
    assert (report.requested_job, report.root, report.reset) == ("job-1", "job-2", ["job-2"])
    assert scheduler.status(job) is Status.FAILED, "only the last job of a chain is reset"
    scheduler.end_run(second, 1)
    check_store(run_sql)
    third = scheduler.reader.chains.last_job(job)
    assert third == (JobId(3), Status.QUEUED)
    scheduler.crash()
    assert scheduler.reader.chains.last_job(job) == third, "recovery finds no retry missing"
    check_store(run_sql)


def test_rewind_set_with_running_job_is_refused_unchanged(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    first = scheduler.submit()
    second = scheduler.submit(after=[first])
    scheduler.end_run(first)
    text = r"^cannot rewind while jobs are running in the rewind set: job-2 \(RUNNING\)$"
    before = run_sql("SELECT * FROM job ORDER BY id"), run_sql("SELECT count(*) FROM event")
    for job in (first, second):
        with pytest.raises(Conflict, match=text):
            scheduler.rewind(job)
    assert (run_sql("SELECT * FROM job ORDER BY id"), run_sql("SELECT count(*) FROM event")) == before
    scheduler.confirm_start(second)
    with pytest.raises(Conflict, match=text):
        scheduler.rewind(first)
    scheduler.end_run(second)
    assert scheduler.rewind(first).reset == ["job-1", "job-2"]


def test_unknown_job_is_not_found(scheduler: Scheduler) -> None:
    with pytest.raises(NotFound, match="no such job: job-9; `rota list --all` lists all jobs"):
        scheduler.rewind(JobId(9))


def test_waiting_jobs_are_reset_too(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    holder = scheduler.submit("sleep", locks=["a"])
    first = scheduler.submit("false", delay="1h")
    locked = scheduler.submit(after=[f"job-{first}:finished"], locks=["a"])
    delayed = scheduler.job(first).not_before
    assert delayed is not None
    assert scheduler.rewind(first).warnings == []
    assert scheduler.job(first).not_before == delayed, "its delay was requested"
    check_store(run_sql)
    scheduler.clock.advance(hours=1)
    scheduler.run_turns()
    scheduler.end_run(holder)
    scheduler.end_run(first, 1)
    assert scheduler.started_jobs()[-1] == locked
    check_store(run_sql)


def test_rewind_keeps_a_delay_and_reports_dropped_backoff(scheduler: Scheduler) -> None:
    root = scheduler.submit("build", retries=2)
    delayed = scheduler.submit(after=[f"job-{root}:finished"], delay="1h")
    scheduler.end_run(root, 1)
    state = scheduler.session.chains.last_job(root)
    assert state is not None
    retry = state[0]
    until = scheduler.job(retry).not_before
    assert until is not None
    report = scheduler.rewind(root)
    assert report.warnings == [f"dropped delays: job-{retry} was to be retried at {format_time(until)}"]
    assert (scheduler.job(retry).not_before, scheduler.started_jobs()[-1]) == (None, retry)
    assert scheduler.job(delayed).not_before is not None
    scheduler.end_run(retry)
    assert scheduler.started_jobs()[-1] == retry, "the delay of the other is kept"


def test_ready_job_leaves_and_reenters_its_lane(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    holder, ready = scheduler.submit("sleep"), scheduler.submit()
    assert run_sql(f"SELECT ready FROM job WHERE id = {ready}") == [(1,)]
    report = scheduler.rewind(ready)
    assert report_fields(report, "reset", "restarted") == [["job-2"], []]
    check_store(run_sql)
    scheduler.end_run(holder)
    assert scheduler.started_jobs() == [holder, ready]
    check_store(run_sql)


def test_job_in_a_lock_queue_lets_others_pass_when_reset(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    scheduler.set_pools(**{"global": 3})
    first = scheduler.submit()
    scheduler.end_run(first)
    holder = scheduler.submit("sleep", locks=["a"])
    behind = scheduler.submit(after=[first], locks=["a"])
    other = scheduler.submit(locks=["a"])
    assert scheduler.status(behind) is Status.WAITING_ON_LOCKS
    scheduler.rewind(first)
    check_store(run_sql)
    assert scheduler.status(behind) is Status.WAITING_ON_DEPS
    scheduler.end_run(holder)
    assert scheduler.started_jobs()[-1] == other
    check_store(run_sql)


def test_cancelled_jobs_are_included_and_named(scheduler: Scheduler) -> None:
    first = scheduler.submit()
    second = scheduler.submit(after=[first])
    scheduler.cancel(second)
    scheduler.end_run(first)
    report = scheduler.rewind(first)
    assert (report.reset, report.cancelled) == (["job-1", "job-2"], ["job-2"])
    scheduler.drain()
    assert scheduler.status(second) is Status.COMPLETED


def test_blocked_job_follows_the_retried_chain(scheduler: Scheduler) -> None:
    """This is the advice of `rota retry`."""
    first = scheduler.submit("false")
    second = scheduler.submit(after=[first])
    scheduler.end_run(first, 1)
    result = scheduler.run_request(lambda tx: retry(tx, "job-1", actor="tester"))
    assert "`rota rewind job-2` lets it follow the chain again" in result.advice
    report = scheduler.rewind(second)
    assert report_fields(report, "reset", "restarted", "last_successful_point") == [["job-2"], [], []]
    assert scheduler.wait_detail(second) == "waiting on job job-3"
    scheduler.end_run(result.job)
    assert scheduler.started_jobs()[-1] == second


def test_job_blocked_again_is_reported(scheduler: Scheduler) -> None:
    """LESSONS: a retry that silently did nothing (dagu 2411)."""
    first = scheduler.submit("false")
    second = scheduler.submit(after=[first])
    scheduler.end_run(first, 1)
    report = scheduler.rewind(second)
    assert report.restarted == []
    blocked = "job-2 is BLOCKED_BY_DEPENDENCY again: dependency failed for job job-1 (FAILED)"
    assert report.warnings == [f"{blocked}; jobs upstream were not rewound"]


def test_failure_handler_waits_again(scheduler: Scheduler) -> None:
    first = scheduler.submit("false")
    handler = scheduler.submit(after=[f"job-{first}:failed"])
    scheduler.end_run(first, 1)
    scheduler.end_run(handler)
    scheduler.rewind(first)
    assert scheduler.status(handler) is Status.WAITING_ON_DEPS
    scheduler.end_run(first)
    assert scheduler.job(handler).reason == "not needed: job-1 COMPLETED"


def test_late_end_of_earlier_run_changes_nothing(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    old = scheduler.find_run(job)
    scheduler.end_run(job)
    scheduler.rewind(job)
    assert scheduler.find_run(job) != old
    scheduler.confirm_start(job)
    at = scheduler.clock.moment.timestamp()
    scheduler.receive(ExitReport(run=old, at=at, code=1), StartFailure(run=old, error="late"))
    assert scheduler.status(job) is Status.RUNNING
    scheduler.end_run(job)
    assert [(run.id, run.status) for run in scheduler.reader.runs.of_job(job)] == [
        (scheduler.find_run(job), Status.COMPLETED),
        (old, Status.COMPLETED),
    ]


@pytest.mark.both_databases
def test_start_order_names_superseded_run_after_failed_start_and_crash(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    old = scheduler.find_run(job)
    scheduler.end_run(job)
    scheduler.rewind(job)
    assert [start.superseded_run for start in scheduler.executor.starts] == [UNSET, old]
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no"))
    scheduler.clock.advance(seconds=2)
    scheduler.run_turns()
    assert scheduler.executor.starts[-1].superseded_run == old
    scheduler.crash()
    assert [(start.job, start.superseded_run) for start in scheduler.executor.starts] == [(job, old)]


def test_cancelled_rewound_job_has_no_run(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.end_run(job)
    blocker = scheduler.submit("sleep")
    scheduler.rewind(job)
    scheduler.cancel(job)
    shown = scheduler.show_job(job)
    assert (shown.status, shown.exit_code, shown.run, shown.outcome_path) == ("CANCELLED", 143, None, None)
    scheduler.end_run(blocker)


def test_rewind_set_that_grew_is_computed_again(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    area = scheduler.find_rewind_set(job)
    scheduler.end_run(job)
    late = scheduler.submit(after=[job])
    scheduler.end_run(late)
    result = scheduler.run_request(lambda tx: rewind(tx, area, StartFacts(), actor="tester"))
    assert result is None
    assert scheduler.status(job) is Status.COMPLETED
    assert scheduler.rewind(job).reset == ["job-1", "job-2"]


# Artifacts.


def test_consumers_are_downstream_and_existing_products_count_as_missing(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 3})
    scheduler.probe.values[PLAN] = True
    producer = scheduler.submit(produces=["file:/plan.md"])
    scheduler.end_run(producer)
    consumer = scheduler.submit(needs=["file:/plan.md"])
    scheduler.end_run(consumer)
    report = scheduler.rewind(producer)
    assert report_fields(report, "reset", "restarted") == [["job-1", "job-2"], ["job-1"]]
    assert scheduler.wait_detail(consumer) == "waiting on file:/plan.md"
    new = scheduler.submit(needs=["file:/plan.md"])
    scheduler.record_changed_facts()
    assert scheduler.wait_detail(new) == "waiting on file:/plan.md"
    assert scheduler.rewind(consumer).last_successful_point == []
    scheduler.end_run(producer)
    assert scheduler.started_jobs()[-2:] == [consumer, new]


def test_producer_is_the_last_successful_point(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 3})
    scheduler.probe.values[PLAN] = True
    producer, skipped, failed = (
        scheduler.submit(produces=["file:/plan.md"]),
        scheduler.submit(),
        scheduler.submit("false"),
    )
    scheduler.end_run(producer)
    scheduler.end_run(skipped, skip_reason="no need")
    scheduler.end_run(failed, 1)
    consumer = scheduler.submit(needs=["file:/plan.md"], after=[skipped, f"job-{failed}:finished"])
    scheduler.end_run(consumer)
    report = scheduler.rewind(consumer)
    assert report_fields(report, "last_successful_point", "restarted") == [["job-1", "job-2"], ["job-4"]]


def test_pinned_root_starts_in_the_turn_of_its_rewind(scheduler: Scheduler) -> None:
    head = BranchHead("/repo/.git", "main")
    scheduler.probe.values[head] = OID
    job = scheduler.submit(pin="main")
    scheduler.end_run(job)
    assert scheduler.rewind(job).restarted == ["job-1"]
    scheduler.end_run(job)
    scheduler.probe.values[head] = "b" * 40
    assert scheduler.rewind(job).restarted == []
    assert scheduler.wait_detail(job) == "pinned head mismatch on main"


def test_custom_artifacts_of_the_rewind_set_are_withdrawn(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    artifact = parse_artifact("custom:report:weekly")
    producer = scheduler.submit(produces=[str(artifact)])
    scheduler.confirm_start(producer)

    def put(tx: Transaction) -> None:
        number = tx.artifacts.id_of(artifact, "/repo/.git")
        tx.artifacts.add_product(producer, number, sequence=None)
        tx.artifacts.put(number, "42", producer, tx.now)
        tx.artifacts.record_put(scheduler.find_run(producer), str(artifact))

    scheduler.run_request(put)
    scheduler.end_run(producer)
    consumer = scheduler.submit(needs=[str(artifact)])
    scheduler.end_run(consumer)
    assert [record.artifact for record in scheduler.reader.artifacts.list_put()] == [str(artifact)]
    scheduler.rewind(consumer)
    assert [record.artifact for record in scheduler.reader.artifacts.list_put()] == [str(artifact)], (
        "its producer put it"
    )
    scheduler.end_run(consumer)
    scheduler.rewind(producer)
    assert scheduler.reader.artifacts.list_put() == []
    assert scheduler.reader.runs.of_job(producer)[-1].artifacts == (str(artifact),), "the audit row is kept"


@pytest.fixture
def sentinel(scheduler: Scheduler) -> Path:
    path = scheduler.home / "tmp/merge-conflicts/foo.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    scheduler.probe.values[FileExists(str(path))] = True
    return path


@pytest.mark.parametrize("names", [{"needs": ["merge_sentinel:foo"]}, {"produces": ["target_branch:main"]}])
def test_merge_jobs_are_not_rewound_during_a_merge(scheduler: Scheduler, sentinel: Path, names: dict[str, Any]) -> None:
    first = scheduler.submit()
    scheduler.end_run(first)
    second = scheduler.submit(after=[first], **names)
    scheduler.end_run(second)
    scheduler.probe.merging_repositories = {"/repo/.git"}
    with pytest.raises(Conflict) as refusal:
        scheduler.rewind(first)
    assert refusal.value.message == MERGE_IN_PROGRESS
    assert sentinel.exists()
    assert scheduler.status(second) is Status.COMPLETED
    plain = scheduler.submit(produces=["plan_branch:foo"])
    scheduler.end_run(plain)
    assert scheduler.rewind(plain).reset == ["job-3"], "without merge jobs the state of git does not matter"
    scheduler.end_run(plain)
    scheduler.probe.merging_repositories = {"/elsewhere/.git"}
    assert scheduler.rewind(first).reset == ["job-1", "job-2"]


def test_sentinels_of_the_rewind_set_are_removed_and_upstream_ones_kept(scheduler: Scheduler, sentinel: Path) -> None:
    scheduler.set_pools(**{"global": 2})
    merge = scheduler.submit("merge", produces=["merge_sentinel:foo"])
    scheduler.end_run(merge)
    resolve = scheduler.submit("resolve", needs=["merge_sentinel:foo"])
    scheduler.end_run(resolve, 1)
    assert scheduler.rewind(resolve).restarted == ["job-2"]
    assert sentinel.exists()
    scheduler.end_run(resolve, 1)
    scheduler.rewind(merge)
    assert not sentinel.exists()
    assert scheduler.wait_detail(resolve) == "waiting on merge_sentinel:foo"


def test_sentinel_left_by_a_crash_is_removed_at_the_next_start(scheduler: Scheduler, sentinel: Path) -> None:
    merge = scheduler.submit("merge", produces=["merge_sentinel:foo"])
    scheduler.end_run(merge)
    scheduler.submit("sleep")
    scheduler.rewind(merge)
    sentinel.write_text("left behind by a crash")
    scheduler.crash()
    assert not sentinel.exists()


def test_sentinel_of_running_job_is_kept_at_a_start(scheduler: Scheduler, sentinel: Path) -> None:
    merge = scheduler.submit("merge", produces=["merge_sentinel:foo"])
    scheduler.end_run(merge)
    scheduler.rewind(merge)
    scheduler.confirm_start(merge)
    sentinel.write_text("made by the new run")
    scheduler.crash([RunReport(run=scheduler.find_run(merge), pid=4242, start_time=1)])
    assert sentinel.exists()


# Files.


def write_files(scheduler: Scheduler, job: JobId, **files: str) -> Path:
    folder = scheduler.home / "jobs" / str(job)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_files_of_the_last_run_are_archived_before_the_response(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.find_run(job)
    scheduler.end_run(job)
    folder = write_files(
        scheduler,
        job,
        stdout__log="out",
        stderr__log="err",
        session="s",
        outcome__json="{}",
        command__patch="p",
        input__patch="i",
        job__json="{}",
    )
    assert scheduler.show_job(job).session_path == "s"
    report = scheduler.rewind(job)
    assert report.warnings == []
    assert sorted(path.name for path in folder.iterdir()) == ["input.patch", "job.json", "runs"]
    kept = {path.name: path.read_text() for path in (folder / "runs" / str(run)).iterdir()}
    assert kept == {"stdout.log": "out", "stderr.log": "err", "session": "s"}
    shown = scheduler.show_job(job)
    assert (shown.session_path, shown.outcome_path) == (None, None)


def test_files_that_cannot_be_moved_are_reported(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.end_run(job)
    folder = write_files(scheduler, job, stdout__log="out", runs="in the way")
    report = scheduler.rewind(job)
    assert report.restarted == ["job-1"]
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith("cannot archive the logs of job-1; its next start archives them: ")
    assert (folder / "stdout.log").read_text() == "out"
    assert not scheduler.job(job).has_own_logs, "old logs are not shown as new ones"
    scheduler.confirm_start(job)
    assert scheduler.job(job).has_own_logs


def test_refused_rewind_moves_no_files(scheduler: Scheduler) -> None:
    """The same holds for a rewind that is undone with its turn."""
    first = scheduler.submit()
    scheduler.end_run(first)
    folder = write_files(scheduler, first, stdout__log="out")
    scheduler.submit("sleep", after=[first])
    with pytest.raises(Conflict):
        scheduler.rewind(first)
    assert (folder / "stdout.log").read_text() == "out"


def test_mirror_does_not_restore_an_old_outcome(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.end_run(job)
    mirror_files(scheduler)
    folder = scheduler.home / "jobs" / str(job)
    assert (folder / "outcome.json").exists()
    old = (folder / "outcome.json").read_bytes()
    blocker = scheduler.submit("sleep")
    scheduler.rewind(job)
    assert not (folder / "outcome.json").exists()
    (folder / "outcome.json").write_bytes(old)  # from a record that was read just before
    mirror_files(scheduler)
    assert not (folder / "outcome.json").exists()
    scheduler.cancel(job)
    mirror_files(scheduler)
    assert not (folder / "outcome.json").exists(), "it has not run since"
    scheduler.rewind(job)
    scheduler.end_run(blocker)
    scheduler.end_run(job, 3)
    mirror_files(scheduler)
    assert b'"exit_code":3' in (folder / "outcome.json").read_bytes()


def mirror_files(scheduler: Scheduler) -> None:
    mirror = JobFileMirror(scheduler.store, scheduler.home / "jobs", lambda _position: None)
    mirror.start()
    mirror.stop()


def test_large_rewind_set_takes_few_statements(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    first = scheduler.submit()
    request = [msgspec.convert({"command": ["true"], "after": [{"job": f"job-{first}"}]}, Submission)] * 1_500
    scheduler.run_request(lambda tx: submit(tx, request, DefaultEnvironment(cwd="/", variables={}), actor="tester"))
    scheduler.end_run(first, 1)
    statements: list[str] = []
    area, facts = scheduler.find_rewind_set(first), StartFacts()

    def act(tx: Transaction) -> Any:
        database = tx.session._db
        with pytest.MonkeyPatch.context() as patched:
            for verb in ("rows", "run", "run_many", "buffer"):
                patched.setattr(database, verb, partial(_record, statements, getattr(database, verb)))
            return rewind(tx, area, facts, actor="tester")

    report = scheduler.run_request(act, render_reports)
    assert len(report.reset) == 1_501
    assert report.restarted == ["job-1"]
    assert len(statements) < 25
    assert run_sql("SELECT count(*) FROM job WHERE status = 'WAITING_ON_DEPS'") == [(1_500,)]
    check_store(run_sql)


def _record(statements: list[str], call: Any, name: str, /, *args: Any, **values: Any) -> Any:
    statements.append(name)
    return call(name, *args, **values)
