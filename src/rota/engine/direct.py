"""Reservations of direct executions, inside a transaction: contention, start, end and recovery.

Reservations are not jobs, but share the pools, the locks, the workers and the executor with them. Their runs and the
runs of jobs share one sequence of ids. A message whose run is not an open run of a job is looked up here.
"""

from __future__ import annotations

import logging
from pathlib import Path

from rota.engine.transaction import Transaction
from rota.executor.port import ExitReport, RunReport, StartFailure, StartOrder, StopOrder
from rota.ids import ReservationId, RunId, format_reservation_id, format_run_id
from rota.kernel.holds import judge_pause
from rota.kernel.reservations import Reservation, ReservationState, lock_owner
from rota.kernel.run import CRASH_RECOVERY, RunEnd, RunResult, StopIntent, conclude
from rota.kernel.status import Status
from rota.kernel.verdict import Pass

log = logging.getLogger("rota.engine")

NOT_STARTED = 127
"""Exit code of a shell for a program that it cannot start."""


def update_contention(tx: Transaction) -> bool:
    """Let waiting reservations contend for their locks, ahead of all jobs. Return whether any waits.

    A reservation that cannot start, because it is paused or too large for a pool, does not contend."""
    reservations = tx.reservations.waiting()
    pauses = tx.pauses.state(holds=tx.holds) if reservations else None
    for reservation in reservations:
        if pauses is None or not reservation.locks:
            continue
        is_paused = not isinstance(judge_pause(pauses, reservation.scopes), Pass)
        cannot_start = is_paused or tx.settings.pool_sizes.find_oversized_pool(reservation.demand) is not None
        if cannot_start and reservation.is_contending:
            tx.reservations.yield_locks(reservation.id)
        elif not cannot_start and not reservation.is_contending:
            tx.reservations.join_lock_queues(reservation)
    return bool(reservations)


def make_start(reservation: Reservation, home: str, kill_after: float) -> StartOrder:
    """Make the start order of a reservation. Raises if its record is unusable."""
    if not reservation.command or reservation.cwd is None or reservation.environment is None or reservation.run is None:
        raise LookupError("its record cannot be read")
    return StartOrder(
        run=reservation.run,
        job=lock_owner(reservation.id),
        argv=reservation.command,
        cwd=reservation.cwd,
        environment_id=reservation.environment,
        overlay={
            **reservation.trace,
            "ROTA_HOME": home,
            "ROTA_RESERVATION": format_reservation_id(reservation.id),
            "ROTA_RUN": format_run_id(reservation.run),
        },
        directory=reservation_directory(home, reservation.id),
        timeout=None if reservation.timeout is None else reservation.timeout.total_seconds(),
        idle_timeout=None if reservation.idle_timeout is None else reservation.idle_timeout.total_seconds(),
        kill_after=kill_after,
    )


def reservation_directory(home: str | Path, reservation: ReservationId) -> str:
    return f"{home}/reservations/{reservation}"


def record_start(tx: Transaction, run: RunId, pid: int, start_time: int) -> bool:
    """Record the start of a reservation. Return whether the run belongs to a reservation."""
    reservation = tx.reservations.find_by_run(run)
    if reservation is None:
        return False
    tx.reservations.confirm_start(reservation, pid, start_time, tx.now)
    return True


def record_exit(tx: Transaction, message: ExitReport) -> bool:
    """Record the end of a reservation. Return whether the run belongs to a reservation."""
    reservation = tx.reservations.find_by_run(message.run)
    if reservation is None:
        return False
    end = RunEnd(
        code=message.code,
        signal=message.signal,
        ended_by=message.ended_by,
        was_watched=message.is_observed,
        is_verified=message.is_verified,
        stderr_tail=message.tail,
    )
    intent = StopIntent(
        stop_requested=reservation.stop_requested, timeout=reservation.timeout, idle_timeout=reservation.idle_timeout
    )
    tx.reservations.end(reservation.id, conclude(end, intent), tx.now)
    return True


def record_failed_start(tx: Transaction, message: StartFailure) -> bool:
    """Requeue a reservation after a failure of the machine, else end it. Return whether the run belongs to a
    reservation."""
    reservation = tx.reservations.find_by_run(message.run)
    if reservation is None:
        return False
    if message.is_machine_failure and reservation.stop_requested is None:
        _requeue(tx, reservation)
    else:
        fail_reservation(tx, reservation, message.error)
    return True


def _requeue(tx: Transaction, reservation: Reservation) -> None:
    """Return a reservation to the queue. It contends for its locks in the same turn, so that no job gets them first."""
    tx.reservations.requeue(reservation, tx.now)
    tx.effects.has_reservations = True


def record_refusal(tx: Transaction, run: RunId, error: str) -> bool:
    """End a reservation whose start the supervisor refused. Return whether the run belongs to a reservation."""
    reservation = tx.reservations.find_by_run(run)
    if reservation is None:
        return False
    fail_reservation(tx, reservation, f"the supervisor refused to start it: {error}")
    return True


def fail_reservation(tx: Transaction, reservation: Reservation, error: str) -> None:
    """End a reservation whose command did not run."""
    if reservation.stop_requested is not None:
        end = conclude(RunEnd(ended_by="stop"), StopIntent(stop_requested=reservation.stop_requested))
    else:
        end = RunResult(status=Status.FAILED, exit_code=NOT_STARTED, reason=error)
    tx.reservations.end(reservation.id, end, tx.now)


def reconcile(tx: Transaction, reports: dict[RunId, RunReport]) -> int:
    """Reconcile reservations with the reports of a new connection, and return the number of lost ones.

    A known run continues. An unknown one was not started, or is lost. Reports of reservations are removed from
    `reports`."""
    lost = 0
    for reservation in tx.reservations.list_open():
        if reservation.run is None:
            continue
        report = reports.pop(reservation.run, None)
        if report is not None:
            _adopt(tx, reservation, report)
        elif reservation.state is ReservationState.STARTING and reservation.stop_requested is None:
            _requeue(tx, reservation)
        elif reservation.state is ReservationState.STARTING:
            fail_reservation(tx, reservation, "it was never started")
        else:
            result = RunResult(status=Status.FAILED, exit_code=None, reason=CRASH_RECOVERY)
            tx.reservations.end(reservation.id, result, tx.now)
            log.warning("%s: %s", format_reservation_id(reservation.id), CRASH_RECOVERY)
            lost += 1
    return lost


def _adopt(tx: Transaction, reservation: Reservation, report: RunReport) -> None:
    if report.pid is not None and not report.has_ended:
        tx.reservations.confirm_start(reservation, report.pid, report.start_time or 0, tx.now)
    if reservation.stop_requested is not None and reservation.run is not None:
        tx.effects.orders.append(StopOrder(run=reservation.run, kill_after=tx.settings.kill_after.total_seconds()))
