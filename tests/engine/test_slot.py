"""Direct executions: running jobs, then direct requests in order of arrival, then the queue (DEC-004)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from engine.test_gc import collector_of
from harness import Raw, Scheduler
from rota.command.down import end_running
from rota.command.slot import lapse, pass_on
from rota.core.slot import owner_of
from rota.core.status import Status
from rota.errors import Conflict, InvalidInput, NotFound
from rota.executor.port import Account, Accounts, Exited, FailedToStart, Lost, Message, Refused, Signal, Started
from rota.ids import RunId, SlotId
from rota.wire.job import WaitForm

NEXT = "direct execution has the next slot"


def pause(scheduler: Scheduler, raw: Raw, scope: str = "global") -> None:
    raw(f"INSERT INTO pause (scope, paused_by, paused_at) VALUES ('{scope}', 'ann', 0)")
    scheduler.turn()


def test_dec_004_it_goes_after_what_runs_and_before_the_queue(scheduler: Scheduler) -> None:
    running, queued = scheduler.submit("a"), scheduler.submit("b")
    first, second = scheduler.reserve("x"), scheduler.reserve("y")
    later = scheduler.submit("c")
    assert scheduler.started() == [running]
    assert scheduler.detail(queued) == NEXT
    assert scheduler.show(queued).status == "QUEUED"
    assert scheduler.slot(first).wait == WaitForm(
        kind="capacity", detail="waiting on pool global (1/1)", on=["pool:global"]
    )
    assert scheduler.slot(second).wait == WaitForm(kind="slot", detail=NEXT, on=["slot"])
    scheduler.end(running)
    scheduler.end_slot(first)
    scheduler.end_slot(second)
    scheduler.end(queued)
    assert scheduler.started() == [running, owner_of(first), owner_of(second), queued, later]
    assert scheduler.executor.stops == []


def test_it_creates_no_job_and_no_run(scheduler: Scheduler, raw: Raw) -> None:
    slot = scheduler.reserve("echo", "hello", name="a greeting")
    scheduler.say(Started(run=scheduler.run_of(owner_of(slot)), pid=77, start_time=1))
    seen = scheduler.slot(slot)
    assert (seen.status, seen.ready, seen.pid, seen.name) == ("RUNNING", True, 77, "a greeting")
    assert seen.log_paths["stdout"].endswith(f"/slots/{slot}/stdout.log")
    scheduler.end_slot(slot)
    assert (raw("SELECT * FROM job"), raw("SELECT * FROM run")) == ([], [])
    seen = scheduler.slot(slot)
    assert (seen.status, seen.ready, seen.exit_code, seen.worker) == ("COMPLETED", False, 0, "local/1")
    assert [event.kind for event in scheduler.events] == ["slot.reserved", "slot.started", "slot.running", "slot.ended"]
    assert {event.slot for event in scheduler.events} == {slot}


def test_the_child_is_told_which_slot_it_is_and_no_number_is_given_twice(scheduler: Scheduler) -> None:
    slot = scheduler.reserve("true")
    (start,) = scheduler.executor.starts
    assert start.overlay["ROTA_SLOT"] == "slot-1"
    assert "ROTA_JOB" not in start.overlay
    assert start.directory == str(scheduler.home / "slots/1")
    scheduler.end_slot(slot)
    job = scheduler.submit()
    assert scheduler.run_of(job) > start.run


def test_it_holds_back_only_jobs_that_share_a_pool_with_it(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "resource__gpu": 1, "resource__net": 1})
    busy = scheduler.submit(pools={"resource/gpu": 1})
    slot = scheduler.reserve("x", pools={"resource/gpu": 1, "resource/net": 1})
    other, sharing = scheduler.submit(), scheduler.submit(pools={"resource/net": 1})
    assert scheduler.started() == [busy, other]
    assert scheduler.detail(sharing) == NEXT
    scheduler.end(busy)
    assert scheduler.started()[-1] == owner_of(slot)
    assert scheduler.detail(sharing) == "waiting on pool resource/net (1/1)"


def test_room_beyond_what_it_reserves_is_for_the_queue(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 3, "resource__gpu": 1})
    busy = scheduler.submit(pools={"resource/gpu": 1})
    scheduler.reserve("x", pools={"resource/gpu": 1})
    jobs = [scheduler.submit() for _ in range(2)]
    assert scheduler.started() == [busy, jobs[0]]
    assert scheduler.detail(jobs[1]) == NEXT


def test_running_it_counts_as_used_however_long(scheduler: Scheduler) -> None:
    slot, job = scheduler.reserve("x"), scheduler.submit()
    scheduler.clock.advance(days=3)
    scheduler.turn()
    assert scheduler.detail(job) == "waiting on pool global (1/1)"
    assert "used by slot-1" in scheduler.why(job)["text"]
    scheduler.end_slot(slot)
    assert scheduler.started()[-1] == job


def test_locks_apply_and_it_stands_first_in_their_queues(wide: Scheduler) -> None:
    holder = wide.submit(locks=["repo"])
    waiting = wide.submit(locks=["repo"])
    slot = wide.reserve("x", locks=["repo"])
    assert wide.slot(slot).wait == WaitForm(kind="locks", detail="waiting on locks", on=["lock:repo"])
    wide.end(holder)
    assert wide.started()[-1] == owner_of(slot)
    assert wide.status(waiting) is Status.WAITING_ON_LOCKS
    assert "repo (held by slot-1)" in wide.why(waiting)["text"]
    wide.end_slot(slot)
    assert wide.started()[-1] == waiting


def test_a_job_that_was_ready_for_a_lock_gives_way(scheduler: Scheduler) -> None:
    running, ready = scheduler.submit(), scheduler.submit(locks=["repo"])
    slot = scheduler.reserve("x", locks=["repo"])
    assert scheduler.status(ready) is Status.WAITING_ON_LOCKS
    scheduler.end(running)
    scheduler.end_slot(slot)
    assert scheduler.started() == [running, owner_of(slot), ready]


def test_shared_locks_are_shared_with_it(wide: Scheduler) -> None:
    holder = wide.submit(locks=["repo:shared"])
    slot = wide.reserve("x", locks=["repo:shared"])
    assert wide.started() == [holder, owner_of(slot)]


@pytest.mark.parametrize("scope", ["global", "flow/f"])
def test_a_pause_holds_it_and_then_it_reserves_nothing(scheduler: Scheduler, raw: Raw, scope: str) -> None:
    pause(scheduler, raw, scope)
    slot = scheduler.reserve("x", flow="f", locks=["repo"])
    assert scheduler.slot(slot).wait == WaitForm(kind="paused", detail="paused by ann", on=["pause"])
    job = scheduler.submit(locks=["repo"])
    assert scheduler.detail(job) == ("paused by ann" if scope == "global" else None)
    assert scheduler.started() == ([] if scope == "global" else [job])


def test_a_pause_in_the_middle_lets_others_have_its_locks(wide: Scheduler, raw: Raw) -> None:
    holder = wide.submit(locks=["repo"])
    slot = wide.reserve("x", locks=["repo"], flow="f")
    behind = wide.submit(locks=["repo"])
    pause(wide, raw, "flow/f")
    wide.end(holder)
    assert wide.started()[-1] == behind
    raw("DELETE FROM pause")
    wide.end(behind)
    assert wide.started()[-1] == owner_of(slot)


def test_a_limit_of_nought_holds_it_and_it_does_not_speak_for_the_queue(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 0})
    slot, job = scheduler.reserve("x"), scheduler.submit()
    assert scheduler.slot(slot).wait is not None
    assert scheduler.detail(job) == "waiting on pool global (0/0)"
    scheduler.set_pools(**{"global": 1})
    assert scheduler.started() == [owner_of(slot)]


def test_batch_does_not_hold_it(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    slots = [scheduler.reserve("x") for _ in range(2)]
    assert scheduler.started() == [owner_of(slot) for slot in slots]


def test_withdrawn_while_it_waits_it_is_over_at_once_and_the_queue_goes_on(scheduler: Scheduler) -> None:
    running, queued = scheduler.submit(), scheduler.submit(locks=["repo"])
    slot = scheduler.reserve("x", locks=["repo"])
    scheduler.withdraw(slot)
    seen = scheduler.slot(slot)
    assert (seen.status, seen.exit_code, seen.reason) == ("CANCELLED", 143, "its client is gone")
    scheduler.end(running)
    assert scheduler.started() == [running, queued]
    scheduler.withdraw(slot, "again")
    assert scheduler.slot(slot).reason == "its client is gone"


def test_withdrawn_while_it_runs_it_keeps_its_place_until_it_is_gone(scheduler: Scheduler) -> None:
    slot, job = scheduler.reserve("x"), scheduler.submit()
    scheduler.withdraw(slot)
    assert scheduler.executor.stops == [scheduler.run_of(owner_of(slot))]
    assert scheduler.slot(slot).status == "RUNNING"
    scheduler.end_slot(slot, None, signal=15, ended_by="stop")
    seen = scheduler.slot(slot)
    assert (seen.status, seen.exit_code, seen.reason) == ("CANCELLED", 143, "its client is gone")
    assert scheduler.started()[-1] == job


@pytest.mark.parametrize(
    ("code", "fields", "says"),
    [
        (3, {}, ("FAILED", 3, "exit code 3")),
        (None, {"signal": 9}, ("FAILED", 137, "killed by SIGKILL")),
        (None, {"signal": 15, "ended_by": "timeout"}, ("FAILED", 124, "timed out after 5s")),
    ],
)
def test_it_ends_as_a_run_ends(
    scheduler: Scheduler, code: int | None, fields: dict[str, int | str], says: tuple[str, int, str]
) -> None:
    slot = scheduler.reserve("x", timeout="5s")
    scheduler.end_slot(slot, code, **fields)
    seen = scheduler.slot(slot)
    assert (seen.status, seen.exit_code, seen.reason) == says
    assert scheduler.executor.acknowledged == [scheduler.run_of(owner_of(slot))]


def test_a_program_that_is_not_there_is_127(scheduler: Scheduler) -> None:
    slot, job = scheduler.reserve("nosuch"), scheduler.submit()
    scheduler.say(FailedToStart(run=scheduler.run_of(owner_of(slot)), error="program not found: nosuch"))
    seen = scheduler.slot(slot)
    assert (seen.status, seen.exit_code, seen.reason) == ("FAILED", 127, "program not found: nosuch")
    assert scheduler.started()[-1] == job


def test_the_machine_s_trouble_is_not_its_own(scheduler: Scheduler) -> None:
    slot = scheduler.reserve("x", locks=["repo"])
    scheduler.say(FailedToStart(run=scheduler.run_of(owner_of(slot)), error="no memory", is_machine=True))
    assert scheduler.slot(slot).status == "WAITING"
    scheduler.clock.advance(seconds=2)
    scheduler.turn()
    assert scheduler.started() == [owner_of(slot)] * 2


@pytest.mark.parametrize("mode", ["repo", "repo:shared"])
def test_one_that_waits_again_has_its_place_for_its_locks_before_anything_starts(
    make_scheduler: Callable[..., Scheduler], mode: str
) -> None:
    scheduler = make_scheduler(**{"global": 3})
    slot, job = scheduler.reserve("x", locks=["repo"]), scheduler.submit(locks=[mode])
    scheduler.turn()
    scheduler.say(FailedToStart(run=scheduler.run_of(owner_of(slot)), error="no memory", is_machine=True))
    scheduler.clock.advance(seconds=2)
    scheduler.turn()
    assert scheduler.started() == [owner_of(slot)] * 2
    scheduler.say(Lost(reason="killed"))
    scheduler.turn()
    scheduler.say(Accounts(runs=[]))
    assert scheduler.started() == [owner_of(slot)] * 3
    scheduler.end_slot(slot)
    assert scheduler.started()[-1] == job


def test_a_shutdown_that_ends_what_runs_ends_the_turn_of_a_program_too(scheduler: Scheduler) -> None:
    mine, waiting = scheduler.reserve(), scheduler.reserve("y")
    scheduler.do(end_running)
    assert (scheduler.slot(mine).status, scheduler.slot(mine).reason) == ("FAILED", "stopped by shutdown")
    assert scheduler.slot(waiting).status == "RUNNING"


def test_silence_ends_what_waits_and_what_a_program_holds_but_no_command_that_runs(scheduler: Scheduler) -> None:
    running, held, waiting = scheduler.reserve("x"), scheduler.reserve(), scheduler.reserve("y")
    scheduler.do(lambda work: lapse(work, running, reason="silent"))
    scheduler.do(lambda work: lapse(work, waiting, reason="silent"))
    assert [scheduler.slot(slot).status for slot in (running, held, waiting)] == ["RUNNING", "WAITING", "CANCELLED"]
    assert scheduler.executor.stops == []
    scheduler.end_slot(running)
    assert scheduler.slot(held).status == "RUNNING"
    scheduler.do(lambda work: lapse(work, held, reason="silent"))
    assert (scheduler.slot(held).status, scheduler.slot(held).reason) == ("CANCELLED", "silent")


def test_a_refused_start_ends_it(scheduler: Scheduler) -> None:
    slot = scheduler.reserve("x")
    scheduler.say(Refused(run=scheduler.run_of(owner_of(slot)), error="known already"))
    assert scheduler.slot(slot).reason == "the supervisor refused to start it: known already"


def test_a_program_that_works_by_itself_has_its_turn_renews_nothing_here_and_releases(scheduler: Scheduler) -> None:
    running = scheduler.submit()
    slot, job = scheduler.reserve(locks=["repo"]), scheduler.submit()
    assert (scheduler.slot(slot).ready, scheduler.slot(slot).log_paths) == (False, {})
    scheduler.end(running)
    assert (scheduler.slot(slot).ready, scheduler.slot(slot).status) == (True, "RUNNING")
    assert scheduler.started() == [running]
    assert scheduler.detail(job) == "waiting on pool global (1/1)"
    scheduler.release(slot)
    assert scheduler.slot(slot).status == "COMPLETED"
    assert scheduler.started()[-1] == job
    scheduler.release(slot)


def test_a_program_that_is_gone_while_it_has_its_turn_frees_it_at_once(scheduler: Scheduler) -> None:
    slot, job = scheduler.reserve(), scheduler.submit()
    scheduler.withdraw(slot, "its lease is over")
    assert scheduler.slot(slot).reason == "its lease is over"
    assert scheduler.started() == [job]


def test_what_runs_a_command_is_not_released_by_hand(scheduler: Scheduler) -> None:
    slot = scheduler.reserve("x")
    with pytest.raises(Conflict, match="slot-1 runs a command"):
        scheduler.release(slot)


def test_signals_are_passed_on_to_what_runs(scheduler: Scheduler) -> None:
    busy, waiting = scheduler.reserve("x"), scheduler.reserve("y")
    scheduler.say(Started(run=scheduler.run_of(owner_of(busy)), pid=5, start_time=1))
    scheduler.do(lambda work: pass_on(work, busy, 10))
    assert [order for order in scheduler.executor.orders if isinstance(order, Signal)] == [
        Signal(run=scheduler.run_of(owner_of(busy)), number=10)
    ]
    with pytest.raises(Conflict, match="slot-2 runs no command now"):
        scheduler.do(lambda work: pass_on(work, waiting, 10))
    with pytest.raises(InvalidInput, match="signal 9 is not passed on"):
        scheduler.do(lambda work: pass_on(work, busy, 9))


def test_bad_input_stores_nothing(scheduler: Scheduler, raw: Raw) -> None:
    for fields in ({"pools": {"nonsense": 1}}, {"timeout": "soon"}, {"flow": "a b"}, {"cwd": "here"}):
        with pytest.raises(InvalidInput):
            scheduler.reserve("x", **fields)
    with pytest.raises(InvalidInput, match="timeouts are for a command"):
        scheduler.reserve(timeout="5s")
    with pytest.raises(NotFound, match="no such slot: slot-9"):
        scheduler.withdraw(SlotId(9))
    assert raw("SELECT * FROM slot") == []


def test_a_draw_above_the_size_holds_up_nobody(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    scheduler.reserve("x", pools={"global": 3})
    job = scheduler.submit()
    assert scheduler.started() == [job]


# Recovery.


def test_what_waits_waits_on_after_a_crash_at_its_place(scheduler: Scheduler) -> None:
    running = scheduler.submit()
    slots = [scheduler.reserve("x", locks=["repo"]), scheduler.reserve("y")]
    queued = scheduler.submit()
    run = scheduler.run_of(running)
    scheduler.say(Started(run=run, pid=5, start_time=1))
    scheduler.crash([Account(run=run, pid=5, start_time=1)])
    assert [scheduler.slot(slot).status for slot in slots] == ["WAITING"] * 2
    scheduler.clock.advance(seconds=1)
    scheduler.say(*_end(run))
    scheduler.end_slot(slots[0])
    scheduler.end_slot(slots[1])
    assert scheduler.started() == [owner_of(slots[0]), owner_of(slots[1]), queued]


def _end(run: RunId) -> list[Message]:
    return [Exited(run=run, at=0.0, code=0)]


def test_what_runs_is_adopted_and_its_end_is_booked(scheduler: Scheduler) -> None:
    slot, job = scheduler.reserve("x", locks=["repo"]), scheduler.submit()
    run = scheduler.run_of(owner_of(slot))
    scheduler.crash([Account(run=run, pid=5, start_time=1)])
    assert (scheduler.slot(slot).status, scheduler.slot(slot).pid) == ("RUNNING", 5)
    assert scheduler.executor.stops == []
    assert scheduler.started() == []
    scheduler.say(*_end(run))
    assert scheduler.slot(slot).status == "COMPLETED"
    assert scheduler.started() == [job]


def test_what_was_to_be_stopped_is_stopped_again(scheduler: Scheduler) -> None:
    slot = scheduler.reserve("x")
    run = scheduler.run_of(owner_of(slot))
    scheduler.say(Started(run=run, pid=5, start_time=1))
    scheduler.withdraw(slot)
    scheduler.crash([Account(run=run, pid=5, start_time=1)])
    assert scheduler.executor.stops == [run]


def test_a_claim_that_the_executor_never_heard_of_is_made_again(scheduler: Scheduler) -> None:
    slot = scheduler.reserve("x", locks=["repo"])
    first = scheduler.run_of(owner_of(slot))
    scheduler.crash()
    assert scheduler.started() == [owner_of(slot)]
    assert scheduler.run_of(owner_of(slot)) > first


def test_one_that_was_given_up_and_never_started_is_cancelled(scheduler: Scheduler) -> None:
    slot = scheduler.reserve("x")
    scheduler.withdraw(slot)
    scheduler.crash()
    seen = scheduler.slot(slot)
    assert (seen.status, seen.exit_code, seen.reason) == ("CANCELLED", 143, "its client is gone")
    assert scheduler.engine.recovery == {}


def test_what_nobody_can_account_for_is_over_and_counted(scheduler: Scheduler) -> None:
    slot, job = scheduler.reserve("x", locks=["repo"]), scheduler.submit(locks=["repo"])
    scheduler.say(Started(run=scheduler.run_of(owner_of(slot)), pid=5, start_time=1))
    scheduler.crash()
    seen = scheduler.slot(slot)
    assert (seen.status, seen.exit_code, seen.reason) == ("FAILED", 1, "Scheduler crash recovery")
    assert scheduler.engine.recovery is not None
    assert scheduler.engine.recovery["slots_expired"] == 1
    assert scheduler.started() == [job]


def test_a_record_that_cannot_be_used_ends_alone(scheduler: Scheduler, raw: Raw) -> None:
    running = scheduler.submit()
    slot, job = scheduler.reserve("x"), scheduler.submit()
    raw(f"UPDATE slot SET command = '[7' WHERE id = {slot}")
    scheduler.end(running)
    assert scheduler.slot(slot).reason == "scheduler data error: its record cannot be read"
    assert scheduler.started()[-1] == job


def test_gc_takes_old_ones_with_their_files_and_no_number_comes_again(scheduler: Scheduler, raw: Raw) -> None:
    old, running = scheduler.reserve("x", locks=["k"]), scheduler.reserve("y")
    scheduler.end_slot(old)
    for slot in (old, running, SlotId(99)):
        (scheduler.home / f"slots/{slot}").mkdir(parents=True)
    scheduler.clock.advance(days=8)
    collector = collector_of(scheduler)
    assert collector.collect(timedelta(days=7), cause="gc", is_dry=True).rows.slots == 1
    assert collector.collect(timedelta(days=7), cause="gc").rows.slots == 1
    assert [row[0] for row in raw("SELECT id FROM slot")] == [running]
    assert [path.name for path in (scheduler.home / "slots").iterdir()] == [str(running)]
    scheduler.end_slot(running)
    scheduler.clock.advance(days=8)
    collector_of(scheduler).collect(timedelta(days=7), cause="gc")
    assert scheduler.reserve("z") == running + 1
