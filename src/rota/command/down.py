"""`down --kill`: what still runs is ended, and it is not the job's fault."""

from __future__ import annotations

from rota.core.run import CANCELLED, STOPPED_BY_SHUTDOWN, Conclusion
from rota.core.slot import SlotState
from rota.core.status import Status
from rota.engine.work import Work
from rota.executor.port import Stop
from rota.ids import JobId


def end_running(work: Work) -> list[JobId]:
    """Ask every open run to end; each is FAILED `stopped by shutdown` when its whole tree is gone. One that somebody
    cancelled before stays cancelled."""
    runs = work.session.open_runs()
    for run in runs:
        if run.stop_requested is None:
            work.session.request_stop(run.job, STOPPED_BY_SHUTDOWN, work.now, None)
        work.orders.append(Stop(run=run.run, kill_after=work.settings.kill_after.total_seconds()))
    for slot in work.session.open_slots():
        if slot.run is not None:
            work.session.stop_slot(slot.id, STOPPED_BY_SHUTDOWN, work.now, None)
            work.orders.append(Stop(run=slot.run, kill_after=work.settings.kill_after.total_seconds()))
        elif slot.state is SlotState.RUNNING:  # a program has the place, and Rota has no hand on it
            stopped = Conclusion(status=Status.FAILED, exit_code=CANCELLED, reason=STOPPED_BY_SHUTDOWN)
            work.session.end_slot(slot.id, stopped, work.now)
    return [run.job for run in runs]
