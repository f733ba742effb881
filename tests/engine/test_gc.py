"""Collection: records and files go together or not at all, and whatever is kept is whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.clockwork import Clockwork
from harness import Raw, Scheduler
from rota.command.retry import retry
from rota.command.schedule import disable, enable, remove
from rota.command.submission import AfterWanted, Submission, Surroundings
from rota.command.submit import Submitted, submit
from rota.core.fact import File, Head
from rota.core.gc import Kept
from rota.core.status import Status
from rota.engine import gc, old_keys, trash
from rota.engine.gc import Collection, Collector
from rota.engine.once import Note, Told, note
from rota.engine.trash import NAME, Trash
from rota.engine.work import Work
from rota.errors import Conflict, HomeError, RotaError, StorageFull, StoreError, Unavailable
from rota.executor.port import Environment
from rota.ids import JobId, show_job
from rota.store.database import OutcomeUnknown
from rota.store.gc import Removed
from store.invariants import check_store

WEEK = timedelta(days=7)
ALL = timedelta()


class Killed(BaseException):
    """As `kill -9`: nothing after it happens."""


def collector_of(scheduler: Scheduler, perform: Callable[[Any], Any] | None = None) -> Collector:
    return Collector(
        store=scheduler.store,
        jobs=scheduler.home / "jobs",
        slots=scheduler.home / "slots",
        worktrees=scheduler.home / "worktrees",
        patches=scheduler.home / "patches",
        clock=scheduler.clock,
        perform=perform or scheduler.do,
        settle=scheduler.reader.last_event,
    )


@pytest.fixture
def collector(scheduler: Scheduler) -> Collector:
    return collector_of(scheduler)


def write_files(scheduler: Scheduler, *jobs: JobId) -> None:
    for job in jobs:
        directory = scheduler.home / "jobs" / str(job)
        (directory / "runs").mkdir(parents=True)
        (directory / "stdout.log").write_bytes(b"x" * 100)
        (directory / "runs" / "stderr.log").write_bytes(b"y" * 10)


def ended(scheduler: Scheduler, *, after: tuple[JobId, ...] = (), code: int = 0, **fields: Any) -> JobId:
    job = scheduler.submit(after=[f"{show_job(each)}:finished" for each in after], **fields)
    scheduler.end(job, code)
    write_files(scheduler, job)
    return job


def collect(collector: Collector, older_than: timedelta = WEEK, *, is_dry: bool = False) -> Collection:
    """A moment later: what ended just now ended before."""
    if not older_than:
        collector._clock.advance(microseconds=1)  # type: ignore[attr-defined]
    return collector.collect(older_than, cause="gc", is_dry=is_dry, actor="tester")


def with_files(scheduler: Scheduler) -> list[int]:
    """The jobs whose directories are in their places, and whole."""
    found = []
    for path in sorted((scheduler.home / "jobs").iterdir()):
        if path.name.isdecimal():
            assert (path / "stdout.log").stat().st_size == 100
            assert (path / "runs" / "stderr.log").stat().st_size == 10
            found.append(int(path.name))
    return sorted(found)


def with_rows(scheduler: Scheduler) -> list[int]:
    return sorted(job for job in range(1, 100) if scheduler.reader.job(JobId(job)) is not None)


def test_what_ended_long_ago_goes_with_its_files_and_is_counted(
    scheduler: Scheduler, collector: Collector, raw: Raw
) -> None:
    first, second = ended(scheduler), ended(scheduler, code=3)
    scheduler.clock.advance(days=7)
    third = ended(scheduler)
    found = collect(collector)
    assert (found.rows.jobs, found.rows.runs, found.bytes) == (0, 0, 0), "it is not older than a week, but as old"
    scheduler.clock.advance(seconds=1)
    found = collect(collector)
    assert found.jobs == [second, first]
    assert (found.rows.jobs, found.rows.runs, found.bytes, found.kept) == (2, 2, 220, {})
    assert with_rows(scheduler) == with_files(scheduler) == [third]
    assert not (scheduler.home / "jobs" / NAME).exists()
    ((data,),) = raw("SELECT data FROM event WHERE kind = 'gc.removed'")
    assert json.loads(data) == {
        "jobs": 2, "runs": 2, "events": found.rows.events, "idempotency_keys": 0, "surroundings": 0, "lanes": 0,
        "slots": 0, "groups": 0, "templates": 0, "deliveries": 0, "fires": 0, "bytes": 220, "kept": 0, "given_up": 0,
    }  # fmt: skip
    check_store(raw)


def test_lessons_a_producer_that_an_active_job_still_needs_stays(scheduler: Scheduler, collector: Collector) -> None:
    """LESSONS: gc removed a producer that an active job still needed. Every reference protects, also that of a job
    which has ended and is shown with what it came after."""
    producer, between = ended(scheduler), ended(scheduler, after=(JobId(1),))
    waiting = scheduler.submit(after=[between], delay="30d")
    scheduler.clock.advance(days=10)
    found = collect(collector)
    assert (found.rows.jobs, found.kept) == (0, {Kept.REFERENCED: 2})
    assert with_files(scheduler) == [producer, between]
    scheduler.cancel(waiting)
    assert collect(collector).rows.jobs == 0, "cancelled just now, it still names what it came after"
    assert [edge.predecessor for edge in scheduler.job(waiting).after] == [between]
    scheduler.clock.advance(days=8)
    assert collect(collector).jobs == [waiting, between, producer]
    assert with_rows(scheduler) == with_files(scheduler) == []


def test_an_old_chain_that_is_tried_again_stays(scheduler: Scheduler, collector: Collector) -> None:
    job = ended(scheduler, code=1)
    scheduler.clock.advance(days=10)

    def retried(act: Any) -> Any:
        if scheduler.reader.last_of_chain(job) == (job, Status.FAILED):
            scheduler.do(lambda work: retry(work, show_job(job), actor="tester"))
        return scheduler.do(act)

    found = collect(collector_of(scheduler, retried))
    assert found.rows.jobs == 0
    assert with_files(scheduler) == [job], "its files were out of their place for a moment, and are back"


def test_members_of_a_batch_may_name_each_other_in_any_order(scheduler: Scheduler, collector: Collector) -> None:
    """Then an edge points at a higher number, and it takes a second pass."""
    around = Surroundings(cwd="/", variables={})
    wanted = [
        Submission(command=["true"], after=[AfterWanted(job="c")]),
        Submission(command=["true"], local="b"),
        Submission(command=["true"], local="c", after=[AfterWanted(job="b")]),
    ]
    scheduler.do(lambda work: submit(work, wanted, around, actor="tester"))
    assert len(scheduler.drain()) == 3
    scheduler.clock.advance(days=10)
    assert collect(collector, is_dry=True).rows.jobs == 3
    assert sorted(collect(collector).jobs) == [1, 2, 3]


def test_a_dry_run_says_the_same_and_changes_nothing(
    scheduler: Scheduler, collector: Collector, raw: Raw, tmp_path: Path
) -> None:
    jobs = [ended(scheduler) for _ in range(3)]
    for n in range(3):
        scheduler.once(f"key-{n}", "it", lambda _: "done")
    ended(scheduler, after=(jobs[2],))
    scheduler.submit(after=[jobs[0]], delay="30d")
    (tmp_path / "worktrees" / f"job-{jobs[1]}.2").mkdir(parents=True)
    scheduler.clock.advance(days=8)
    before = [raw(f"SELECT * FROM {table}") for table in ("job", "event", "meta", "idempotency", "sequence")]
    dry = collect(collector, is_dry=True)
    assert [raw(f"SELECT * FROM {table}") for table in ("job", "event", "meta", "idempotency", "sequence")] == before
    assert len(with_files(scheduler)) == 4
    assert dry.is_dry
    real = collect(collector)
    assert (dry.rows, dry.bytes, dry.kept, dry.jobs, dry.stays) == (
        real.rows, real.bytes, real.kept, real.jobs, real.stays,
    )  # fmt: skip
    assert (real.rows.jobs, real.kept) == (2, {Kept.REFERENCED: 1, Kept.WORKTREE: 1})
    assert real.rows.idempotency_keys == 3


def test_a_worktree_protects_its_job_and_what_that_came_after(
    scheduler: Scheduler, collector: Collector, tmp_path: Path
) -> None:
    first, second = ended(scheduler), ended(scheduler, after=(JobId(1),))
    worktree = tmp_path / "worktrees" / f"job-{second}"
    worktree.mkdir(parents=True)
    found = collect(collector, ALL)
    assert (found.rows.jobs, found.kept) == (0, {Kept.REFERENCED: 1, Kept.WORKTREE: 1})
    assert [(each.job, each.detail) for each in found.stays] == [
        (second, f"its worktree {worktree} is still there; when its work is safe: git worktree remove {worktree}")
    ]
    worktree.rmdir()
    assert collect(collector, ALL).jobs == [second, first]


def test_files_that_cannot_be_removed_keep_their_rows_and_nobody_elses(
    scheduler: Scheduler, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = ended(scheduler), ended(scheduler, after=(JobId(1),)), ended(scheduler)
    weigh = Trash.weigh

    def refused(trash: Trash, job: JobId) -> int:
        if job == second:
            raise PermissionError(13, "Permission denied", "jobs/2/runs")
        return weigh(trash, job)

    with monkeypatch.context() as patched:
        patched.setattr(Trash, "weigh", refused)
        found = collect(collector, ALL)
    assert (found.jobs, found.kept) == ([third], {Kept.REFERENCED: 1, Kept.FILES: 1})
    assert [each.detail for each in found.stays] == ["its files cannot be removed: jobs/2/runs: Permission denied"]
    assert with_rows(scheduler) == with_files(scheduler) == [first, second]


def test_a_directory_that_cannot_be_taken_keeps_what_it_came_after(
    scheduler: Scheduler, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found out only when the others of its batch are on their way."""
    first, second, third = ended(scheduler), ended(scheduler, after=(JobId(1),)), ended(scheduler)
    take = Trash.take

    def refused(trash: Trash, jobs: tuple[JobId, ...]) -> None:
        if second in jobs:
            raise PermissionError(13, "Permission denied", "jobs/2")
        take(trash, jobs)

    monkeypatch.setattr(Trash, "take", refused)
    assert collect(collector, ALL).jobs == [third]
    assert with_rows(scheduler) == with_files(scheduler) == [first, second]


@pytest.mark.parametrize("trouble", [StorageFull("full"), StoreError("gone"), Unavailable("stopping")])
def test_rows_that_stay_get_their_files_back(scheduler: Scheduler, trouble: RotaError) -> None:
    jobs = [ended(scheduler) for _ in range(3)]

    def fails(act: Any) -> Any:
        assert with_files(scheduler) == []
        raise trouble

    with pytest.raises(type(trouble)):
        collect(collector_of(scheduler, fails), ALL)
    assert with_rows(scheduler) == with_files(scheduler) == jobs


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_outcome_that_nobody_knows_is_settled_by_the_next_start(scheduler: Scheduler, is_stored: bool) -> None:
    jobs = [ended(scheduler) for _ in range(3)]

    def unknown(act: Any) -> Any:
        if is_stored:
            scheduler.do(act)
        raise OutcomeUnknown("it may be stored or not")

    with pytest.raises(OutcomeUnknown):
        collect(collector_of(scheduler, unknown), ALL)
    assert with_files(scheduler) == []
    collector = collector_of(scheduler)
    collector.recover()
    assert with_files(scheduler) == with_rows(scheduler) == ([] if is_stored else jobs)
    collect(collector, ALL)
    assert with_files(scheduler) == with_rows(scheduler) == []
    assert not (scheduler.home / "jobs" / NAME).exists()


POINTS = ["take", "sync", "delete", "put_back"]


@contextmanager
def killed_at(point: str, call: int, *, is_before: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process ends at the so-many-th call of this step, before or after it."""
    step = getattr(Trash, point)
    calls: list[str] = []

    def run(trash: Trash, *args: Any) -> Any:
        if any("killed" in each for each in calls):
            raise Killed  # nothing that would clean up is done any more
        calls.append("called")
        if len(calls) == call and is_before:
            calls.append("killed")
            raise Killed
        result = step(trash, *args)
        if len(calls) == call:
            calls.append("killed")
            raise Killed
        return result

    with monkeypatch.context() as patched:
        patched.setattr(Trash, point, run)
        if point != "put_back":
            patched.setattr(Trash, "put_back", lambda _trash, _jobs: None)
        patched.setattr(gc, "BATCH", 2)
        yield


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_rows_and_files_agree_after_the_next_start(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, raw: Raw, point: str, call: int, is_before: bool
) -> None:
    jobs = [ended(scheduler) for _ in range(5)]
    with killed_at(point, call, is_before=is_before, monkeypatch=monkeypatch), suppress(Killed):
        collect(collector_of(scheduler), ALL)
    scheduler.crash()
    collector = collector_of(scheduler)
    collector.recover()
    rows = with_rows(scheduler)
    assert with_files(scheduler) == rows
    assert set(rows) <= set(jobs)
    check_store(raw)
    collect(collector, ALL)
    assert with_rows(scheduler) == with_files(scheduler) == []
    assert not (scheduler.home / "jobs" / NAME).exists()
    assert scheduler.submit() == len(jobs) + 1


def test_files_written_to_the_old_place_meanwhile_are_kept(scheduler: Scheduler) -> None:
    """Killed between the two, and the mirror was faster than the start."""
    job = ended(scheduler)
    place = scheduler.home / "jobs" / str(job)
    Trash(scheduler.home / "jobs").take([job])
    place.mkdir()
    (place / "job.json").write_text("newer")
    collector_of(scheduler).recover()
    assert with_files(scheduler) == [job]
    assert (place / "job.json").read_text() == "newer"


def test_a_collection_begins_with_what_an_earlier_one_left(scheduler: Scheduler, collector: Collector) -> None:
    """Whatever kept the start from seeing to it."""
    job = ended(scheduler)
    write_files(scheduler, JobId(77))
    Trash(scheduler.home / "jobs").take([job, JobId(77)])
    assert collect(collector).rows.jobs == 0
    assert with_files(scheduler) == with_rows(scheduler) == [job]
    assert not (scheduler.home / "jobs" / NAME).exists()


def test_what_has_rows_is_not_deleted_though_it_cannot_be_put_back(
    scheduler: Scheduler, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ended(scheduler)
    Trash(scheduler.home / "jobs").take([job])

    def refused(_here: str, _place: str) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(trash, "_put_back", refused)
        collect(collector)
    assert (scheduler.home / "jobs" / NAME / str(job) / "stdout.log").exists()
    collect(collector)
    assert with_files(scheduler) == [job]


def test_links_are_not_followed_and_nothing_outside_is_touched(
    scheduler: Scheduler, collector: Collector, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("stays")
    linked, within = scheduler.submit(), scheduler.submit()
    scheduler.drain()
    (scheduler.home / "jobs").mkdir(exist_ok=True)
    (scheduler.home / "jobs" / str(linked)).symlink_to(outside)
    (scheduler.home / "jobs" / str(within)).mkdir()
    (scheduler.home / "jobs" / str(within) / "link").symlink_to(outside)
    assert collect(collector, ALL).rows.jobs == 2
    assert (outside / "precious").read_text() == "stays"
    assert list((scheduler.home / "jobs").iterdir()) == []


def test_a_link_where_they_are_kept_for_a_moment_is_refused(
    scheduler: Scheduler, collector: Collector, tmp_path: Path
) -> None:
    job = ended(scheduler)
    outside = tmp_path / "outside"
    (outside / "7").mkdir(parents=True)
    (scheduler.home / "jobs" / NAME).symlink_to(outside)
    collector.recover()
    with pytest.raises(HomeError, match="it is not a directory; remove it"):
        collect(collector, ALL)
    assert (outside / "7").is_dir()
    assert with_files(scheduler) == [job]


def test_what_is_left_of_removed_files_is_named_and_tried_again(
    scheduler: Scheduler, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ended(scheduler)

    def refused(_path: str) -> None:
        raise OSError(16, "Device or resource busy", "jobs/.removed/1/runs")

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", refused)
        found = collect(collector, ALL)
    assert (found.jobs, found.left) == ([job], ["jobs/.removed/1/runs: Device or resource busy"])
    assert with_rows(scheduler) == []
    assert collect(collector, ALL).left == []
    assert not (scheduler.home / "jobs" / NAME).exists()


def test_a_job_whose_files_are_still_being_written_waits_for_the_next_time(scheduler: Scheduler) -> None:
    job = ended(scheduler)
    collector = collector_of(scheduler)
    collector._settle = lambda: 0
    assert collect(collector, ALL).rows.jobs == 0
    assert with_rows(scheduler) == with_files(scheduler) == [job]


def test_one_at_a_time(scheduler: Scheduler) -> None:
    ended(scheduler)
    refused: list[str] = []

    def again(act: Any) -> Any:
        if not refused:
            with pytest.raises(Conflict) as caught:
                collect(only, ALL)
            refused.append(caught.value.message)
            assert only.under_way is not None
            assert collect(only, ALL, is_dry=True).rows.jobs == 1
        return scheduler.do(act)

    only = collector_of(scheduler, again)
    assert collect(only, ALL).rows.jobs == 1
    assert refused == ["a collection is under way already; `rota gc` again when it has ended"]
    assert only.under_way is None


def test_it_ends_between_two_parts_when_the_scheduler_stops(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "BATCH", 2)
    jobs = [ended(scheduler) for _ in range(5)]

    def stops(act: Any) -> Any:
        stopped.is_stopping = True
        return scheduler.do(act)

    stopped = collector_of(scheduler, stops)
    with pytest.raises(Unavailable, match="the scheduler is stopping"):
        collect(stopped, ALL)
    assert with_rows(scheduler) == with_files(scheduler) == jobs[:3]


def test_other_work_passes_between_two_parts(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "BATCH", 2)
    for _ in range(6):
        ended(scheduler)
    started: list[JobId] = []

    def between(act: Any) -> Any:
        result = scheduler.do(act)
        if len(started) < 3:
            started.append(scheduler.submit())
            scheduler.end(started[-1])
        return result

    scheduler.clock.advance(seconds=1)
    assert collect(collector_of(scheduler, between), ALL).rows.jobs == 6
    assert with_rows(scheduler) == started == [7, 8, 9]


def test_a_turn_removes_few_jobs_however_long_the_chains_are(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "BATCH", 4)
    for _ in range(3):
        job = ended(scheduler, code=1)
        for _ in range(2):
            retried = scheduler.do(lambda work, job=job: retry(work, show_job(job), actor="tester"))
            scheduler.end(retried.job, 1)
    turns: list[int] = []

    def counted(act: Any) -> Any:
        result = scheduler.do(act)
        turns.extend([result.rows.jobs] if isinstance(result, Removed) else [])
        return result

    assert collect(collector_of(scheduler, counted), ALL).rows.jobs == 9
    assert turns == [3, 3, 3]


def test_an_answer_is_kept_for_an_hour_so_that_asking_again_stores_nothing_twice(
    scheduler: Scheduler, collector: Collector
) -> None:
    def ask() -> object:
        return scheduler.once("once", "a job", lambda work: store(work).jobs[0])

    def store(work: Work) -> Submitted:
        told = submit(work, [Submission(command=["true"])], Surroundings(cwd="/", variables={}), actor="me")
        assert isinstance(told, Submitted)
        return told

    assert ask() == 1
    assert collect(collector, ALL).rows.idempotency_keys == 0
    assert ask() == Told(status=201, body=b"1"), "it still waits, and is not stored again"
    scheduler.end(JobId(1))
    assert collect(collector, ALL).jobs == [1]
    assert ask() == Told(status=201, body=b"1"), "though the job has been collected"
    scheduler.clock.advance(hours=1, seconds=1)
    assert collect(collector, ALL).rows.idempotency_keys == 1
    assert ask() == 2


def test_a_note_and_the_slot_that_it_names_go_an_hour_after_the_end_of_that(
    scheduler: Scheduler, collector: Collector
) -> None:
    """Who asks again finds what runs, or what it came to; and in the end nothing is left of either."""
    slot = scheduler.reserve("true")
    told = note(Note(slot=slot))
    scheduler.do(lambda work: work.session.remember_answer("k", "d", told.status, told.body.decode(), work.now))
    scheduler.clock.advance(hours=2)
    rows = collect(collector, ALL).rows
    assert (rows.idempotency_keys, rows.slots) == (0, 0), "it still runs"
    scheduler.end_slot(slot)
    scheduler.clock.advance(minutes=59)
    rows = collect(collector, ALL).rows
    assert (rows.idempotency_keys, rows.slots) == (0, 0), "nobody has been told what it came to"
    scheduler.clock.advance(minutes=2)
    dry = collector.collect(ALL, cause="test", is_dry=True).rows
    rows = collect(collector, ALL).rows
    assert (rows.idempotency_keys, rows.slots) == (dry.idempotency_keys, dry.slots) == (1, 1)


def test_a_key_with_which_something_began_anew_meanwhile_is_not_old(scheduler: Scheduler) -> None:
    def remember(work: Work) -> None:
        work.session.remove_answers(["k"])
        work.session.remember_answer("k", "d", 201, "{}", work.now)

    scheduler.do(remember)
    scheduler.clock.advance(hours=2)
    until = scheduler.clock.now() - timedelta(hours=1)
    assert old_keys.find_old(scheduler.reader, until) == ["k"]
    scheduler.do(remember)
    assert scheduler.do(lambda work: old_keys.remove(work, ["k"], until)) == 0


def test_an_environment_that_went_and_came_back_is_told_to_the_executor_anew(
    scheduler: Scheduler, collector: Collector
) -> None:
    def run(name: str) -> int:
        job = scheduler.submit(env={"NAME": name}, inherit_env=False)
        scheduler.end(job)
        return scheduler.executor.starts[-1].surroundings

    numbers = [run("a"), run("b")]
    assert collect(collector, ALL).rows.surroundings == 1
    numbers += [run("c"), run("a")]
    assert len(set(numbers)) == 4
    told = {each.surroundings: each.variables for each in scheduler.executor.orders if isinstance(each, Environment)}
    assert [told[number] for number in numbers] == [{"NAME": name} for name in "abca"]


def test_what_an_active_job_needs_keeps_its_makers(scheduler: Scheduler, collector: Collector, raw: Raw) -> None:
    """LESSONS Store: gc removed a producer that an active job still needed."""
    scheduler.probe.world[File("/plan.md")] = True
    maker = ended(scheduler, produces=["file:/plan.md"])
    patched = ended(scheduler)
    other = ended(scheduler)
    waiting = scheduler.submit(needs=[f"command_patch:job-{patched}", "file:/plan.md"], delay="30d")
    scheduler.clock.advance(days=8)
    found = collect(collector)
    assert found.rows.jobs == 1
    assert scheduler.reader.job(other) is None
    assert scheduler.status(maker) is Status.COMPLETED
    scheduler.cancel(waiting)
    assert collect(collector).rows.jobs == 0, "it has ended, and is kept: what it names is"
    scheduler.clock.advance(days=8)
    assert collect(collector).rows.jobs == 3
    assert raw("SELECT count(*) FROM need") == raw("SELECT count(*) FROM product") == [(0,)]
    assert raw("SELECT count(*) FROM artifact") == [(1,)], "the last number stays"


def test_of_the_makers_of_one_thing_an_ended_job_keeps_the_last(scheduler: Scheduler, collector: Collector) -> None:
    """Otherwise every merge into a branch would be kept as long as anybody merges."""
    scheduler.probe.world[Head("/repo/.git", "main")] = "1" * 40
    makers = [ended(scheduler, produces=["target_branch:main"]) for _ in range(3)]
    scheduler.clock.advance(days=8)
    ended(scheduler, needs=["target_branch:main"])
    assert collect(collector).rows.jobs == 2
    assert scheduler.reader.has_jobs(makers) == {makers[-1]}


def test_a_rewind_finds_its_files_though_a_collection_has_just_taken_them(
    scheduler: Scheduler, collector: Collector
) -> None:
    """Taken, then rewound, then looked at again by the collection, which lets it be."""
    job = ended(scheduler)
    run = scheduler.run_of(job)
    directory = scheduler.home / "jobs" / str(job)
    trash = Trash(scheduler.home / "jobs")
    trash.take([job])
    scheduler.rewind(job)
    trash.put_back([job])
    assert (directory / "runs" / str(run) / "stdout.log").read_bytes() == b"x" * 100
    assert trash.holds() == []


def test_a_group_goes_when_its_last_member_has_gone(scheduler: Scheduler, collector: Collector) -> None:
    """Members of one that is not over stay; those that go are counted as they ended, and no number comes again."""
    group, (first, second) = scheduler.submit_group({}, {}, mode="sequential", on_failure="continue")
    scheduler.end(first, 1)
    write_files(scheduler, first)
    scheduler.clock.advance(days=8)
    collect(collector)
    assert with_rows(scheduler) == [first, second]
    scheduler.end(second)
    write_files(scheduler, second)
    scheduler.clock.advance(days=8)
    assert collect(collector).rows.groups == 1
    assert with_rows(scheduler) == []
    assert scheduler.reader.groups([group]) == []


def test_members_that_are_gone_are_counted_as_they_ended(scheduler: Scheduler, collector: Collector, raw: Raw) -> None:
    group, jobs = scheduler.submit_group({}, {}, {})
    for job, code in zip(jobs, (1, 0, 0), strict=True):
        if scheduler.status(job) is Status.DISPATCHED:
            scheduler.end(job, code)
    write_files(scheduler, *jobs)
    kept = scheduler.submit(after=[f"{show_job(jobs[2])}:finished"], delay="30d")
    before = scheduler.group(group)
    assert before.status == "PARTIAL"
    scheduler.clock.advance(days=8)
    assert collect(collector).rows.groups == 0
    assert with_rows(scheduler) == [jobs[2], kept]
    after = scheduler.group(group)
    assert (after.status, after.counts, after.total, after.jobs) == ("PARTIAL", before.counts, 3, [show_job(jobs[2])])
    scheduler.cancel(kept)
    write_files(scheduler, kept)
    scheduler.clock.advance(days=8)
    assert collect(collector, is_dry=True).rows.groups == 1
    assert collect(collector).rows.groups == 1
    assert raw("SELECT id FROM job_group") == []
    assert scheduler.submit_group({})[0] == group + 1


def test_fires_go_with_age_but_for_the_last_and_a_schedules_surroundings_stay(scheduler: Scheduler, raw: Raw) -> None:
    works = Clockwork(scheduler)
    works.add("0 0 * * *", job={"env": {"WHO": "me"}, "inherit_env": False})
    works.add("0 0 * * *", name="gone", job={"env": {"WHO": "them"}, "inherit_env": False})
    ended(scheduler)  # with another environment, so that theirs is not the last, which stays in any case
    works.go("2026-01-05T12:00")
    works.do(disable)
    works.do(remove, "gone")
    scheduler.drain()
    works.clock.moment += timedelta(days=30)
    collector = collector_of(scheduler)
    assert collect(collector, is_dry=True).rows.fires == 7
    assert collect(collector).rows.fires == 7
    assert works.said() == ["fired 00:00"]
    assert raw("SELECT count(*) FROM fire") == [(1,)]
    assert raw("SELECT count(*) FROM job") == [(0,)]
    works.do(enable)
    works.go("2026-02-05T00:00")
    job = scheduler.reader.jobs([each.job for each in works.fires() if each.job is not None][-1:])[0]
    assert scheduler.reader.variables(job.spec.surroundings) == {"WHO": "me"}
    assert works.add("0 0 * * *", name="new").id == 3
