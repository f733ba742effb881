"""Result of a tick or of its dry run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rota.core.snapshot import Claim
from rota.core.tick import BoundBy
from rota.engine.transaction import Transaction
from rota.ids import format_job_id
from rota.wire.tick import TickResult


def render_tick(tx: Transaction, blocker: str | None = None) -> TickResult:
    """Return the result of the tick, at the end of its turn. Planned jobs that have not started are in
    `would_dispatch`: a spawn delay or a fact that is being probed holds them, or this is a dry run. `blocker`: reason
    that no job starts, whatever the gates decide."""
    plan, tick_plan = tx.effects.plan, tx.effects.tick_plan
    planned = () if tick_plan is None else tick_plan.claims
    started = [] if plan is None or tx.is_dry_run else [claim.job for claim in plan.claims]
    pending = [claim for claim in planned if claim.job not in set(started)]
    skipped = _count_startable(tx, pending) - len(pending)
    reason: BoundBy | Literal["blocked"] = "none"
    if tick_plan is not None:
        reason = tick_plan.bound_by
    elif skipped:
        reason = "capacity" if blocker is None else "blocked"
    return TickResult(
        dispatched=[format_job_id(job) for job in started],
        would_dispatch=[format_job_id(claim.job) for claim in pending],
        skipped=skipped,
        reason=reason,
        blocker=blocker if reason == "blocked" else None,
    )


def _count_startable(tx: Transaction, pending_claims: Sequence[Claim]) -> int:
    """Return the number of jobs that are ready, fit in their pools and are not held by a pause or a breaker.

    `count_paused` counts every job of a half-open breaker as held, including a probe that is planned and has not
    started, so planned probes are added back.
    """
    tick_plan = tx.effects.tick_plan
    pauses = tx.pauses.state(holds=tx.holds) if tick_plan is None else tick_plan.pauses
    held, _parked = tx.lanes.count_paused(pauses)
    held += tx.lanes.count_oversized(tx.settings.pool_sizes, pauses)
    return sum(ready for _, ready in tx.lanes.depths()) - held + sum(1 for claim in pending_claims if claim.probes)
