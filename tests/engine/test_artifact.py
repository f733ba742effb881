"""Artifacts between jobs: what is there, who makes it, and when it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pytest

from harness import Scheduler
from rota.core.fact import UNREADABLE, Document, Fact, File, Head, Seen
from rota.core.status import Status
from rota.engine.outside import observe
from rota.engine.work import Request
from rota.errors import InvalidInput, NotFound
from rota.executor.port import Exited, FailedToStart
from rota.ids import JobId
from rota.wire.job import PinForm, WaitForm

PLAN = File("/plan.md")
REPOSITORY = "/repo/.git"
OID = "a" * 40


def _count(real: Callable[..., Any], written: list[str], name: str, *values: Any, **named: Any) -> Any:
    written.append(name)
    return real(name, *values, **named)


def test_what_is_there_is_passed_whatever_its_producer_did(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    scheduler.probe.world[PLAN] = True
    maker = scheduler.submit("false", produces=["file:/plan.md"])
    scheduler.end(maker, 1)
    job = scheduler.submit(needs=["file:/plan.md"])
    assert scheduler.status(job) is Status.DISPATCHED
    assert scheduler.show(job).needs == ["file:/plan.md"]
    assert scheduler.show(maker).produces == ["file:/plan.md"]


def test_it_waits_for_its_producer_and_starts_when_the_artifact_is_there(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    maker = scheduler.submit(produces=["file:/plan.md"])
    job = scheduler.submit(needs=["file:/plan.md"])
    assert (scheduler.status(job), scheduler.detail(job)) == (Status.WAITING_ON_DEPS, "waiting on file:/plan.md")
    assert scheduler.show(job).wait == WaitForm(
        kind="dependencies",
        detail="waiting on file:/plan.md",
        on=["artifact:file:/plan.md"],
    )
    scheduler.probe.world[PLAN] = True
    scheduler.look_outside()
    assert scheduler.status(job) is Status.WAITING_ON_DEPS, "it is still being written"
    scheduler.end(maker)
    assert scheduler.status(job) is Status.DISPATCHED
    assert scheduler.show(job).waited_on == ["dependencies"]


@pytest.mark.parametrize(("code", "reason"), [(0, "missing file:/plan.md"), (1, "dependency failed for file:/plan.md")])
def test_a_producer_that_ends_without_producing_blocks(scheduler: Scheduler, code: int, reason: str) -> None:
    maker = scheduler.submit(produces=["file:/plan.md"])
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.end(maker, code)
    assert (scheduler.status(job), scheduler.job(job).reason) == (Status.BLOCKED_BY_DEPENDENCY, reason)


def test_without_a_producer_it_is_blocked_or_waits_as_it_says(scheduler: Scheduler) -> None:
    blocked = scheduler.submit(needs=["file:/plan.md"])
    waiting = scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    assert scheduler.job(blocked).reason == "missing file:/plan.md"
    assert scheduler.detail(waiting) == "awaiting producer for file:/plan.md"
    scheduler.probe.world[PLAN] = True
    scheduler.look_outside()
    assert scheduler.status(waiting) is Status.DISPATCHED


def test_a_chain_that_still_retries_is_waited_for(scheduler: Scheduler) -> None:
    maker = scheduler.submit("false", produces=["file:/plan.md"], retries=1)
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.end(maker, 1)
    assert scheduler.detail(job) == "waiting on file:/plan.md"
    scheduler.clock.advance(seconds=20)
    scheduler.turn()
    scheduler.probe.world[PLAN] = True
    scheduler.end(JobId(3))
    assert scheduler.status(job) is Status.DISPATCHED


def test_of_several_producers_any_that_is_active_is_waited_for(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    first, second = (scheduler.submit(produces=["file:/plan.md"]) for _ in range(2))
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.end(first)
    assert scheduler.detail(job) == "waiting on file:/plan.md"
    scheduler.end(second, 1)
    assert scheduler.job(job).reason == "missing file:/plan.md", "one succeeded"


def test_what_was_there_when_it_was_chosen_is_looked_at_once_more(scheduler: Scheduler) -> None:
    """It stood ready for an hour while another ran; the branch moved, and no timer had told of it yet."""
    scheduler.probe.world[Head(REPOSITORY, "main")] = OID
    other = scheduler.submit()
    job = scheduler.submit(pin="main")
    assert scheduler.status(job) is Status.QUEUED
    scheduler.probe.world[Head(REPOSITORY, "main")] = "b" * 40
    scheduler.end(other)
    assert scheduler.started() == [other]
    assert (scheduler.status(job), scheduler.detail(job)) == (Status.WAITING_ON_DEPS, "pinned head mismatch on main")
    assert scheduler.show(job).pinned_head == PinForm(branch="main", oid=OID)
    scheduler.probe.world[Head(REPOSITORY, "main")] = OID
    scheduler.look_outside()
    assert scheduler.status(job) is Status.DISPATCHED
    assert scheduler.show(job).waited_on == ["pinned_head"]


def test_a_deleted_branch_waits_and_stops_nobody_else(scheduler: Scheduler) -> None:
    head = Head(REPOSITORY, "main")
    scheduler.probe.world[head] = OID
    other = scheduler.submit()
    job = scheduler.submit(pin=f"main@{OID[:8]}")
    behind = scheduler.submit()
    del scheduler.probe.world[head]
    scheduler.end(other)
    assert scheduler.detail(job) == "pinned head mismatch on main"
    assert scheduler.status(behind) is Status.DISPATCHED


def test_what_one_of_them_learned_of_holds_for_the_next_as_well(scheduler: Scheduler) -> None:
    """Both stood ready; the first is looked at once more, and the second has not been told."""
    head = Head(REPOSITORY, "topic")
    scheduler.probe.world[head] = OID
    other = scheduler.submit()
    pinned = scheduler.submit(pin="topic")
    needing = scheduler.submit(needs=["plan_branch:x (topic)"])
    del scheduler.probe.world[head]
    scheduler.end(other)
    assert scheduler.started() == [other]
    assert scheduler.detail(pinned) == "pinned head mismatch on topic"
    assert scheduler.job(needing).reason == "missing plan_branch:x (topic)"


def test_a_producer_that_starts_takes_back_what_is_there(scheduler: Scheduler) -> None:
    """A file is not there while somebody writes it anew, though its reader stood ready."""
    scheduler.probe.world[PLAN] = True
    other = scheduler.submit()
    job = scheduler.submit(needs=["file:/plan.md"])
    maker = scheduler.submit(produces=["file:/plan.md"], priority=1)
    scheduler.end(other)
    assert scheduler.started() == [other, maker]
    assert scheduler.detail(job) == "waiting on file:/plan.md"
    scheduler.end(maker)
    assert scheduler.started() == [other, maker, job]


def test_both_chosen_in_one_turn_the_reader_comes_after_the_writer(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    scheduler.probe.world[PLAN] = True
    others = [scheduler.submit() for _ in range(2)]
    maker = scheduler.submit(produces=["file:/plan.md"])
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.set_pools(**{"global": 4})
    assert scheduler.started() == [*others, maker]
    assert scheduler.detail(job) == "waiting on file:/plan.md"


def test_an_answer_that_comes_when_nothing_can_start_is_asked_for_again(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job was chosen, and while it was looked for what it needs, the machine ran out of processes."""
    scheduler.probe.world[PLAN] = True
    other = scheduler.submit()
    job = scheduler.submit(needs=["file:/plan.md"])
    look = scheduler.probe.look

    def look_and_fail(facts: Collection[Fact]) -> dict[Fact, Seen]:
        monkeypatch.undo()
        failure = FailedToStart(run=scheduler.run_of(other), error="no processes left", is_machine=True)
        scheduler.executor.inbox.append(failure)
        return look(facts)

    monkeypatch.setattr(scheduler.probe, "look", look_and_fail)
    scheduler.set_pools(**{"global": 2})
    assert scheduler.started() == [other]
    scheduler.clock.advance(seconds=2)
    scheduler.turn()
    assert scheduler.started() == [other, other, job]


def test_a_failed_start_of_its_producer_leaves_it_waiting(scheduler: Scheduler) -> None:
    maker = scheduler.submit(produces=["file:/plan.md"])
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.say(FailedToStart(run=scheduler.run_of(maker), error="no such program"))
    assert scheduler.detail(job) == "waiting on file:/plan.md"


@pytest.mark.parametrize(
    ("artifact", "fact"),
    [
        ("plan_branch:foo (draft/foo)", Head(REPOSITORY, "draft/foo")),
        ("plan_commits:foo (draft/foo)", Head(REPOSITORY, "draft/foo")),
        ("plan_doc:foo (draft/foo)", Document(REPOSITORY, "draft/foo", "plans/foo.md")),
        ("target_branch:main", Head(REPOSITORY, "main")),
    ],
)
def test_the_types_that_git_knows(scheduler: Scheduler, artifact: str, fact: Fact) -> None:
    job = scheduler.submit(needs=[artifact], missing_producer="wait")
    assert scheduler.detail(job) == f"awaiting producer for {artifact}"
    scheduler.probe.world[fact] = True
    scheduler.look_outside()
    assert scheduler.status(job) is Status.DISPATCHED


def test_the_types_of_the_home(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 4})
    first = scheduler.submit()
    job = scheduler.submit(needs=["merge_sentinel:foo"], missing_producer="wait")
    patch = scheduler.submit(needs=[f"command_patch:job-{first}"])
    assert scheduler.detail(job) == "awaiting producer for merge_sentinel:foo"
    assert scheduler.detail(patch) == f"waiting on command_patch:job-{first}", "the job that it names makes it"
    scheduler.probe.world[File(str(scheduler.home / "tmp/merge-conflicts/foo.json"))] = True
    scheduler.look_outside()
    assert scheduler.status(job) is Status.DISPATCHED
    scheduler.end(first)
    assert scheduler.status(patch) is Status.DISPATCHED, "it COMPLETED"
    assert scheduler.show(first).produces == []


def test_the_patch_of_a_job_that_failed(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 4})
    first = scheduler.submit()
    patch = scheduler.submit(needs=[f"command_patch:job-{first}"])
    scheduler.probe.world[File(str(scheduler.home / f"jobs/{first}/command.patch"))] = True
    scheduler.end(first, 1)
    assert scheduler.status(patch) is Status.DISPATCHED, "it left its patch"


def test_after_a_crash_everything_is_looked_at_anew(scheduler: Scheduler) -> None:
    job = scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    scheduler.probe.world[PLAN] = True
    scheduler.crash()
    assert scheduler.status(job) is Status.DISPATCHED


def test_what_a_submit_saw_wakes_everybody_who_waits_for_it(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 4})
    first = scheduler.submit(needs=["file:/plan.md"], missing_producer="wait")
    pinned = scheduler.submit(pin=f"main@{OID}")
    branch = scheduler.submit(needs=["plan_branch:x (main)"], missing_producer="wait")
    scheduler.probe.world[PLAN] = True
    scheduler.probe.world[Head(REPOSITORY, "main")] = OID
    last = scheduler.submit(needs=["file:/plan.md", "target_branch:main"])
    assert sorted(scheduler.started()) == [first, pinned, branch, last]


def test_a_look_that_began_before_the_end_says_nothing_of_what_was_made(scheduler: Scheduler) -> None:
    """It took its time, and comes in after the producer has ended and the file is there."""
    maker = scheduler.submit(produces=["file:/plan.md"])
    job = scheduler.submit(needs=["file:/plan.md"])
    slow = scheduler.see_outside()
    scheduler.executor.inbox.append(Exited(run=scheduler.run_of(maker), at=0, code=0))
    scheduler.probe.world[PLAN] = True
    scheduler.engine.turn()
    scheduler.engine.turn([Request(lambda work: observe(work, slow), lambda _: None)])
    assert scheduler.status(job) is Status.WAITING_ON_DEPS
    scheduler.turn()
    assert scheduler.status(job) is Status.DISPATCHED


@pytest.mark.parametrize("fields", [{"needs": ["file:/plan.md"]}, {"needs": ["target_branch:main"]}, {"pin": "main"}])
def test_what_cannot_be_read_is_waited_for_and_never_given_up(scheduler: Scheduler, fields: dict[str, Any]) -> None:
    """A mount is away, git has no memory: nobody knows whether it is there."""
    facts = (PLAN, Head(REPOSITORY, "main"))
    scheduler.probe.world.update(dict.fromkeys(facts, OID))
    other = scheduler.submit(produces=["file:/plan.md", "target_branch:main"])
    job = scheduler.submit(**fields)
    scheduler.probe.world.update(dict.fromkeys(facts, UNREADABLE))
    scheduler.end(other)
    assert scheduler.status(job) is Status.WAITING_ON_DEPS
    scheduler.look_outside()
    assert scheduler.status(job) is Status.WAITING_ON_DEPS
    scheduler.probe.world.update(dict.fromkeys(facts, OID))
    scheduler.look_outside()
    assert scheduler.status(job) is Status.DISPATCHED


def test_a_stable_world_writes_nothing(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted at the door of the database: every statement that is not a look."""
    scheduler.probe.world[Head(REPOSITORY, "main")] = OID
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
        scheduler.look_outside()
        scheduler.turn()
    assert written == []
    assert not scheduler.questions


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"needs": ["plan:foo"]}, "unknown artifact type in 'plan:foo'; the types are plan_branch:<slug> (<branch>)"),
        ({"produces": ["plan_doc:"]}, "malformed artifact: 'plan_doc:'; it is written plan_doc:<slug> (<branch>)"),
        ({"pin": "main@xyz"}, "malformed pin: 'main@xyz'"),
        ({"pin": "gone"}, "no branch gone in /repo/.git"),
    ],
)
def test_bad_input_is_refused_by_name(scheduler: Scheduler, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=r".*") as refused:
        scheduler.submit(**fields)
    assert refused.value.message.startswith(said)
    assert scheduler.reader.list_jobs(list(Status), limit=5) == []


def test_a_folder_outside_a_repository_is_refused(scheduler: Scheduler) -> None:
    scheduler.probe.repository = None
    with pytest.raises(InvalidInput, match="/ is not in a git repository, and plan_doc:foo"):
        scheduler.submit(needs=["plan_doc:foo"])
    with pytest.raises(InvalidInput, match="/ is not in a git repository, and `pin` main"):
        scheduler.submit(pin="main")
    assert scheduler.submit(produces=["file:x"]) == 1, "a file needs none"


def test_nobody_else_produces_the_patch_of_a_job(scheduler: Scheduler) -> None:
    scheduler.submit()
    with pytest.raises(
        InvalidInput, match="command_patch:job-1 is the patch that job-1 leaves; no other job produces it"
    ):
        scheduler.submit(produces=["command_patch:job-1"])


def test_the_patch_of_an_unknown_job_is_refused(scheduler: Scheduler) -> None:
    with pytest.raises(NotFound, match="unknown job in `needs` command_patch:job-9"):
        scheduler.submit(needs=["command_patch:job-9"])


def test_a_ring_over_the_patch_of_a_retry_is_refused(scheduler: Scheduler) -> None:
    """The job that is named is the second of its chain, which waits as a whole."""
    scheduler.probe.world[File("/a")] = True
    first = scheduler.submit("false", needs=["file:/a"], retries=1, missing_producer="wait")
    scheduler.end(first, 1)
    scheduler.probe.world[File("/a")] = False
    scheduler.look_outside()
    with pytest.raises(InvalidInput, match="invalid `needs` cycle: job-3 -> job-1 -> job-3"):
        scheduler.submit(needs=["command_patch:job-2"], produces=["file:/a"])


def test_a_ring_over_artifacts_is_refused(scheduler: Scheduler) -> None:
    """LESSONS Waiting: a cycle blocked both sides for good."""
    scheduler.submit(needs=["file:/a"], produces=["file:/b"], missing_producer="wait")
    with pytest.raises(InvalidInput, match="invalid `needs` cycle: job-2 -> job-1 -> job-2"):
        scheduler.submit(needs=["file:/b"], produces=["file:/a"])
    with pytest.raises(InvalidInput, match="invalid `needs` cycle: job-2 -> job-1 -> job-2"):
        scheduler.submit(after=[JobId(1)], produces=["file:/a"])
    with pytest.raises(InvalidInput, match="invalid `needs` cycle: job-2 -> job-1 -> job-2"):
        scheduler.submit(needs=["command_patch:job-1"], produces=["file:/a"])
    assert scheduler.submit(produces=["file:/a"]) == 2, "nothing was stored, and no number spent"


def test_a_file_that_a_failed_attempt_left_is_there_while_nobody_writes_it(scheduler: Scheduler) -> None:
    """What is there is passed, whatever its producer did; who wants a success says `after`."""
    maker = scheduler.submit("false", produces=["file:/plan.md"], retries=1)
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.probe.world[PLAN] = True
    scheduler.end(maker, 1)
    assert scheduler.status(job) is Status.DISPATCHED
    assert scheduler.status(JobId(3)) is Status.QUEUED


def test_the_writer_is_claimed_in_the_turn_that_makes_the_reader_certain(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 2})
    scheduler.probe.world[PLAN] = True
    others = [scheduler.submit() for _ in range(2)]
    job = scheduler.submit(needs=["file:/plan.md"])
    scheduler.executor.inbox.append(Exited(run=scheduler.run_of(others[0]), at=0, code=0))
    scheduler.engine.turn()
    assert scheduler.questions, "it was chosen, and is looked at once more"
    scheduler.executor.inbox.append(Exited(run=scheduler.run_of(others[1]), at=0, code=0))
    maker = scheduler.submit(produces=["file:/plan.md"], priority=1)
    assert scheduler.started() == [*others, maker]
    assert scheduler.detail(job) == "waiting on file:/plan.md"


def test_nobody_is_blocked_by_what_was_seen_before_the_end_of_who_made_it(wide: Scheduler) -> None:
    """The file appears with its predecessor's last breath, and nobody has declared that it makes it."""
    first = wide.submit()
    second = wide.submit(after=[f"job-{first}"], needs=["file:/go"])
    wide.tick()
    wide.probe.world[File("/go")] = True
    wide.end(first)
    assert wide.status(second) is Status.DISPATCHED


def test_what_is_not_there_blocks_after_one_more_look(wide: Scheduler) -> None:
    first = wide.submit()
    second = wide.submit(after=[f"job-{first}"], needs=["file:/go"])
    wide.end(first)
    assert wide.status(second) is Status.BLOCKED_BY_DEPENDENCY
    assert wide.engine.known.doubted == {}


def test_nobody_is_blocked_by_an_old_look_when_somebody_is_cancelled(wide: Scheduler) -> None:
    first = wide.submit(delay="1h")
    second = wide.submit(after=[f"job-{first}:finished"], needs=["file:/go"])
    wide.tick()
    wide.probe.world[File("/go")] = True
    wide.cancel(first)
    assert wide.status(second) is Status.DISPATCHED
