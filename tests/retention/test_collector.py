"""Retention: records and files are removed together or not at all, and everything kept is complete."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rota.db.database import UnknownOutcomeError
from rota.engine.idempotency import PendingResponse, StoredResponse, encode_pending
from rota.engine.transaction import Transaction
from rota.errors import Conflict, HomeError, RotaError, ServiceUnavailable, StorageFull, StoreError
from rota.executor.port import EnvironmentUpload
from rota.ids import JobId, format_job_id
from rota.jobs.retry import retry
from rota.jobs.submission import DefaultEnvironment, Dependency, Submission
from rota.jobs.submit import AcceptedSubmit, submit
from rota.kernel.facts import BranchHead, FileExists
from rota.kernel.status import Status
from rota.retention import cleanup
from rota.retention import collector as retention_collector
from rota.retention import trash as retention_trash
from rota.retention.collector import RetentionCollector, RetentionResult
from rota.retention.model import KeptReason
from rota.retention.repository import RemovalResult
from rota.retention.trash import DIRECTORY_NAME, Trash
from rota.schedules.commands import disable, enable, remove
from tests.db.invariants import check_store
from tests.engine.schedule_harness import ScheduleDriver
from tests.harness import Scheduler, SqlRunner

WEEK = timedelta(days=7)
ALL = timedelta()


class KilledError(BaseException):
    """Stand-in for `kill -9`: nothing happens after it."""


def collector_of(scheduler: Scheduler, perform: Callable[[Any], Any] | None = None) -> RetentionCollector:
    return RetentionCollector(
        store=scheduler.store,
        jobs=scheduler.home / "jobs",
        reservations=scheduler.home / "reservations",
        worktrees=scheduler.home / "worktrees",
        patches=scheduler.home / "patches",
        clock=scheduler.clock,
        run_in_turn=perform or scheduler.run_request,
        flush_job_files=scheduler.reader.events.last_stored_seq,
    )


@pytest.fixture
def collector(scheduler: Scheduler) -> RetentionCollector:
    return collector_of(scheduler)


def write_files(scheduler: Scheduler, *jobs: JobId) -> None:
    for job in jobs:
        directory = scheduler.home / "jobs" / str(job)
        (directory / "runs").mkdir(parents=True)
        (directory / "stdout.log").write_bytes(b"x" * 100)
        (directory / "runs" / "stderr.log").write_bytes(b"y" * 10)


def submit_ended(scheduler: Scheduler, *, after: tuple[JobId, ...] = (), code: int = 0, **fields: Any) -> JobId:
    job = scheduler.submit(after=[f"{format_job_id(predecessor)}:finished" for predecessor in after], **fields)
    scheduler.end_run(job, code)
    write_files(scheduler, job)
    return job


def collect(collector: RetentionCollector, older_than: timedelta = WEEK, *, is_dry: bool = False) -> RetentionResult:
    """Collect. With a zero age the clock moves first, so that jobs that have just ended are old enough."""
    if not older_than:
        collector._clock.advance(microseconds=1)  # type: ignore[attr-defined]
    return collector.collect(older_than, cause="gc", is_dry_run=is_dry, actor="tester")


def jobs_with_files(scheduler: Scheduler) -> list[int]:
    """Return the jobs whose directories are in place and complete."""
    jobs = []
    for path in sorted((scheduler.home / "jobs").iterdir()):
        if path.name.isdecimal():
            assert (path / "stdout.log").stat().st_size == 100
            assert (path / "runs" / "stderr.log").stat().st_size == 10
            jobs.append(int(path.name))
    return sorted(jobs)


def jobs_with_rows(scheduler: Scheduler) -> list[int]:
    return sorted(job for job in range(1, 100) if scheduler.reader.jobs.find(JobId(job)) is not None)


def test_old_jobs_are_removed_with_their_files_and_counted(
    scheduler: Scheduler, collector: RetentionCollector, run_sql: SqlRunner
) -> None:
    first, second = submit_ended(scheduler), submit_ended(scheduler, code=3)
    scheduler.clock.advance(days=7)
    third = submit_ended(scheduler)
    result = collect(collector)
    assert (result.rows.jobs, result.rows.runs, result.bytes) == (0, 0, 0), (
        "exactly a week old is not older than a week"
    )
    scheduler.clock.advance(seconds=1)
    result = collect(collector)
    assert result.jobs == [second, first]
    assert (result.rows.jobs, result.rows.runs, result.bytes, result.kept) == (2, 2, 220, {})
    assert jobs_with_rows(scheduler) == jobs_with_files(scheduler) == [third]
    assert not (scheduler.home / "jobs" / DIRECTORY_NAME).exists()
    ((data,),) = run_sql("SELECT data FROM event WHERE kind = 'gc.removed'")
    assert json.loads(data) == {
        "jobs": 2,
        "runs": 2,
        "events": result.rows.events,
        "idempotency_keys": 0,
        "environments": 0,
        "lanes": 0,
        "reservations": 0,
        "groups": 0,
        "templates": 0,
        "deliveries": 0,
        "fires": 0,
        "bytes": 220,
        "kept": 0,
        "abandoned": 0,
    }
    check_store(run_sql)


def test_lessons_producer_needed_by_active_job_is_kept(scheduler: Scheduler, collector: RetentionCollector) -> None:
    """LESSONS: gc removed a producer that an active job still needed. Every reference protects, also that of an ended
    job, which is shown with its predecessors."""
    producer, between = submit_ended(scheduler), submit_ended(scheduler, after=(JobId(1),))
    waiting = scheduler.submit(after=[between], delay="30d")
    scheduler.clock.advance(days=10)
    result = collect(collector)
    assert (result.rows.jobs, result.kept) == (0, {KeptReason.REFERENCED: 2})
    assert jobs_with_files(scheduler) == [producer, between]
    scheduler.cancel(waiting)
    assert collect(collector).rows.jobs == 0, "the cancelled job still names its predecessor"
    assert [edge.predecessor for edge in scheduler.job(waiting).after] == [between]
    scheduler.clock.advance(days=8)
    assert collect(collector).jobs == [waiting, between, producer]
    assert jobs_with_rows(scheduler) == jobs_with_files(scheduler) == []


def test_old_chain_that_is_retried_is_kept(scheduler: Scheduler, collector: RetentionCollector) -> None:
    job = submit_ended(scheduler, code=1)
    scheduler.clock.advance(days=10)

    def retried(act: Any) -> Any:
        if scheduler.reader.chains.last_job(job) == (job, Status.FAILED):
            scheduler.run_request(lambda tx: retry(tx, format_job_id(job), actor="tester"))
        return scheduler.run_request(act)

    result = collect(collector_of(scheduler, retried))
    assert result.rows.jobs == 0
    assert jobs_with_files(scheduler) == [job], "its files were moved to the trash and are back"


def test_batch_members_may_depend_on_later_ones(scheduler: Scheduler, collector: RetentionCollector) -> None:
    """An edge that points to a higher number takes a second pass."""
    environment = DefaultEnvironment(cwd="/", variables={})
    request = [
        Submission(command=["true"], after=[Dependency(job="c")]),
        Submission(command=["true"], local="b"),
        Submission(command=["true"], local="c", after=[Dependency(job="b")]),
    ]
    scheduler.run_request(lambda tx: submit(tx, request, environment, actor="tester"))
    assert len(scheduler.drain()) == 3
    scheduler.clock.advance(days=10)
    assert collect(collector, is_dry=True).rows.jobs == 3
    assert sorted(collect(collector).jobs) == [1, 2, 3]


def test_dry_run_reports_the_same_and_changes_nothing(
    scheduler: Scheduler, collector: RetentionCollector, run_sql: SqlRunner, tmp_path: Path
) -> None:
    jobs = [submit_ended(scheduler) for _ in range(3)]
    for n in range(3):
        scheduler.run_once(f"key-{n}", "it", lambda _: "done")
    submit_ended(scheduler, after=(jobs[2],))
    scheduler.submit(after=[jobs[0]], delay="30d")
    (tmp_path / "worktrees" / f"job-{jobs[1]}.2").mkdir(parents=True)
    scheduler.clock.advance(days=8)
    before = [run_sql(f"SELECT * FROM {table}") for table in ("job", "event", "meta", "idempotency", "sequence")]
    dry = collect(collector, is_dry=True)
    assert [
        run_sql(f"SELECT * FROM {table}") for table in ("job", "event", "meta", "idempotency", "sequence")
    ] == before
    assert len(jobs_with_files(scheduler)) == 4
    assert dry.is_dry_run
    real = collect(collector)
    assert (dry.rows, dry.bytes, dry.kept, dry.jobs, dry.kept_jobs) == (
        real.rows,
        real.bytes,
        real.kept,
        real.jobs,
        real.kept_jobs,
    )
    assert (real.rows.jobs, real.kept) == (2, {KeptReason.REFERENCED: 1, KeptReason.WORKTREE: 1})
    assert real.rows.idempotency_keys == 3


def test_worktree_protects_its_job_and_its_predecessors(
    scheduler: Scheduler, collector: RetentionCollector, tmp_path: Path
) -> None:
    first, second = submit_ended(scheduler), submit_ended(scheduler, after=(JobId(1),))
    worktree = tmp_path / "worktrees" / f"job-{second}"
    worktree.mkdir(parents=True)
    result = collect(collector, ALL)
    assert (result.rows.jobs, result.kept) == (0, {KeptReason.REFERENCED: 1, KeptReason.WORKTREE: 1})
    assert [(kept.job, kept.detail) for kept in result.kept_jobs] == [
        (second, f"its worktree {worktree} still exists; after saving its changes, run: git worktree remove {worktree}")
    ]
    admin = tmp_path / "admin"
    (admin / "modules").mkdir(parents=True)
    (worktree / ".git").write_text(f"gitdir: {admin}\n")
    assert f"git worktree remove --force {worktree}" in collect(collector, ALL).kept_jobs[0].detail
    shutil.rmtree(worktree)
    assert collect(collector, ALL).jobs == [second, first]


def test_files_that_cannot_be_removed_keep_their_own_rows_only(
    scheduler: Scheduler, collector: RetentionCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = submit_ended(scheduler), submit_ended(scheduler, after=(JobId(1),)), submit_ended(scheduler)
    measure = Trash.measure

    def refused(trash: Trash, job: JobId) -> int:
        if job == second:
            raise PermissionError(13, "Permission denied", "jobs/2/runs")
        return measure(trash, job)

    with monkeypatch.context() as patched:
        patched.setattr(Trash, "measure", refused)
        result = collect(collector, ALL)
    assert (result.jobs, result.kept) == ([third], {KeptReason.REFERENCED: 1, KeptReason.FILES: 1})
    assert [kept.detail for kept in result.kept_jobs] == ["its files cannot be removed: jobs/2/runs: Permission denied"]
    assert jobs_with_rows(scheduler) == jobs_with_files(scheduler) == [first, second]


def test_directory_that_cannot_be_moved_keeps_its_predecessors(
    scheduler: Scheduler, collector: RetentionCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure shows only when the others of its batch are moved."""
    first, second, third = submit_ended(scheduler), submit_ended(scheduler, after=(JobId(1),)), submit_ended(scheduler)
    move_in = Trash.move_in

    def refused(trash: Trash, jobs: tuple[JobId, ...]) -> None:
        if second in jobs:
            raise PermissionError(13, "Permission denied", "jobs/2")
        move_in(trash, jobs)

    monkeypatch.setattr(Trash, "move_in", refused)
    assert collect(collector, ALL).jobs == [third]
    assert jobs_with_rows(scheduler) == jobs_with_files(scheduler) == [first, second]


@pytest.mark.parametrize("failure", [StorageFull("full"), StoreError("gone"), ServiceUnavailable("stopping")])
def test_files_are_restored_when_rows_are_kept(scheduler: Scheduler, failure: RotaError) -> None:
    jobs = [submit_ended(scheduler) for _ in range(3)]

    def fails(act: Any) -> Any:
        assert jobs_with_files(scheduler) == []
        raise failure

    with pytest.raises(type(failure)):
        collect(collector_of(scheduler, fails), ALL)
    assert jobs_with_rows(scheduler) == jobs_with_files(scheduler) == jobs


@pytest.mark.parametrize("is_stored", [True, False])
def test_unknown_outcome_is_settled_by_the_next_start(scheduler: Scheduler, is_stored: bool) -> None:
    jobs = [submit_ended(scheduler) for _ in range(3)]

    def unknown(act: Any) -> Any:
        if is_stored:
            scheduler.run_request(act)
        raise UnknownOutcomeError("it may be stored or not")

    with pytest.raises(UnknownOutcomeError):
        collect(collector_of(scheduler, unknown), ALL)
    assert jobs_with_files(scheduler) == []
    collector = collector_of(scheduler)
    collector.recover()
    assert jobs_with_files(scheduler) == jobs_with_rows(scheduler) == ([] if is_stored else jobs)
    collect(collector, ALL)
    assert jobs_with_files(scheduler) == jobs_with_rows(scheduler) == []
    assert not (scheduler.home / "jobs" / DIRECTORY_NAME).exists()


POINTS = ["move_in", "sync", "delete", "restore"]


@contextmanager
def killed_at(point: str, call: int, *, is_before: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the process end at this call of this step, before or after it."""
    step = getattr(Trash, point)
    calls: list[str] = []

    def run(trash: Trash, *args: Any) -> Any:
        if "killed" in calls:
            raise KilledError  # the clean-up does not run either
        calls.append("called")
        if len(calls) == call and is_before:
            calls.append("killed")
            raise KilledError
        result = step(trash, *args)
        if len(calls) == call:
            calls.append("killed")
            raise KilledError
        return result

    with monkeypatch.context() as patched:
        patched.setattr(Trash, point, run)
        if point != "restore":
            patched.setattr(Trash, "restore", lambda _trash, _jobs: None)
        patched.setattr(retention_collector, "CHAIN_BATCH_SIZE", 2)
        yield


@pytest.mark.both_databases
@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS)
def test_kill_at_any_step_leaves_rows_and_files_consistent(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, run_sql: SqlRunner, point: str, call: int, is_before: bool
) -> None:
    jobs = [submit_ended(scheduler) for _ in range(5)]
    with killed_at(point, call, is_before=is_before, monkeypatch=monkeypatch), suppress(KilledError):
        collect(collector_of(scheduler), ALL)
    scheduler.crash()
    collector = collector_of(scheduler)
    collector.recover()
    rows = jobs_with_rows(scheduler)
    assert jobs_with_files(scheduler) == rows
    assert set(rows) <= set(jobs)
    check_store(run_sql)
    collect(collector, ALL)
    assert jobs_with_rows(scheduler) == jobs_with_files(scheduler) == []
    assert not (scheduler.home / "jobs" / DIRECTORY_NAME).exists()
    assert scheduler.submit() == len(jobs) + 1


def test_files_written_to_old_directory_meanwhile_are_kept(scheduler: Scheduler) -> None:
    """KilledError between the two steps, and the mirror was faster than the recovery."""
    job = submit_ended(scheduler)
    directory = scheduler.home / "jobs" / str(job)
    Trash(scheduler.home / "jobs").move_in([job])
    directory.mkdir()
    (directory / "job.json").write_text("newer")
    collector_of(scheduler).recover()
    assert jobs_with_files(scheduler) == [job]
    assert (directory / "job.json").read_text() == "newer"


def test_collection_first_settles_an_earlier_one(scheduler: Scheduler, collector: RetentionCollector) -> None:
    """The start did not settle it."""
    job = submit_ended(scheduler)
    write_files(scheduler, JobId(77))
    Trash(scheduler.home / "jobs").move_in([job, JobId(77)])
    assert collect(collector).rows.jobs == 0
    assert jobs_with_files(scheduler) == jobs_with_rows(scheduler) == [job]
    assert not (scheduler.home / "jobs" / DIRECTORY_NAME).exists()


def test_files_with_rows_are_not_deleted_when_they_cannot_be_restored(
    scheduler: Scheduler, collector: RetentionCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit_ended(scheduler)
    Trash(scheduler.home / "jobs").move_in([job])

    def refused(_source: str, _target: str) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(retention_trash, "_restore", refused)
        collect(collector)
    assert (scheduler.home / "jobs" / DIRECTORY_NAME / str(job) / "stdout.log").exists()
    collect(collector)
    assert jobs_with_files(scheduler) == [job]


def test_links_are_not_followed(scheduler: Scheduler, collector: RetentionCollector, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    linked, within = scheduler.submit(), scheduler.submit()
    scheduler.drain()
    (scheduler.home / "jobs").mkdir(exist_ok=True)
    (scheduler.home / "jobs" / str(linked)).symlink_to(outside)
    (scheduler.home / "jobs" / str(within)).mkdir()
    (scheduler.home / "jobs" / str(within) / "link").symlink_to(outside)
    assert collect(collector, ALL).rows.jobs == 2
    assert (outside / "precious").read_text() == "kept"
    assert list((scheduler.home / "jobs").iterdir()) == []


def test_link_in_place_of_trash_directory_is_refused(
    scheduler: Scheduler, collector: RetentionCollector, tmp_path: Path
) -> None:
    job = submit_ended(scheduler)
    outside = tmp_path / "outside"
    (outside / "7").mkdir(parents=True)
    (scheduler.home / "jobs" / DIRECTORY_NAME).symlink_to(outside)
    collector.recover()
    with pytest.raises(HomeError, match="it is not a directory; remove it"):
        collect(collector, ALL)
    assert (outside / "7").is_dir()
    assert jobs_with_files(scheduler) == [job]


def test_files_that_remain_are_reported_and_removed_later(
    scheduler: Scheduler, collector: RetentionCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit_ended(scheduler)

    def refused(_path: str) -> None:
        raise OSError(16, "Device or resource busy", "jobs/.removed/1/runs")

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", refused)
        result = collect(collector, ALL)
    assert (result.jobs, result.remaining) == ([job], ["jobs/.removed/1/runs: Device or resource busy"])
    assert jobs_with_rows(scheduler) == []
    assert collect(collector, ALL).remaining == []
    assert not (scheduler.home / "jobs" / DIRECTORY_NAME).exists()


def test_job_whose_files_are_being_written_is_kept(scheduler: Scheduler) -> None:
    job = submit_ended(scheduler)
    collector = collector_of(scheduler)
    collector._flush_job_files = lambda: 0
    assert collect(collector, ALL).rows.jobs == 0
    assert jobs_with_rows(scheduler) == jobs_with_files(scheduler) == [job]


def test_collections_do_not_overlap(scheduler: Scheduler) -> None:
    submit_ended(scheduler)
    refused: list[str] = []

    def again(act: Any) -> Any:
        if not refused:
            with pytest.raises(Conflict) as caught:
                collect(overlapping, ALL)
            refused.append(caught.value.message)
            assert overlapping.in_progress is not None
            assert collect(overlapping, ALL, is_dry=True).rows.jobs == 1
        return scheduler.run_request(act)

    overlapping = collector_of(scheduler, again)
    assert collect(overlapping, ALL).rows.jobs == 1
    assert refused == ["a retention run is already in progress; run `rota gc` again when it has ended"]
    assert overlapping.in_progress is None


def test_collection_ends_between_batches_when_scheduler_stops(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_collector, "CHAIN_BATCH_SIZE", 2)
    jobs = [submit_ended(scheduler) for _ in range(5)]

    def stops(act: Any) -> Any:
        stopped.is_stopping = True
        return scheduler.run_request(act)

    stopped = collector_of(scheduler, stops)
    with pytest.raises(ServiceUnavailable, match="the scheduler is stopping"):
        collect(stopped, ALL)
    assert jobs_with_rows(scheduler) == jobs_with_files(scheduler) == jobs[:3]


def test_other_requests_run_between_batches(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_collector, "CHAIN_BATCH_SIZE", 2)
    for _ in range(6):
        submit_ended(scheduler)
    started: list[JobId] = []

    def between(act: Any) -> Any:
        result = scheduler.run_request(act)
        if len(started) < 3:
            started.append(scheduler.submit())
            scheduler.end_run(started[-1])
        return result

    scheduler.clock.advance(seconds=1)
    assert collect(collector_of(scheduler, between), ALL).rows.jobs == 6
    assert jobs_with_rows(scheduler) == started == [7, 8, 9]


def test_turn_removes_few_jobs_however_long_the_chains_are(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention_collector, "CHAIN_BATCH_SIZE", 4)
    for _ in range(3):
        job = submit_ended(scheduler, code=1)
        for _ in range(2):
            retried = scheduler.run_request(lambda tx, job=job: retry(tx, format_job_id(job), actor="tester"))
            scheduler.end_run(retried.job, 1)
    turns: list[int] = []

    def counted(act: Any) -> Any:
        result = scheduler.run_request(act)
        turns.extend([result.rows.jobs] if isinstance(result, RemovalResult) else [])
        return result

    assert collect(collector_of(scheduler, counted), ALL).rows.jobs == 9
    assert turns == [3, 3, 3]


def test_idempotency_key_is_kept_for_an_hour(scheduler: Scheduler, collector: RetentionCollector) -> None:
    def submit_once() -> object:
        return scheduler.run_once("once", "a job", lambda tx: store(tx).jobs[0])

    def store(tx: Transaction) -> AcceptedSubmit:
        result = submit(tx, [Submission(command=["true"])], DefaultEnvironment(cwd="/", variables={}), actor="me")
        assert isinstance(result, AcceptedSubmit)
        return result

    assert submit_once() == 1
    assert collect(collector, ALL).rows.idempotency_keys == 0
    assert submit_once() == StoredResponse(status=201, body=b"1"), "it still waits, and is not stored again"
    scheduler.end_run(JobId(1))
    assert collect(collector, ALL).jobs == [1]
    assert submit_once() == StoredResponse(status=201, body=b"1"), "even after the job was removed"
    scheduler.clock.advance(hours=1, seconds=1)
    assert collect(collector, ALL).rows.idempotency_keys == 1
    assert submit_once() == 2


def test_pending_response_and_its_reservation_expire_an_hour_after_its_end(
    scheduler: Scheduler, collector: RetentionCollector
) -> None:
    """A repeated request gets the running reservation or its result. In the end both are removed."""
    reservation = scheduler.reserve("true")
    result = encode_pending(PendingResponse(reservation=reservation))
    scheduler.run_request(lambda tx: tx.responses.add("k", "d", result.status, result.body.decode(), tx.now))
    scheduler.clock.advance(hours=2)
    rows = collect(collector, ALL).rows
    assert (rows.idempotency_keys, rows.reservations) == (0, 0), "it still runs"
    scheduler.end_reservation(reservation)
    scheduler.clock.advance(minutes=59)
    rows = collect(collector, ALL).rows
    assert (rows.idempotency_keys, rows.reservations) == (0, 0), "its result may still be requested"
    scheduler.clock.advance(minutes=2)
    dry = collector.collect(ALL, cause="test", is_dry_run=True).rows
    rows = collect(collector, ALL).rows
    assert (rows.idempotency_keys, rows.reservations) == (dry.idempotency_keys, dry.reservations) == (1, 1)


def test_key_stored_again_meanwhile_has_not_expired(scheduler: Scheduler) -> None:
    def remember(tx: Transaction) -> None:
        tx.responses.remove(["k"])
        tx.responses.add("k", "d", 201, "{}", tx.now)

    scheduler.run_request(remember)
    scheduler.clock.advance(hours=2)
    until = scheduler.clock.now() - timedelta(hours=1)
    assert cleanup.find_expired_keys(scheduler.reader, until) == ["k"]
    scheduler.run_request(remember)
    assert scheduler.run_request(lambda tx: cleanup.remove_expired_keys(tx, ["k"], until)) == 0


def test_environment_stored_again_is_uploaded_again(scheduler: Scheduler, collector: RetentionCollector) -> None:
    def run(name: str) -> int:
        job = scheduler.submit(env={"NAME": name}, inherit_env=False)
        scheduler.end_run(job)
        return scheduler.executor.starts[-1].environment_id

    numbers = [run("a"), run("b")]
    assert collect(collector, ALL).rows.environments == 1
    numbers += [run("c"), run("a")]
    assert len(set(numbers)) == 4
    result = {
        order.environment_id: order.variables
        for order in scheduler.executor.orders
        if isinstance(order, EnvironmentUpload)
    }
    assert [result[number] for number in numbers] == [{"NAME": name} for name in "abca"]


def test_active_job_keeps_producers_of_its_needs(
    scheduler: Scheduler, collector: RetentionCollector, run_sql: SqlRunner
) -> None:
    """LESSONS Store: gc removed a producer that an active job still needed."""
    scheduler.probe.values[FileExists("/plan.md")] = True
    producer = submit_ended(scheduler, produces=["file:/plan.md"])
    patched = submit_ended(scheduler)
    other = submit_ended(scheduler)
    waiting = scheduler.submit(needs=[f"command_patch:job-{patched}", "file:/plan.md"], delay="30d")
    scheduler.clock.advance(days=8)
    result = collect(collector)
    assert result.rows.jobs == 1
    assert scheduler.reader.jobs.find(other) is None
    assert scheduler.status(producer) is Status.COMPLETED
    scheduler.cancel(waiting)
    assert collect(collector).rows.jobs == 0, "it has ended and is kept, so its producers are kept"
    scheduler.clock.advance(days=8)
    assert collect(collector).rows.jobs == 3
    assert run_sql("SELECT count(*) FROM need") == run_sql("SELECT count(*) FROM product") == [(0,)]
    assert run_sql("SELECT count(*) FROM artifact") == [(1,)], "the last number is kept"


def test_ended_job_keeps_only_the_last_producer(scheduler: Scheduler, collector: RetentionCollector) -> None:
    """Otherwise every merge into a branch would be kept while merges continue."""
    scheduler.probe.values[BranchHead("/repo/.git", "main")] = "1" * 40
    producers = [submit_ended(scheduler, produces=["target_branch:main"]) for _ in range(3)]
    scheduler.clock.advance(days=8)
    submit_ended(scheduler, needs=["target_branch:main"])
    assert collect(collector).rows.jobs == 2
    assert scheduler.reader.jobs.existing(producers) == {producers[-1]}


def test_rewind_restores_files_from_a_collection(scheduler: Scheduler, collector: RetentionCollector) -> None:
    """The files are moved, the job is rewound, and the collection then leaves it alone."""
    job = submit_ended(scheduler)
    run = scheduler.find_run(job)
    directory = scheduler.home / "jobs" / str(job)
    trash = Trash(scheduler.home / "jobs")
    trash.move_in([job])
    scheduler.rewind(job)
    trash.restore([job])
    assert (directory / "runs" / str(run) / "stdout.log").read_bytes() == b"x" * 100
    assert trash.list_jobs() == []


def test_group_is_removed_with_its_last_member(scheduler: Scheduler, collector: RetentionCollector) -> None:
    """Members of an unfinished group are kept. Removed members stay in the counts, and no number is used again."""
    group, (first, second) = scheduler.submit_group({}, {}, mode="sequential", on_failure="continue")
    scheduler.end_run(first, 1)
    write_files(scheduler, first)
    scheduler.clock.advance(days=8)
    collect(collector)
    assert jobs_with_rows(scheduler) == [first, second]
    scheduler.end_run(second)
    write_files(scheduler, second)
    scheduler.clock.advance(days=8)
    assert collect(collector).rows.groups == 1
    assert jobs_with_rows(scheduler) == []
    assert scheduler.reader.groups.find_all([group]) == []


def test_removed_members_stay_in_the_counts(
    scheduler: Scheduler, collector: RetentionCollector, run_sql: SqlRunner
) -> None:
    group, jobs = scheduler.submit_group({}, {}, {})
    for job, code in zip(jobs, (1, 0, 0), strict=True):
        if scheduler.status(job) is Status.DISPATCHED:
            scheduler.end_run(job, code)
    write_files(scheduler, *jobs)
    kept = scheduler.submit(after=[f"{format_job_id(jobs[2])}:finished"], delay="30d")
    before = scheduler.show_group(group)
    assert before.status == "PARTIAL"
    scheduler.clock.advance(days=8)
    assert collect(collector).rows.groups == 0
    assert jobs_with_rows(scheduler) == [jobs[2], kept]
    after = scheduler.show_group(group)
    assert (after.status, after.counts, after.total, after.jobs) == (
        "PARTIAL",
        before.counts,
        3,
        [format_job_id(jobs[2])],
    )
    scheduler.cancel(kept)
    write_files(scheduler, kept)
    scheduler.clock.advance(days=8)
    assert collect(collector, is_dry=True).rows.groups == 1
    assert collect(collector).rows.groups == 1
    assert run_sql("SELECT id FROM job_group") == []
    assert scheduler.submit_group({})[0] == group + 1


def test_fires_expire_except_the_last_and_schedules_keep_their_environment(
    scheduler: Scheduler, run_sql: SqlRunner
) -> None:
    driver = ScheduleDriver(scheduler)
    driver.add_schedule("0 0 * * *", job={"env": {"WHO": "me"}, "inherit_env": False})
    driver.add_schedule("0 0 * * *", name="gone", job={"env": {"WHO": "them"}, "inherit_env": False})
    submit_ended(scheduler)  # with another environment: the last one is always kept
    driver.advance_to("2026-01-05T12:00")
    driver.run_command(disable)
    driver.run_command(remove, "gone")
    scheduler.drain()
    driver.clock.moment += timedelta(days=30)
    collector = collector_of(scheduler)
    assert collect(collector, is_dry=True).rows.fires == 7
    assert collect(collector).rows.fires == 7
    assert driver.format_fires() == ["fired 00:00"]
    assert run_sql("SELECT count(*) FROM fire") == [(1,)]
    assert run_sql("SELECT count(*) FROM job") == [(0,)]
    driver.run_command(enable)
    driver.advance_to("2026-02-05T00:00")
    job = scheduler.reader.jobs.find_all([fire.job for fire in driver.list_fires() if fire.job is not None][-1:])[0]
    assert scheduler.reader.jobs.environment_variables(job.spec.environment) == {"WHO": "me"}
    assert driver.add_schedule("0 0 * * *", name="new").id == 3
