"""`down --kill`: stop all runs, with the shutdown as the recorded cause."""

from __future__ import annotations

from rota.core.reservation import ReservationState
from rota.core.run import EXIT_CANCELLED, STOPPED_BY_SHUTDOWN, RunResult
from rota.core.status import Status
from rota.engine.transaction import Transaction
from rota.executor.port import StopOrder
from rota.ids import JobId


def end_running(tx: Transaction) -> list[JobId]:
    """Stop every open run; each is FAILED `stopped by shutdown` when its whole process tree is gone. A run with an
    earlier stop request keeps it, so a cancelled job stays cancelled."""
    runs = tx.runs.list_open()
    for run in runs:
        if run.stop_requested is None:
            tx.jobs.request_stop(run.job, STOPPED_BY_SHUTDOWN, tx.now, None)
        tx.effects.orders.append(StopOrder(run=run.run, kill_after=tx.settings.kill_after.total_seconds()))
    for reservation in tx.reservations.list_open():
        if reservation.run is not None:
            tx.reservations.request_stop(reservation.id, STOPPED_BY_SHUTDOWN, tx.now, None)
            tx.effects.orders.append(StopOrder(run=reservation.run, kill_after=tx.settings.kill_after.total_seconds()))
        elif reservation.state is ReservationState.RUNNING:  # a client program holds it: no run to stop
            stopped = RunResult(status=Status.FAILED, exit_code=EXIT_CANCELLED, reason=STOPPED_BY_SHUTDOWN)
            tx.reservations.end(reservation.id, stopped, tx.now)
    return [run.job for run in runs]
