"""Rewind inside the engine: what is put back, what is cleared, what is left alone, and what refuses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from harness import Raw, Scheduler
from rota.command.retry import retry
from rota.command.rewind import Sighted, reports, rewind
from rota.command.submission import Submission, Surroundings
from rota.command.submit import submit
from rota.core.artifact import parse_artifact
from rota.core.fact import File, Head
from rota.core.job import edit
from rota.core.rewind import MID_MERGE
from rota.core.status import Status
from rota.engine.mirror import Mirror
from rota.engine.work import Work
from rota.errors import Conflict, NotFound
from rota.executor.port import Account, Exited, FailedToStart
from rota.ids import JobId, show_job
from store.invariants import check_store

PLAN = File("/plan.md")
OID = "a" * 40


def diamond(scheduler: Scheduler) -> list[JobId]:
    """1 -> 2, 3 -> 4, and 5 aside."""
    first = scheduler.submit()
    left, right = scheduler.submit(after=[first]), scheduler.submit(after=[first])
    return [first, left, right, scheduler.submit(after=[left, right]), scheduler.submit()]


def shown(report: Any, *names: str) -> list[list[str]]:
    return [getattr(report, name) for name in names]


def test_the_job_and_all_downstream_run_again_and_nothing_else(scheduler: Scheduler, raw: Raw) -> None:
    first, left, right, last, aside = diamond(scheduler)
    scheduler.drain()
    before = scheduler.job(first), scheduler.job(right), scheduler.job(aside)
    scheduler.clock.advance(seconds=5)
    report = scheduler.rewind(left)
    assert (report.requested_job, report.root) == ("job-2", "job-2")
    assert shown(report, "rewind_set", "reset", "restarted") == [["job-2", "job-4"], ["job-2", "job-4"], ["job-2"]]
    assert shown(report, "last_successful_point", "cancelled", "warnings") == [["job-1"], [], []]
    check_store(raw)
    assert (scheduler.job(first), scheduler.job(right), scheduler.job(aside)) == before
    assert scheduler.detail(last) == "waiting on job job-2"
    assert scheduler.drain()[-2:] == [left, last]
    assert {scheduler.status(job) for job in (first, left, right, last, aside)} == {Status.COMPLETED}
    check_store(raw)


def test_what_would_wait_for_each_other_is_not_put_back(scheduler: Scheduler) -> None:
    """What came after a job may have made what it needs: together they would wait for ever."""
    first = scheduler.submit(needs=["file:/plan.md"])
    assert scheduler.status(first) is Status.BLOCKED_BY_DEPENDENCY
    second = scheduler.submit(after=[f"job-{first}:finished"], produces=["file:/plan.md"])
    assert scheduler.status(second) is Status.DISPATCHED
    scheduler.end(second)
    ring = "these would wait for each other for ever: job-1 -> job-2 -> job-1"
    with pytest.raises(Conflict, match=ring):
        scheduler.rewind(first)
    assert [scheduler.status(job) for job in (first, second)] == [Status.BLOCKED_BY_DEPENDENCY, Status.COMPLETED]
    third = scheduler.submit(after=[f"job-{first}:finished"], produces=["file:/plan.md"], delay="1h")
    with pytest.raises(Conflict, match="job-1 -> job-3 -> job-1; submit anew"):
        scheduler.do(lambda work: retry(work, show_job(first), actor="tester"))
    assert scheduler.detail(third) == "not before 2026-01-01T01:00:00Z"


def test_everything_of_before_is_cleared(scheduler: Scheduler) -> None:
    job = scheduler.submit("false", after=[scheduler.submit()])
    scheduler.drain()
    scheduler.rewind(job)
    for _ in range(3):
        scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no"))
        scheduler.clock.advance(seconds=5)
        scheduler.turn()
    before = scheduler.job(job)
    assert (before.reason, before.dispatch_failures, before.waited_on) == ("circuit-broken: no", 3, ())
    scheduler.submit("sleep")
    scheduler.clock.advance(seconds=1)
    scheduler.rewind(job)
    found = scheduler.job(job)
    assert (found.status, found.queued_at) == (Status.QUEUED, scheduler.clock.moment)
    assert (found.started_at, found.finished_at, found.not_before, found.wait_kind) == (None, None, None, None)
    assert (found.exit_code, found.reason, found.waited_on, found.pid) == (None, None, (), None)
    assert (found.retries, found.permanently_failed, found.stop_requested) == (0, False, None)
    assert (found.dispatch_failures, found.last_failure) == (0, None)
    same = ("spec", "chain", "attempt", "priority", "position", "created_at", "after")
    assert all(getattr(found, name) == getattr(before, name) for name in same)
    assert found.was_dispatched, "INV-001: what it is to do stays frozen"
    form = scheduler.show(job)
    assert (form.run, form.pid, form.exit_code, form.reason) == (None, None, None, None)


def test_a_stopped_run_leaves_no_wish_to_stop_behind(scheduler: Scheduler) -> None:
    job = scheduler.submit("sleep")
    scheduler.start(job)
    scheduler.cancel(job)
    scheduler.end(job, None, signal=15, ended_by="stop")
    assert scheduler.job(job).stop_requested is not None
    assert scheduler.rewind(job).cancelled == ["job-1"]
    scheduler.end(job, 1)
    assert scheduler.status(job) is Status.FAILED


def test_inv_001_params_stay_frozen(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.end(job)
    scheduler.submit("sleep")
    scheduler.rewind(job)
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit(scheduler.job(job), {"params": {"a": 1}})


def test_a_permanent_failure_has_its_retries_again(scheduler: Scheduler, raw: Raw) -> None:
    job = scheduler.submit("false", retries=1)
    scheduler.end(job, 1)
    scheduler.clock.advance(minutes=1)
    scheduler.turn()
    second = scheduler.started()[-1]
    scheduler.end(second, 1)
    assert scheduler.job(second).permanently_failed
    report = scheduler.rewind(job)
    assert (report.requested_job, report.root, report.reset) == ("job-1", "job-2", ["job-2"])
    assert scheduler.status(job) is Status.FAILED, "of a chain only the last job is put back"
    scheduler.end(second, 1)
    check_store(raw)
    third = scheduler.reader.last_of_chain(job)
    assert third == (JobId(3), Status.QUEUED)
    scheduler.crash()
    assert scheduler.reader.last_of_chain(job) == third, "recovery finds no retry missing"
    check_store(raw)


def test_while_one_of_the_set_runs_it_is_refused_and_nothing_is_changed(scheduler: Scheduler, raw: Raw) -> None:
    first = scheduler.submit()
    second = scheduler.submit(after=[first])
    scheduler.end(first)
    text = r"^cannot rewind while jobs are running in the rewind set: job-2 \(RUNNING\)$"
    before = raw("SELECT * FROM job ORDER BY id"), raw("SELECT count(*) FROM event")
    for job in (first, second):
        with pytest.raises(Conflict, match=text):
            scheduler.rewind(job)
    assert (raw("SELECT * FROM job ORDER BY id"), raw("SELECT count(*) FROM event")) == before
    scheduler.start(second)
    with pytest.raises(Conflict, match=text):
        scheduler.rewind(first)
    scheduler.end(second)
    assert scheduler.rewind(first).reset == ["job-1", "job-2"]


def test_an_unknown_job(scheduler: Scheduler) -> None:
    with pytest.raises(NotFound, match="no such job: job-9; `rota list --all` shows what there is"):
        scheduler.rewind(JobId(9))


def test_those_that_wait_are_put_back_too(scheduler: Scheduler, raw: Raw) -> None:
    holder = scheduler.submit("sleep", locks=["a"])
    first = scheduler.submit("false", delay="1h")
    locked = scheduler.submit(after=[f"job-{first}:finished"], locks=["a"])
    scheduler.rewind(first)
    assert scheduler.job(first).not_before is None
    check_store(raw)
    scheduler.end(holder)
    scheduler.end(first, 1)
    assert scheduler.started()[-1] == locked
    check_store(raw)


def test_one_that_stands_ready_leaves_its_lane_and_stands_in_it_again(scheduler: Scheduler, raw: Raw) -> None:
    holder, ready = scheduler.submit("sleep"), scheduler.submit()
    assert raw(f"SELECT ready FROM job WHERE id = {ready}") == [(1,)]
    report = scheduler.rewind(ready)
    assert shown(report, "reset", "restarted") == [["job-2"], []]
    check_store(raw)
    scheduler.end(holder)
    assert scheduler.started() == [holder, ready]
    check_store(raw)


def test_one_that_stands_in_the_queue_of_its_lock_lets_others_pass_when_it_waits_again(
    scheduler: Scheduler, raw: Raw
) -> None:
    scheduler.set_pools(**{"global": 3})
    first = scheduler.submit()
    scheduler.end(first)
    holder = scheduler.submit("sleep", locks=["a"])
    behind = scheduler.submit(after=[first], locks=["a"])
    other = scheduler.submit(locks=["a"])
    assert scheduler.status(behind) is Status.WAITING_ON_LOCKS
    scheduler.rewind(first)
    check_store(raw)
    assert scheduler.status(behind) is Status.WAITING_ON_DEPS
    scheduler.end(holder)
    assert scheduler.started()[-1] == other
    check_store(raw)


def test_those_that_somebody_cancelled_are_included_and_named(scheduler: Scheduler) -> None:
    first = scheduler.submit()
    second = scheduler.submit(after=[first])
    scheduler.cancel(second)
    scheduler.end(first)
    report = scheduler.rewind(first)
    assert (report.reset, report.cancelled) == (["job-1", "job-2"], ["job-2"])
    scheduler.drain()
    assert scheduler.status(second) is Status.COMPLETED


def test_a_blocked_job_follows_the_chain_that_was_retried(scheduler: Scheduler) -> None:
    """As `rota retry` advises."""
    first = scheduler.submit("false")
    second = scheduler.submit(after=[first])
    scheduler.end(first, 1)
    told = scheduler.do(lambda work: retry(work, "job-1", actor="tester"))
    assert "`rota rewind job-2` lets it follow the chain again" in told.advice
    report = scheduler.rewind(second)
    assert shown(report, "reset", "restarted", "last_successful_point") == [["job-2"], [], []]
    assert scheduler.detail(second) == "waiting on job job-1"
    scheduler.end(told.job)
    assert scheduler.started()[-1] == second


def test_blocked_again_is_said(scheduler: Scheduler) -> None:
    """LESSONS: a retry that silently did nothing (dagu 2411)."""
    first = scheduler.submit("false")
    second = scheduler.submit(after=[first])
    scheduler.end(first, 1)
    report = scheduler.rewind(second)
    assert report.restarted == []
    blocked = "job-2 is BLOCKED_BY_DEPENDENCY again: dependency failed for job job-1 (FAILED)"
    assert report.warnings == [f"{blocked}; what is upstream was left as it is"]


def test_a_handler_of_failure_waits_again(scheduler: Scheduler) -> None:
    first = scheduler.submit("false")
    handler = scheduler.submit(after=[f"job-{first}:failed"])
    scheduler.end(first, 1)
    scheduler.end(handler)
    scheduler.rewind(first)
    assert scheduler.status(handler) is Status.WAITING_ON_DEPS
    scheduler.end(first)
    assert scheduler.job(handler).reason == "not needed: job-1 COMPLETED"


def test_a_late_end_of_an_earlier_run_changes_nothing(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    old = scheduler.run_of(job)
    scheduler.end(job)
    scheduler.rewind(job)
    assert scheduler.run_of(job) != old
    scheduler.start(job)
    at = scheduler.clock.moment.timestamp()
    scheduler.say(Exited(run=old, at=at, code=1), FailedToStart(run=old, error="late"))
    assert scheduler.status(job) is Status.RUNNING
    scheduler.end(job)
    assert [(run.id, run.status) for run in scheduler.reader.runs_of(job)] == [
        (scheduler.run_of(job), Status.COMPLETED),
        (old, Status.COMPLETED),
    ]


def test_a_start_says_which_run_is_to_be_aside_also_after_a_failed_one_and_a_crash(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    old = scheduler.run_of(job)
    scheduler.end(job)
    scheduler.rewind(job)
    assert [start.aside for start in scheduler.executor.starts] == [UNSET, old]
    scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no"))
    scheduler.clock.advance(seconds=2)
    scheduler.turn()
    assert scheduler.executor.starts[-1].aside == old
    scheduler.crash()
    assert [(start.job, start.aside) for start in scheduler.executor.starts] == [(job, old)]


def test_a_cancelled_rewound_job_has_no_run_of_its_own(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.end(job)
    blocker = scheduler.submit("sleep")
    scheduler.rewind(job)
    scheduler.cancel(job)
    form = scheduler.show(job)
    assert (form.status, form.exit_code, form.run, form.outcome_path) == ("CANCELLED", 143, None, None)
    scheduler.end(blocker)


def test_a_set_that_grew_since_it_was_looked_at_is_looked_at_again(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    area = scheduler.area(job)
    scheduler.end(job)
    late = scheduler.submit(after=[job])
    scheduler.end(late)
    told = scheduler.do(lambda work: rewind(work, area, Sighted(), actor="tester"))
    assert told is None
    assert scheduler.status(job) is Status.COMPLETED
    assert scheduler.rewind(job).reset == ["job-1", "job-2"]


# Artifacts.


def test_consumers_of_what_it_makes_are_downstream_and_what_is_there_counts_as_missing(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 3})
    scheduler.probe.world[PLAN] = True
    maker = scheduler.submit(produces=["file:/plan.md"])
    scheduler.end(maker)
    user = scheduler.submit(needs=["file:/plan.md"])
    scheduler.end(user)
    report = scheduler.rewind(maker)
    assert shown(report, "reset", "restarted") == [["job-1", "job-2"], ["job-1"]]
    assert scheduler.detail(user) == "waiting on file:/plan.md"
    new = scheduler.submit(needs=["file:/plan.md"])
    scheduler.look_outside()
    assert scheduler.detail(new) == "waiting on file:/plan.md"
    assert scheduler.rewind(user).last_successful_point == []
    scheduler.end(maker)
    assert scheduler.started()[-2:] == [user, new]


def test_the_producer_is_the_last_successful_point(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 3})
    scheduler.probe.world[PLAN] = True
    maker, skipped, failed = scheduler.submit(produces=["file:/plan.md"]), scheduler.submit(), scheduler.submit("false")
    scheduler.end(maker)
    scheduler.end(skipped, skipped="no need")
    scheduler.end(failed, 1)
    user = scheduler.submit(needs=["file:/plan.md"], after=[skipped, f"job-{failed}:finished"])
    scheduler.end(user)
    report = scheduler.rewind(user)
    assert shown(report, "last_successful_point", "restarted") == [["job-1", "job-2"], ["job-4"]]


def test_a_pinned_root_starts_in_the_turn_of_its_rewind(scheduler: Scheduler) -> None:
    head = Head("/repo/.git", "main")
    scheduler.probe.world[head] = OID
    job = scheduler.submit(pin="main")
    scheduler.end(job)
    assert scheduler.rewind(job).restarted == ["job-1"]
    scheduler.end(job)
    scheduler.probe.world[head] = "b" * 40
    assert scheduler.rewind(job).restarted == []
    assert scheduler.detail(job) == "pinned head mismatch on main"


def test_what_the_set_has_put_is_taken_back(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    artifact = parse_artifact("custom:report:weekly")
    maker = scheduler.submit(produces=[str(artifact)])
    scheduler.start(maker)

    def put(work: Work) -> None:
        number = work.session.number_of(artifact, "/repo/.git")
        work.session.add_product(maker, number, sequence=None)
        work.session.put(number, "42", maker, work.now)
        work.session.note_put(scheduler.run_of(maker), str(artifact))

    scheduler.do(put)
    scheduler.end(maker)
    user = scheduler.submit(needs=[str(artifact)])
    scheduler.end(user)
    assert [each.artifact for each in scheduler.reader.artifacts_put()] == [str(artifact)]
    scheduler.rewind(user)
    assert [each.artifact for each in scheduler.reader.artifacts_put()] == [str(artifact)], "it is its maker's"
    scheduler.end(user)
    scheduler.rewind(maker)
    assert scheduler.reader.artifacts_put() == []
    assert scheduler.reader.runs_of(maker)[-1].artifacts == (str(artifact),), "the audit row stays"


@pytest.fixture
def sentinel(scheduler: Scheduler) -> Path:
    path = scheduler.home / "tmp/merge-conflicts/foo.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    scheduler.probe.world[File(str(path))] = True
    return path


@pytest.mark.parametrize("names", [{"needs": ["merge_sentinel:foo"]}, {"produces": ["target_branch:main"]}])
def test_merge_work_is_not_rewound_in_the_middle_of_a_merge(
    scheduler: Scheduler, sentinel: Path, names: dict[str, Any]
) -> None:
    first = scheduler.submit()
    scheduler.end(first)
    second = scheduler.submit(after=[first], **names)
    scheduler.end(second)
    scheduler.probe.merging = {"/repo/.git"}
    with pytest.raises(Conflict) as refused:
        scheduler.rewind(first)
    assert refused.value.message == MID_MERGE
    assert sentinel.exists()
    assert scheduler.status(second) is Status.COMPLETED
    plain = scheduler.submit(produces=["plan_branch:foo"])
    scheduler.end(plain)
    assert scheduler.rewind(plain).reset == ["job-3"], "without merge work git may do what it likes"
    scheduler.end(plain)
    scheduler.probe.merging = {"/elsewhere/.git"}
    assert scheduler.rewind(first).reset == ["job-1", "job-2"]


def test_sentinels_of_the_set_go_and_those_made_upstream_stay(scheduler: Scheduler, sentinel: Path) -> None:
    scheduler.set_pools(**{"global": 2})
    merge = scheduler.submit("merge", produces=["merge_sentinel:foo"])
    scheduler.end(merge)
    resolve = scheduler.submit("resolve", needs=["merge_sentinel:foo"])
    scheduler.end(resolve, 1)
    assert scheduler.rewind(resolve).restarted == ["job-2"]
    assert sentinel.exists()
    scheduler.end(resolve, 1)
    scheduler.rewind(merge)
    assert not sentinel.exists()
    assert scheduler.detail(resolve) == "waiting on merge_sentinel:foo"


def test_a_sentinel_that_a_crash_left_is_removed_at_the_next_start(scheduler: Scheduler, sentinel: Path) -> None:
    merge = scheduler.submit("merge", produces=["merge_sentinel:foo"])
    scheduler.end(merge)
    scheduler.submit("sleep")
    scheduler.rewind(merge)
    sentinel.write_text("as if nobody had come to remove it")
    scheduler.crash()
    assert not sentinel.exists()


def test_a_sentinel_of_a_run_under_way_is_left_alone_at_a_start(scheduler: Scheduler, sentinel: Path) -> None:
    merge = scheduler.submit("merge", produces=["merge_sentinel:foo"])
    scheduler.end(merge)
    scheduler.rewind(merge)
    scheduler.start(merge)
    sentinel.write_text("made by the new run")
    scheduler.crash([Account(run=scheduler.run_of(merge), pid=4242, start_time=1)])
    assert sentinel.exists()


# Files.


def written(scheduler: Scheduler, job: JobId, **files: str) -> Path:
    folder = scheduler.home / "jobs" / str(job)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_files_of_the_last_run_are_aside_before_anybody_is_answered(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.run_of(job)
    scheduler.end(job)
    folder = written(scheduler, job, stdout__log="out", stderr__log="err", session="s", outcome__json="{}",
                     command__patch="p", input__patch="i", job__json="{}")  # fmt: skip
    assert scheduler.show(job).session_path == "s"
    report = scheduler.rewind(job)
    assert report.warnings == []
    assert sorted(path.name for path in folder.iterdir()) == ["input.patch", "job.json", "runs"]
    kept = {path.name: path.read_text() for path in (folder / "runs" / str(run)).iterdir()}
    assert kept == {"stdout.log": "out", "stderr.log": "err", "session": "s"}
    form = scheduler.show(job)
    assert (form.session_path, form.outcome_path) == (None, None)


def test_files_that_cannot_be_moved_are_said_and_stop_nobody(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.end(job)
    folder = written(scheduler, job, stdout__log="out", runs="in the way")
    report = scheduler.rewind(job)
    assert report.restarted == ["job-1"]
    assert len(report.warnings) == 1
    assert report.warnings[0].startswith("the logs of job-1 are set aside when it starts, for now they stay: ")
    assert (folder / "stdout.log").read_text() == "out"
    assert not scheduler.job(job).has_own_logs, "nobody is shown the old ones as if they were the new"
    scheduler.start(job)
    assert scheduler.job(job).has_own_logs


def test_a_refused_rewind_moves_nothing(scheduler: Scheduler) -> None:
    """Nor does one that is undone with it in the same turn."""
    first = scheduler.submit()
    scheduler.end(first)
    folder = written(scheduler, first, stdout__log="out")
    scheduler.submit("sleep", after=[first])
    with pytest.raises(Conflict):
        scheduler.rewind(first)
    assert (folder / "stdout.log").read_text() == "out"


def test_the_mirror_does_not_bring_an_outcome_back(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.end(job)
    mirrored(scheduler)
    folder = scheduler.home / "jobs" / str(job)
    assert (folder / "outcome.json").exists()
    old = (folder / "outcome.json").read_bytes()
    blocker = scheduler.submit("sleep")
    scheduler.rewind(job)
    assert not (folder / "outcome.json").exists()
    (folder / "outcome.json").write_bytes(old)  # from a record that was read just before
    mirrored(scheduler)
    assert not (folder / "outcome.json").exists()
    scheduler.cancel(job)
    mirrored(scheduler)
    assert not (folder / "outcome.json").exists(), "it has not run since"
    scheduler.rewind(job)
    scheduler.end(blocker)
    scheduler.end(job, 3)
    mirrored(scheduler)
    assert b'"exit_code":3' in (folder / "outcome.json").read_bytes()


def mirrored(scheduler: Scheduler) -> None:
    mirror = Mirror(scheduler.store, scheduler.home / "jobs", lambda _position: None)
    mirror.start()
    mirror.stop()


def test_a_large_set_takes_few_statements_and_its_root_starts_at_once(scheduler: Scheduler, raw: Raw) -> None:
    first = scheduler.submit()
    wanted = [msgspec.convert({"command": ["true"], "after": [{"job": f"job-{first}"}]}, Submission)] * 1_500
    scheduler.do(lambda work: submit(work, wanted, Surroundings(cwd="/", variables={}), actor="tester"))
    scheduler.end(first, 1)
    counted: list[str] = []
    area, sighted = scheduler.area(first), Sighted()

    def act(work: Work) -> Any:
        database = work.session._db
        work.session._db = Counting(database, counted)
        try:
            return rewind(work, area, sighted, actor="tester")
        finally:
            work.session._db = database

    report = scheduler.do(act, reports)
    assert len(report.reset) == 1_501
    assert report.restarted == ["job-1"]
    assert len(counted) < 25
    assert raw("SELECT count(*) FROM job WHERE status = 'WAITING_ON_DEPS'") == [(1_500,)]
    check_store(raw)


class Counting:
    """A database that puts down what is asked of it."""

    def __init__(self, database: Any, counted: list[str]) -> None:
        self._database, self._counted = database, counted

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._database, name)

        def counting(statement: str, *args: Any, **values: Any) -> Any:
            self._counted.append(statement)
            return call(statement, *args, **values)

        return counting
