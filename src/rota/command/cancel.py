"""`cancel`: end a waiting job at once; stop a running job, which is CANCELLED when its process tree is gone."""

from __future__ import annotations

from rota.core.status import STARTED, WAITING, Status
from rota.engine.finish import cancel_unreadable, cancel_waiting
from rota.engine.transaction import Transaction
from rota.errors import Conflict
from rota.executor.port import StopOrder
from rota.ids import JobId, format_job_id

_MAY_RUN = STARTED | {Status.UNREADABLE}


def cancel(tx: Transaction, job: JobId, *, actor: str, only_waiting: bool = False) -> JobId:
    """Cancel the last job of the job's chain, and return it. With `only_waiting`, refuse a running job."""
    last = tx.chains.last_job(job)
    if last is None:
        raise tx.jobs.not_found(job)
    member, status = last
    reason = f"cancelled by {actor}"
    if status in WAITING:
        chain = tx.chains.states([member])[member].chain
        cancel_waiting(tx, member, chain, reason=reason, actor=actor)
    elif status is Status.UNREADABLE and tx.runs.find_open_of(member) is None:
        chain = tx.chains.states([member])[member].chain
        cancel_unreadable(tx, member, chain, reason=reason, actor=actor)
    elif status in _MAY_RUN and only_waiting:
        raise Conflict(
            f"{format_job_id(member)} is {status.public}, and this request cancels only waiting jobs;"
            f" `rota cancel {format_job_id(member)}` stops it"
        )
    elif status in _MAY_RUN:
        tx.jobs.request_stop(member, reason, tx.now, actor)
        run = tx.runs.find_open_of(member)
        if run is not None:
            tx.effects.orders.append(StopOrder(run=run.run, kill_after=tx.settings.kill_after.total_seconds()))
    elif status is not Status.CANCELLED:
        raise Conflict(f"{format_job_id(member)} has already ended ({status}); nothing was changed")
    return member
