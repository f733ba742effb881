"""Retry: the next job of a chain, made in the transaction that books the failure (DEC-001, DEC-007).

    FAILED run ── policy ──▶ again: a new job in the chain, held at the delay gate; edges on the chain stay open
                        └──▶ spent: `permanently_failed`; edges on the chain are decided

So a chain is active exactly when its last job is, at every moment that anybody can see.
"""

from __future__ import annotations

from datetime import timedelta

from rota.core.after import policies_met_by
from rota.core.retry import decide
from rota.core.run import STOPPED_BY_SHUTDOWN, Conclusion
from rota.core.status import Status
from rota.engine.work import Work
from rota.store.claim import OpenRun

CAUSE = "retry"


def delay_after(work: Work, run: OpenRun, end: Conclusion) -> timedelta | None:
    """How long the chain waits before it goes on; none when it ends with this run."""
    if end.status is not Status.FAILED or run.policy is None:
        return None
    is_unwanted = is_cancelled(run.stop_requested)
    return decide(run.policy, run.retries, end, is_unwanted=is_unwanted, chance=work.chance())


def is_cancelled(stop_requested: str | None) -> bool:
    """Somebody wanted the run ended for good; a shutdown only wants it ended now."""
    return stop_requested is not None and stop_requested != STOPPED_BY_SHUTDOWN


def go_on(work: Work, run: OpenRun, delay: timedelta) -> None:
    work.session.add_retry(run.job, retries=run.retries + 1, not_before=work.now + delay, now=work.now, cause=CAUSE)


def create_missing(work: Work, cause: str) -> int:
    """A chain that was left without its next job gets it; how many were. One transaction books a failure and its
    retry, so there should be none: this is for a store that something else has written to."""
    created = 0
    for lost in work.session.unretried():
        end = Conclusion(status=Status.FAILED, exit_code=lost.exit_code, reason=lost.reason)
        is_unwanted = is_cancelled(lost.stop_requested)
        delay = decide(lost.policy, lost.retries, end, is_unwanted=is_unwanted, chance=work.chance())
        if delay is None:
            work.session.mark_spent(lost.job)
            work.session.settle(lost.chain, policies_met_by(Status.FAILED))
            continue
        work.session.reopen(lost.chain)
        work.session.add_retry(
            lost.job, retries=lost.retries + 1, not_before=lost.finished_at + delay, now=work.now, cause=cause
        )
        created += 1
    return created
