"""The gates, in their fixed order. The first that does not pass speaks for the job.

Each is a function `(standing, facts) -> Verdict`. Dispatch, `why` and `status` ask these same functions, so
what is explained is what happens. A look asks the gates up to locks; of what they say the status and the kinds
`dependencies`, `pinned_head` and `locks` are stored, the rest is computed again when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from rota.core.after import EdgeFact, judge_edges
from rota.core.artifact import Need, Outside, facts_of, judge_needs
from rota.core.control import Pauses, judge_delay, judge_pause
from rota.core.fact import Fact
from rota.core.lock import Lock, LockBoard
from rota.core.pinned_head import Pin, judge_pin
from rota.core.pool import Draws, PoolBoard
from rota.core.queue import Rank
from rota.core.slot import judge_turn
from rota.core.status import Status
from rota.core.verdict import PASS, Pass, Verdict
from rota.core.wait import WaitKind
from rota.ids import JobId, LaneId


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job as the gates see it."""

    rank: Rank
    chain: JobId
    status: Status
    wait_kind: WaitKind | None
    waited_on: tuple[WaitKind, ...]
    is_ready: bool
    """It stands in its lane: every gate up to locks has let it pass."""
    contends: bool
    """It stands in the queues of its locks: every gate before locks has let it pass."""
    not_before: datetime | None
    lane: LaneId
    draws: Draws
    scopes: tuple[str, ...]
    """What a pause that holds it can be of."""
    keys: tuple[str, ...]
    """The breakers it stands under."""
    locks: tuple[Lock, ...]
    edges: tuple[EdgeFact, ...]
    """Those not met that may speak: one that cannot be met any more, else the first open one."""
    needs: tuple[Need, ...] = ()
    pin: Pin | None = None

    def facts(self, outside: Outside) -> list[Fact]:
        """What has to be looked at outside before it may start."""
        pinned = [] if self.pin is None else [self.pin.fact]
        return facts_of(self.needs, outside.places) + pinned


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The world at one moment."""

    now: datetime
    pauses: Pauses
    locks: LockBoard
    pools: PoolBoard
    outside: Outside = Outside()


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    judge: Callable[[Standing, Facts], Verdict]


AFTER = Gate(name="after", judge=lambda job, _: judge_edges(job.edges))
ARTIFACTS = Gate(name="artifacts", judge=lambda job, facts: judge_needs(job.needs, facts.outside))
PINNED_HEAD = Gate(name="pinned head", judge=lambda job, facts: judge_pin(job.pin, facts.outside))
DELAY = Gate(name="delay", judge=lambda job, facts: judge_delay(job.not_before, facts.now))
PAUSED = Gate(name="paused", judge=lambda job, facts: judge_pause(facts.pauses, job.scopes, job.keys))
LOCKS = Gate(name="locks", judge=lambda job, facts: facts.locks.judge(job.rank, job.locks))
SLOT = Gate(name="slot", judge=lambda job, facts: judge_turn(facts.pools, job.draws))
POOLS = Gate(name="pools", judge=lambda job, facts: facts.pools.judge(job.draws, job.rank))

GATES = (AFTER, ARTIFACTS, PINNED_HEAD, DELAY, PAUSED, LOCKS, SLOT, POOLS)
BEFORE_PAUSED = GATES[: GATES.index(PAUSED)]
BEFORE_LOCKS = GATES[: GATES.index(LOCKS)]
"""A job held at one of these does not stand in the queues of its locks: later ones pass it."""
OF_READY = (PAUSED, SLOT, POOLS)
"""The only gates that can hold a job that is ready and has no locks."""


def first_verdict(job: Standing, facts: Facts, gates: Iterable[Gate] = GATES) -> Verdict:
    for gate in gates:
        verdict = gate.judge(job, facts)
        if not isinstance(verdict, Pass):
            return verdict
    return PASS
