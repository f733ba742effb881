"""What a tick did, or would do."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.snapshot import Claim
from rota.engine.work import Work
from rota.ids import show_job
from rota.wire.tick import TickForm


def report(work: Work) -> TickForm:
    """At the end of its turn. What a tick decided on and has not started yet (a spawn delay keeps it, or what it hangs
    on is still being looked at) is among what would be dispatched; in a rehearsal that is all of it."""
    planned = () if work.planned is None else work.planned.claims
    started = [] if work.plan is None or work.is_rehearsal else [claim.job for claim in work.plan.claims]
    still = [claim for claim in planned if claim.job not in set(started)]
    skipped = _ready(work, still) - len(still)
    reason = work.planned.bound_by if work.planned is not None else "capacity" if skipped else "none"
    return TickForm(
        dispatched=[show_job(job) for job in started],
        would_dispatch=[show_job(claim.job) for claim in still],
        skipped=skipped,
        reason=reason,
    )


def _ready(work: Work, still: Sequence[Claim]) -> int:
    """Jobs that stand ready and are not held by a pause or a breaker: of those that one of its own may try for, all but
    that one are held, and it is still among them where it has not started."""
    pauses = work.session.pauses(holds=work.holds) if work.planned is None else work.planned.pauses
    held, _parked = work.session.count_paused(pauses)
    return sum(ready for _, ready in work.session.lanes()) - held + sum(1 for claim in still if claim.probes)
