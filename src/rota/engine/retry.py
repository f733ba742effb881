"""Retry: the next job of a chain, made in the transaction that books the failure (DEC-001, DEC-007).

    FAILED run ── policy ──▶ again: a new job in the chain, held at the delay gate; edges on the chain stay open
                        └──▶ spent: `permanently_failed`; edges on the chain are decided

So a chain is active exactly when its last job is, at every moment that anybody can see.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from rota.core.after import policies_met_by
from rota.core.retry import decide
from rota.core.run import STOPPED_BY_SHUTDOWN, Conclusion
from rota.core.status import Status
from rota.engine import group
from rota.engine.work import Work
from rota.errors import StorageFull, StoreError
from rota.ids import show_job
from rota.store.claim import OpenRun
from rota.store.retry import Unretried

log = logging.getLogger("rota.engine")

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


def create_missing(work: Work, cause: str) -> tuple[int, int]:
    """A chain that was left without its next job gets it; how many did, and how many could not. One transaction books
    a failure and its retry, so there should be none: this is for a store that something else has written to."""
    try:
        left = work.session.unretried()
    except (StorageFull, StoreError):
        raise
    except Exception:
        log.exception("chains without their next job cannot be read")
        return 0, 1
    goes_on = [_mend_alone(work, lost, cause) for lost in left]
    return goes_on.count(True), goes_on.count(None)


def _mend_alone(work: Work, lost: Unretried, cause: str) -> bool | None:
    """One record that cannot be used must not keep the others back: its chain ends, where even that can be stored, so
    that nobody waits for it. None when it was so."""
    goes_on = _guarded(work, lost, lambda: _mend(work, lost, cause))
    if goes_on is None:
        _guarded(work, lost, lambda: _end(work, lost))
    return goes_on


def _guarded(work: Work, lost: Unretried, act: Callable[[], bool]) -> bool | None:
    try:
        with work.session.savepoint():
            return act()
    except (StorageFull, StoreError):
        raise
    except Exception:
        log.exception("the chain of %s could not be recovered", show_job(lost.job))
        return None


def _mend(work: Work, lost: Unretried, cause: str) -> bool:
    """Whether the chain goes on."""
    end = Conclusion(status=Status.FAILED, exit_code=lost.exit_code, reason=lost.reason)
    is_unwanted = is_cancelled(lost.stop_requested)
    delay = decide(lost.policy, lost.retries, end, is_unwanted=is_unwanted, chance=work.chance())
    if delay is None or _is_key_taken(work, lost):
        return _end(work, lost)
    work.session.reopen(lost.chain)
    state = work.session.chains([lost.job])[lost.job]
    if state.group is not None:
        work.session.reopen_group(state.group, work.now, cause=cause, actor=None)
    work.session.add_retry(
        lost.job, retries=lost.retries + 1, not_before=lost.finished_at + delay, now=work.now, cause=cause
    )
    return True


def _is_key_taken(work: Work, lost: Unretried) -> bool:
    """A chain without an active job did not hold its unique key: another may have it by now."""
    key = work.session.chains([lost.job])[lost.job].unique
    return key is not None and bool(work.session.active_of([key]))


def _end(work: Work, lost: Unretried) -> bool:
    work.session.mark_spent(lost.job)
    settled = work.session.settle(lost.chain, policies_met_by(Status.FAILED))
    if settled.group is not None:
        group.book_end(work, settled.group, lost.chain, Status.FAILED)
    return False
