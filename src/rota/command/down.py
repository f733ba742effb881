"""`down --kill`: what still runs is ended, and it is not the job's fault."""

from __future__ import annotations

from rota.core.run import STOPPED_BY_SHUTDOWN
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
    return [run.job for run in runs]
