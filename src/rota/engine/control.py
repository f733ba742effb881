"""Pauses and clearings, inside a transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from rota.core.gate import Standing
from rota.engine.clearing import Clearing, Order, Progress
from rota.engine.finish import cancel_waiting
from rota.engine.work import Work
from rota.ids import JobId
from rota.names import GLOBAL
from rota.store.record import FIRST_RANK
from rota.store.session import Looking

log = logging.getLogger("rota.engine")

CLEARED = "cleared"
AT_ONCE = 200
"""Jobs that a clearing ends in one turn: whoever else wants one waits no longer than that takes."""

_META = "clearing"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Order]).decode


def hold(work: Work, scope: str) -> None:
    """From now on something holds all that stands under this: it gives up its turn at its locks."""
    work.session.stir_contending(work.session.lanes_under(scope))


def let_go(work: Work, scope: str) -> None:
    work.session.stir_parked(work.session.lanes_under(scope))


def book_hold_file(work: Work, *, was_held: bool) -> None:
    """A file that comes or goes is a pause of everything."""
    if (work.held is not None) != was_held:
        let_go(work, GLOBAL) if was_held else hold(work, GLOBAL)


def begin_clearing(work: Work, order: Order) -> Clearing:
    """One that is under way and would do the same is it."""
    for clearing in work.clearings:
        if (clearing.order.scope, clearing.order.upto) == (order.scope, order.upto):
            return clearing
    clearing = Clearing(order)
    work.clearings.append(clearing)
    return clearing


def left_over(session: Looking) -> list[Clearing]:
    """What an earlier scheduler has begun and not ended."""
    stored = session.meta(_META)
    try:
        return [Clearing(order) for order in _decode(stored)] if stored else []
    except msgspec.DecodeError as error:
        log.error("a clearing that was under way cannot be read, and is given up: %s", error)
        return []


def go_on_clearing(work: Work) -> None:
    """The next jobs of each. Those that hang on one that is cleared are found by their look, if they are not here."""
    for clearing in list(work.clearings):
        order = clearing.order
        lanes = work.session.lanes_under(order.scope)
        found = work.session.clearable(lanes, upto=order.upto, behind=clearing.behind, limit=AT_ONCE)
        for each in found:
            _clear(work, clearing, each.rank.job, each.chain)
        progress = work.progress.setdefault(clearing, Progress())
        if len(found) == AT_ONCE:
            progress.behind = tuple(found[-1].rank)
        elif clearing.behind != FIRST_RANK:
            progress.behind = FIRST_RANK  # somebody may have been moved to the front meanwhile
        else:
            progress.is_over = True
            work.clearings.remove(clearing)
            total = order.cleared + progress.cleared
            work.session.cleared(order.scope, total, by=order.by, now=work.now)
            let_go(work, order.scope)


def without_cleared(work: Work, jobs: Sequence[Standing]) -> list[Standing]:
    """Of jobs that are to be looked at, those that no clearing is about; the others are cleared here. So what hangs on
    a cleared job, and is to be cleared itself, does not end as blocked by it before its turn has come."""
    left = []
    for job in jobs:
        clearing = _clearing_of(work, job)
        if clearing is None:
            left.append(job)
        else:
            _clear(work, clearing, job.rank.job, job.chain)
    return left


def has_cleared_enough(work: Work) -> bool:
    """For one turn."""
    return sum(progress.cleared for progress in work.progress.values()) >= AT_ONCE


def _clearing_of(work: Work, job: Standing) -> Clearing | None:
    return next(
        (each for each in work.clearings if job.rank.job <= each.order.upto and each.order.scope in job.scopes), None
    )


def _clear(work: Work, clearing: Clearing, job: JobId, chain: JobId) -> None:
    if cancel_waiting(work, job, chain, reason=CLEARED, actor=clearing.order.by, cause="control"):
        work.progress.setdefault(clearing, Progress()).cleared += 1


def remember_clearings(work: Work) -> None:
    """With what this turn has done."""
    if not work.progress and not work.clearings:
        return
    orders = [_after(each, work.progress.get(each)) for each in work.clearings]
    work.session.set_meta(_META, _encode(orders).decode())


def keep_clearings(work: Work) -> list[Clearing]:
    """The turn is committed: those that are still under way."""
    for clearing, progress in work.progress.items():
        clearing.order = _after(clearing, progress)
        clearing.behind = clearing.behind if progress.behind is None else progress.behind
        if progress.is_over:
            clearing.ended.set_result(clearing.order.cleared)
    return work.clearings


def _after(clearing: Clearing, progress: Progress | None) -> Order:
    done = 0 if progress is None else progress.cleared
    return msgspec.structs.replace(clearing.order, cleared=clearing.order.cleared + done)
