"""`pause`, `resume`, `clear`: hold, release or end the waiting jobs of a scope; running jobs continue."""

from __future__ import annotations

from rota.core.pool import PoolSizes
from rota.engine import control
from rota.engine.clear_operation import ClearOperation, ClearOrder
from rota.engine.transaction import Transaction
from rota.errors import InvalidInput, NotFound, escape_unprintable
from rota.ids import JobId
from rota.naming import GLOBAL, is_pool_name
from rota.store.session import AnyReader
from rota.wire.control import PauseResult, ResumeResult


def check_scope(scope: str | None) -> str:
    """Return the scope, or global for None; refuse a malformed scope."""
    if scope is None:
        return GLOBAL
    if not is_pool_name(scope):
        raise InvalidInput(
            f"unknown scope {scope!r}; use global, type/NAME, flow/NAME, target/NAME or resource/NAME"
        ).at_path(".scope")
    return scope


def pause(tx: Transaction, scope: str, *, actor: str) -> PauseResult:
    """Pause a scope. A scope that is paused already keeps the actor and time of its first pause."""
    before = tx.pauses.find(scope)
    if before is None:
        tx.pauses.add(scope, actor=actor, now=tx.now)
        control.hold_scope(tx, scope)
    by, at = (actor, tx.now) if before is None else (before.actor, before.at)
    warning = (
        None
        if _is_known_scope(tx, tx.settings.pool_sizes, scope)
        else f"no job has used {scope} so far; check the name"
    )
    return PauseResult(has_changed=before is None, scope=scope, paused_by=by, paused_at=at, warning=warning)


def resume(tx: Transaction, scope: str, *, actor: str) -> ResumeResult:
    """Resume a scope, and report the pause that ended, if any. Other pauses and breakers stay in effect."""
    before = tx.pauses.find(scope)
    if before is None:
        refuse_unknown_scope(tx, tx.settings.pool_sizes, scope)
        return ResumeResult(has_changed=False, scope=scope, paused_by=None, paused_at=None)
    tx.pauses.remove(scope, actor=actor, now=tx.now)
    control.release_scope(tx, scope)
    return ResumeResult(has_changed=True, scope=scope, paused_by=before.actor, paused_at=before.at)


def clear(tx: Transaction, scope: str, *, actor: str, max_job: JobId | None = None) -> ClearOperation:
    """Begin to clear a scope; this turn and the next ones continue. It ends with the newest job, or with `max_job`."""
    refuse_unknown_scope(tx, tx.settings.pool_sizes, scope)
    last = JobId(tx.ids.peek_job() - 1)
    until = last if max_job is None else min(last, max_job)
    return control.begin_clear(tx, ClearOrder(scope=scope, max_job=until, by=actor, at=tx.now))


def _is_known_scope(reader: AnyReader, pool_sizes: PoolSizes, scope: str) -> bool:
    """Return whether the configuration names the scope, or a job has ever used it."""
    return scope == GLOBAL or scope in pool_sizes.sizes or bool(reader.lanes.under(scope))


def refuse_unknown_scope(reader: AnyReader, pool_sizes: PoolSizes, scope: str) -> None:
    """Refuse a scope that no job has used and that the configuration does not name."""
    if not _is_known_scope(reader, pool_sizes, scope):
        raise NotFound(
            f"no such scope: {escape_unprintable(scope)}; no job has used it, and the configuration does not name it; "
            "`rota pool list` shows the pools"
        ).at_path(".scope")
