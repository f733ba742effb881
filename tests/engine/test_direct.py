"""Direct executions and reservations: after running jobs, in order of arrival, before the queue (DEC-004)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from rota.control.commands import end_running
from rota.direct.commands import expire, forward_signal
from rota.errors import Conflict, InvalidInput, NotFound
from rota.executor.port import (
    ConnectionLoss,
    ExecutorMessage,
    ExitReport,
    RunInventory,
    RunReport,
    SignalOrder,
    StartConfirmation,
    StartFailure,
    StartRefusal,
)
from rota.ids import ReservationId, RunId
from rota.jobs.schemas import WaitReason
from rota.kernel.reservations import lock_owner
from rota.kernel.status import Status
from tests.harness import Scheduler, SqlRunner
from tests.retention.test_collector import collector_of

NEXT = "direct execution has the next slot"


def pause(scheduler: Scheduler, run_sql: SqlRunner, scope: str = "global") -> None:
    run_sql(f"INSERT INTO pause (scope, paused_by, paused_at) VALUES ('{scope}', 'ann', 0)")
    scheduler.run_turns()


def test_dec_004_reservation_goes_after_running_jobs_and_before_the_queue(scheduler: Scheduler) -> None:
    running, queued = scheduler.submit("a"), scheduler.submit("b")
    first, second = scheduler.reserve("x"), scheduler.reserve("y")
    later = scheduler.submit("c")
    assert scheduler.started_jobs() == [running]
    assert scheduler.wait_detail(queued) == NEXT
    assert scheduler.show_job(queued).status == "QUEUED"
    assert scheduler.show_reservation(first).wait == WaitReason(
        kind="capacity", detail="waiting on pool global (1/1)", topics=["pool:global"]
    )
    assert scheduler.show_reservation(second).wait == WaitReason(
        kind="reservation", detail=NEXT, topics=["reservation"]
    )
    scheduler.end_run(running)
    scheduler.end_reservation(first)
    scheduler.end_reservation(second)
    scheduler.end_run(queued)
    assert scheduler.started_jobs() == [running, lock_owner(first), lock_owner(second), queued, later]
    assert scheduler.executor.stops == []


def test_direct_execution_creates_no_job_and_no_run(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    reservation = scheduler.reserve("echo", "hello", name="a greeting")
    scheduler.receive(StartConfirmation(run=scheduler.find_run(lock_owner(reservation)), pid=77, start_time=1))
    shown = scheduler.show_reservation(reservation)
    assert (shown.status, shown.ready, shown.pid, shown.name) == ("RUNNING", True, 77, "a greeting")
    assert shown.log_paths["stdout"].endswith(f"/reservations/{reservation}/stdout.log")
    scheduler.end_reservation(reservation)
    assert (run_sql("SELECT * FROM job"), run_sql("SELECT * FROM run")) == ([], [])
    shown = scheduler.show_reservation(reservation)
    assert (shown.status, shown.ready, shown.exit_code, shown.worker) == ("COMPLETED", False, 0, "local/1")
    assert shown.pid is None
    assert [event.kind for event in scheduler.events] == [
        "reservation.created",
        "reservation.started",
        "reservation.running",
        "reservation.ended",
    ]
    assert {event.reservation for event in scheduler.events} == {reservation}


def test_child_knows_its_reservation_and_run_numbers_are_not_reused(scheduler: Scheduler) -> None:
    reservation = scheduler.reserve("true")
    (start,) = scheduler.executor.starts
    assert start.overlay["ROTA_RESERVATION"] == "reservation-1"
    assert "ROTA_JOB" not in start.overlay
    assert start.directory == str(scheduler.home / "reservations/1")
    scheduler.end_reservation(reservation)
    job = scheduler.submit()
    assert scheduler.find_run(job) > start.run


def test_only_jobs_that_share_a_pool_wait_for_it(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "resource__gpu": 1, "resource__net": 1})
    busy = scheduler.submit(pools={"resource/gpu": 1})
    reservation = scheduler.reserve("x", pools={"resource/gpu": 1, "resource/net": 1})
    other, sharing = scheduler.submit(), scheduler.submit(pools={"resource/net": 1})
    assert scheduler.started_jobs() == [busy, other]
    assert scheduler.wait_detail(sharing) == NEXT
    scheduler.end_run(busy)
    assert scheduler.started_jobs()[-1] == lock_owner(reservation)
    assert scheduler.wait_detail(sharing) == "waiting on pool resource/net (1/1)"


def test_capacity_beyond_the_reserved_is_for_the_queue(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 3, "resource__gpu": 1})
    busy = scheduler.submit(pools={"resource/gpu": 1})
    scheduler.reserve("x", pools={"resource/gpu": 1})
    jobs = [scheduler.submit() for _ in range(2)]
    assert scheduler.started_jobs() == [busy, jobs[0]]
    assert scheduler.wait_detail(jobs[1]) == NEXT


def test_running_reservation_counts_as_used(scheduler: Scheduler) -> None:
    reservation, job = scheduler.reserve("x"), scheduler.submit()
    scheduler.clock.advance(days=3)
    scheduler.run_turns()
    assert scheduler.wait_detail(job) == "waiting on pool global (1/1)"
    assert "used by reservation-1" in scheduler.explain_wait(job)["text"]
    scheduler.end_reservation(reservation)
    assert scheduler.started_jobs()[-1] == job


def test_locks_apply_and_reservation_is_first_in_their_queues(unlimited_scheduler: Scheduler) -> None:
    holder = unlimited_scheduler.submit(locks=["repo"])
    waiting = unlimited_scheduler.submit(locks=["repo"])
    reservation = unlimited_scheduler.reserve("x", locks=["repo"])
    assert unlimited_scheduler.show_reservation(reservation).wait == WaitReason(
        kind="locks", detail="waiting on locks", topics=["lock:repo"]
    )
    unlimited_scheduler.end_run(holder)
    assert unlimited_scheduler.started_jobs()[-1] == lock_owner(reservation)
    assert unlimited_scheduler.status(waiting) is Status.WAITING_ON_LOCKS
    assert "repo (held by reservation-1)" in unlimited_scheduler.explain_wait(waiting)["text"]
    unlimited_scheduler.end_reservation(reservation)
    assert unlimited_scheduler.started_jobs()[-1] == waiting


def test_ready_job_yields_its_lock_to_a_reservation(scheduler: Scheduler) -> None:
    running, ready = scheduler.submit(), scheduler.submit(locks=["repo"])
    reservation = scheduler.reserve("x", locks=["repo"])
    assert scheduler.status(ready) is Status.WAITING_ON_LOCKS
    scheduler.end_run(running)
    scheduler.end_reservation(reservation)
    assert scheduler.started_jobs() == [running, lock_owner(reservation), ready]


def test_shared_locks_are_shared_with_jobs(unlimited_scheduler: Scheduler) -> None:
    holder = unlimited_scheduler.submit(locks=["repo:shared"])
    reservation = unlimited_scheduler.reserve("x", locks=["repo:shared"])
    assert unlimited_scheduler.started_jobs() == [holder, lock_owner(reservation)]


@pytest.mark.parametrize("scope", ["global", "flow/f"])
def test_paused_reservation_waits_and_reserves_nothing(scheduler: Scheduler, run_sql: SqlRunner, scope: str) -> None:
    pause(scheduler, run_sql, scope)
    reservation = scheduler.reserve("x", flow="f", locks=["repo"])
    assert scheduler.show_reservation(reservation).wait == WaitReason(
        kind="paused", detail="paused by ann", topics=["pause"]
    )
    job = scheduler.submit(locks=["repo"])
    assert scheduler.wait_detail(job) == ("paused by ann" if scope == "global" else None)
    assert scheduler.started_jobs() == ([] if scope == "global" else [job])


def test_pause_while_waiting_yields_its_locks(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    holder = unlimited_scheduler.submit(locks=["repo"])
    reservation = unlimited_scheduler.reserve("x", locks=["repo"], flow="f")
    behind = unlimited_scheduler.submit(locks=["repo"])
    pause(unlimited_scheduler, run_sql, "flow/f")
    unlimited_scheduler.end_run(holder)
    assert unlimited_scheduler.started_jobs()[-1] == behind
    run_sql("DELETE FROM pause")
    unlimited_scheduler.end_run(behind)
    assert unlimited_scheduler.started_jobs()[-1] == lock_owner(reservation)


def test_pool_of_size_zero_holds_reservation_and_jobs_name_the_pool(scheduler: Scheduler) -> None:
    scheduler.set_pools(**{"global": 0})
    reservation, job = scheduler.reserve("x"), scheduler.submit()
    assert scheduler.show_reservation(reservation).wait is not None
    assert scheduler.wait_detail(job) == "waiting on pool global (0/0)"
    scheduler.set_pools(**{"global": 1})
    assert scheduler.started_jobs() == [lock_owner(reservation)]


def test_batch_size_does_not_limit_reservations(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    reservations = [scheduler.reserve("x") for _ in range(2)]
    assert scheduler.started_jobs() == [lock_owner(reservation) for reservation in reservations]


def test_withdrawn_waiting_reservation_ends_and_queue_continues(scheduler: Scheduler) -> None:
    running, queued = scheduler.submit(), scheduler.submit(locks=["repo"])
    reservation = scheduler.reserve("x", locks=["repo"])
    scheduler.withdraw(reservation)
    shown = scheduler.show_reservation(reservation)
    assert (shown.status, shown.exit_code, shown.reason) == ("CANCELLED", 143, "its client is gone")
    scheduler.end_run(running)
    assert scheduler.started_jobs() == [running, queued]
    scheduler.withdraw(reservation, "again")
    assert scheduler.show_reservation(reservation).reason == "its client is gone"


def test_withdrawn_running_reservation_keeps_its_slot_until_it_ends(scheduler: Scheduler) -> None:
    reservation, job = scheduler.reserve("x"), scheduler.submit()
    scheduler.withdraw(reservation)
    assert scheduler.executor.stops == [scheduler.find_run(lock_owner(reservation))]
    assert scheduler.show_reservation(reservation).status == "RUNNING"
    scheduler.end_reservation(reservation, None, signal=15, ended_by="stop")
    shown = scheduler.show_reservation(reservation)
    assert (shown.status, shown.exit_code, shown.reason) == ("CANCELLED", 143, "its client is gone")
    assert scheduler.started_jobs()[-1] == job


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (3, {}, ("FAILED", 3, "exit code 3")),
        (None, {"signal": 9}, ("FAILED", 137, "killed by SIGKILL")),
        (None, {"signal": 15, "ended_by": "timeout"}, ("FAILED", 124, "timed out after 5s")),
    ],
)
def test_direct_execution_ends_like_a_run(
    scheduler: Scheduler, code: int | None, fields: dict[str, int | str], expected: tuple[str, int, str]
) -> None:
    reservation = scheduler.reserve("x", timeout="5s")
    scheduler.end_reservation(reservation, code, **fields)
    shown = scheduler.show_reservation(reservation)
    assert (shown.status, shown.exit_code, shown.reason) == expected
    assert scheduler.executor.acknowledged == [scheduler.find_run(lock_owner(reservation))]


def test_missing_program_is_exit_code_127(scheduler: Scheduler) -> None:
    reservation, job = scheduler.reserve("nosuch"), scheduler.submit()
    scheduler.receive(StartFailure(run=scheduler.find_run(lock_owner(reservation)), error="program not found: nosuch"))
    shown = scheduler.show_reservation(reservation)
    assert (shown.status, shown.exit_code, shown.reason) == ("FAILED", 127, "program not found: nosuch")
    assert scheduler.started_jobs()[-1] == job


def test_machine_failure_requeues_the_reservation(scheduler: Scheduler) -> None:
    reservation = scheduler.reserve("x", locks=["repo"])
    scheduler.receive(
        StartFailure(run=scheduler.find_run(lock_owner(reservation)), error="no memory", is_machine_failure=True)
    )
    assert scheduler.show_reservation(reservation).status == "WAITING"
    scheduler.clock.advance(seconds=2)
    scheduler.run_turns()
    assert scheduler.started_jobs() == [lock_owner(reservation)] * 2


@pytest.mark.parametrize("mode", ["repo", "repo:shared"])
def test_requeued_reservation_gets_its_locks_before_jobs_start(
    make_scheduler: Callable[..., Scheduler], mode: str
) -> None:
    scheduler = make_scheduler(**{"global": 3})
    reservation, job = scheduler.reserve("x", locks=["repo"]), scheduler.submit(locks=[mode])
    scheduler.run_turns()
    scheduler.receive(
        StartFailure(run=scheduler.find_run(lock_owner(reservation)), error="no memory", is_machine_failure=True)
    )
    scheduler.clock.advance(seconds=2)
    scheduler.run_turns()
    assert scheduler.started_jobs() == [lock_owner(reservation)] * 2
    scheduler.receive(ConnectionLoss(reason="killed"))
    scheduler.run_turns()
    scheduler.receive(RunInventory(runs=[]))
    assert scheduler.started_jobs() == [lock_owner(reservation)] * 3
    scheduler.confirm_start(lock_owner(reservation))
    scheduler.end_reservation(reservation)
    assert scheduler.started_jobs()[-1] == job


def test_shutdown_with_kill_ends_held_turns_too(scheduler: Scheduler) -> None:
    held, waiting = scheduler.reserve(), scheduler.reserve("y")
    scheduler.run_request(end_running)
    assert (scheduler.show_reservation(held).status, scheduler.show_reservation(held).reason) == (
        "FAILED",
        "stopped by shutdown",
    )
    assert scheduler.show_reservation(waiting).status == "RUNNING"


def test_expired_lease_ends_waiting_and_held_reservations_but_no_running_command(scheduler: Scheduler) -> None:
    running, held, waiting = scheduler.reserve("x"), scheduler.reserve(), scheduler.reserve("y")
    scheduler.run_request(lambda tx: expire(tx, running, reason="silent"))
    scheduler.run_request(lambda tx: expire(tx, waiting, reason="silent"))
    assert [scheduler.show_reservation(reservation).status for reservation in (running, held, waiting)] == [
        "RUNNING",
        "WAITING",
        "CANCELLED",
    ]
    assert scheduler.executor.stops == []
    scheduler.end_reservation(running)
    assert scheduler.show_reservation(held).status == "RUNNING"
    scheduler.run_request(lambda tx: expire(tx, held, reason="silent"))
    assert (scheduler.show_reservation(held).status, scheduler.show_reservation(held).reason) == ("CANCELLED", "silent")


def test_refused_start_fails_the_reservation(scheduler: Scheduler) -> None:
    reservation = scheduler.reserve("x")
    scheduler.receive(StartRefusal(run=scheduler.find_run(lock_owner(reservation)), error="known already"))
    assert scheduler.show_reservation(reservation).reason == "the supervisor refused to start it: known already"


def test_reservation_without_command_gets_its_turn_and_is_released(scheduler: Scheduler) -> None:
    running = scheduler.submit()
    reservation, job = scheduler.reserve(locks=["repo"]), scheduler.submit()
    assert (scheduler.show_reservation(reservation).ready, scheduler.show_reservation(reservation).log_paths) == (
        False,
        {},
    )
    scheduler.end_run(running)
    assert (scheduler.show_reservation(reservation).ready, scheduler.show_reservation(reservation).status) == (
        True,
        "RUNNING",
    )
    assert scheduler.started_jobs() == [running]
    assert scheduler.wait_detail(job) == "waiting on pool global (1/1)"
    scheduler.release(reservation)
    assert scheduler.show_reservation(reservation).status == "COMPLETED"
    assert scheduler.started_jobs()[-1] == job
    scheduler.release(reservation)


def test_withdrawn_turn_is_free_immediately(scheduler: Scheduler) -> None:
    reservation, job = scheduler.reserve(), scheduler.submit()
    scheduler.withdraw(reservation, "its lease is over")
    assert scheduler.show_reservation(reservation).reason == "its lease is over"
    assert scheduler.started_jobs() == [job]


def test_reservation_with_command_cannot_be_released(scheduler: Scheduler) -> None:
    reservation = scheduler.reserve("x")
    with pytest.raises(Conflict, match="reservation-1 runs a command"):
        scheduler.release(reservation)


def test_signals_are_forwarded_to_a_running_command(scheduler: Scheduler) -> None:
    busy, waiting = scheduler.reserve("x"), scheduler.reserve("y")
    scheduler.receive(StartConfirmation(run=scheduler.find_run(lock_owner(busy)), pid=5, start_time=1))
    scheduler.run_request(lambda tx: forward_signal(tx, busy, 10))
    assert [order for order in scheduler.executor.orders if isinstance(order, SignalOrder)] == [
        SignalOrder(run=scheduler.find_run(lock_owner(busy)), number=10)
    ]
    with pytest.raises(Conflict, match="reservation-2 runs no command now"):
        scheduler.run_request(lambda tx: forward_signal(tx, waiting, 10))
    with pytest.raises(InvalidInput, match="signal 9 is not forwarded"):
        scheduler.run_request(lambda tx: forward_signal(tx, busy, 9))


def test_invalid_request_stores_nothing(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    for fields in ({"pools": {"nonsense": 1}}, {"timeout": "soon"}, {"flow": "a b"}, {"cwd": "here"}):
        with pytest.raises(InvalidInput):
            scheduler.reserve("x", **fields)
    with pytest.raises(InvalidInput, match="timeouts need a command"):
        scheduler.reserve(timeout="5s")
    with pytest.raises(NotFound, match="no such reservation: reservation-9"):
        scheduler.withdraw(ReservationId(9))
    assert run_sql("SELECT * FROM reservation") == []


def test_weight_above_the_pool_size_blocks_no_job(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    busy = scheduler.submit()
    scheduler.reserve("x", pools={"global": 2})
    scheduler.set_pools(**{"global": 1})
    job = scheduler.submit()
    scheduler.end_run(busy)
    assert scheduler.started_jobs() == [busy, job]


# Recovery.


@pytest.mark.both_databases
def test_waiting_reservations_keep_their_place_over_a_crash(scheduler: Scheduler) -> None:
    running = scheduler.submit()
    reservations = [scheduler.reserve("x", locks=["repo"]), scheduler.reserve("y")]
    queued = scheduler.submit()
    run = scheduler.find_run(running)
    scheduler.receive(StartConfirmation(run=run, pid=5, start_time=1))
    scheduler.crash([RunReport(run=run, pid=5, start_time=1)])
    assert [scheduler.show_reservation(reservation).status for reservation in reservations] == ["WAITING"] * 2
    scheduler.clock.advance(seconds=1)
    scheduler.receive(*_exit_reports(run))
    scheduler.end_reservation(reservations[0])
    scheduler.end_reservation(reservations[1])
    assert scheduler.started_jobs() == [lock_owner(reservations[0]), lock_owner(reservations[1]), queued]


def _exit_reports(run: RunId) -> list[ExecutorMessage]:
    return [ExitReport(run=run, at=0.0, code=0)]


def test_running_reservation_is_adopted_and_its_end_is_recorded(scheduler: Scheduler) -> None:
    reservation, job = scheduler.reserve("x", locks=["repo"]), scheduler.submit()
    run = scheduler.find_run(lock_owner(reservation))
    scheduler.crash([RunReport(run=run, pid=5, start_time=1)])
    assert (scheduler.show_reservation(reservation).status, scheduler.show_reservation(reservation).pid) == (
        "RUNNING",
        5,
    )
    assert scheduler.executor.stops == []
    assert scheduler.started_jobs() == []
    scheduler.receive(*_exit_reports(run))
    assert scheduler.show_reservation(reservation).status == "COMPLETED"
    assert scheduler.started_jobs() == [job]


def test_requested_stop_is_sent_again(scheduler: Scheduler) -> None:
    reservation = scheduler.reserve("x")
    run = scheduler.find_run(lock_owner(reservation))
    scheduler.receive(StartConfirmation(run=run, pid=5, start_time=1))
    scheduler.withdraw(reservation)
    scheduler.crash([RunReport(run=run, pid=5, start_time=1)])
    assert scheduler.executor.stops == [run]


def test_unused_claim_is_claimed_again(scheduler: Scheduler) -> None:
    reservation = scheduler.reserve("x", locks=["repo"])
    first = scheduler.find_run(lock_owner(reservation))
    scheduler.crash()
    assert scheduler.started_jobs() == [lock_owner(reservation)]
    assert scheduler.find_run(lock_owner(reservation)) > first


def test_withdrawn_and_never_started_is_cancelled(scheduler: Scheduler) -> None:
    reservation = scheduler.reserve("x")
    scheduler.withdraw(reservation)
    scheduler.crash()
    shown = scheduler.show_reservation(reservation)
    assert (shown.status, shown.exit_code, shown.reason) == ("CANCELLED", 143, "its client is gone")
    assert scheduler.engine.recovery_counts == {}


def test_reservation_that_is_unaccounted_for_fails_and_is_counted(scheduler: Scheduler) -> None:
    reservation, job = scheduler.reserve("x", locks=["repo"]), scheduler.submit(locks=["repo"])
    scheduler.receive(StartConfirmation(run=scheduler.find_run(lock_owner(reservation)), pid=5, start_time=1))
    scheduler.crash()
    shown = scheduler.show_reservation(reservation)
    assert (shown.status, shown.exit_code, shown.reason) == ("FAILED", None, "Scheduler crash recovery")
    assert scheduler.engine.recovery_counts is not None
    assert scheduler.engine.recovery_counts["reservations_expired"] == 1
    assert scheduler.started_jobs() == [job]


def test_unusable_record_fails_its_own_reservation(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    running = scheduler.submit()
    reservation, job = scheduler.reserve("x"), scheduler.submit()
    run_sql(f"UPDATE reservation SET command = '[7' WHERE id = {reservation}")
    scheduler.end_run(running)
    assert scheduler.show_reservation(reservation).reason == "scheduler data error: its record cannot be read"
    assert scheduler.started_jobs()[-1] == job


def test_retention_removes_old_reservations_and_numbers_are_not_reused(
    scheduler: Scheduler, run_sql: SqlRunner
) -> None:
    old, running = scheduler.reserve("x", locks=["k"]), scheduler.reserve("y")
    scheduler.end_reservation(old)
    for reservation in (old, running, ReservationId(99)):
        (scheduler.home / f"reservations/{reservation}").mkdir(parents=True)
    scheduler.clock.advance(days=8)
    collector = collector_of(scheduler)
    assert collector.collect(timedelta(days=7), cause="gc", is_dry_run=True).rows.reservations == 1
    assert collector.collect(timedelta(days=7), cause="gc").rows.reservations == 1
    assert [row[0] for row in run_sql("SELECT id FROM reservation")] == [running]
    assert [path.name for path in (scheduler.home / "reservations").iterdir()] == [str(running)]
    scheduler.end_reservation(running)
    scheduler.clock.advance(days=8)
    collector_of(scheduler).collect(timedelta(days=7), cause="gc")
    assert scheduler.reserve("z") == running + 1
