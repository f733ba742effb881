"""`cancel`: a waiting job ends at once; a running one is asked to end, and is CANCELLED when it is gone."""

from __future__ import annotations

from rota.core.status import STARTED, WAITING, Status
from rota.engine.finish import cancel_waiting
from rota.engine.work import Work
from rota.errors import Conflict
from rota.executor.port import Stop
from rota.ids import JobId, show_job


def cancel(work: Work, job: JobId, *, actor: str, spares_running: bool = False) -> JobId:
    """Acts on the job's chain; the answer is the member it acted on. With `spares_running`, only on what waits."""
    last = work.session.last_of_chain(job)
    if last is None:
        raise work.session.no_such_job(job)
    member, status = last
    reason = f"cancelled by {actor}"
    if status in WAITING:
        chain = work.session.chains([member])[member].chain
        cancel_waiting(work, member, chain, reason=reason, actor=actor)
    elif status in STARTED and spares_running:
        raise Conflict(
            f"{show_job(member)} is {status.shown}, and only what waits is ended by this; cancel ends it too"
        )
    elif status in STARTED:
        work.session.request_stop(member, reason, work.now, actor)
        run = work.session.open_run_of(member)
        if run is not None:
            work.orders.append(Stop(run=run.run, kill_after=work.settings.kill_after.total_seconds()))
    elif status is not Status.CANCELLED:
        raise Conflict(f"{show_job(member)} has already ended ({status}); nothing was changed")
    return member
