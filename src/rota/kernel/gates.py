"""The gates, in their fixed order. The first gate that does not pass decides the verdict.

Each gate is a function `(candidate, context) -> Verdict`. Dispatch, `why` and `status` call the same functions, so an
explanation always matches the decision. An evaluation asks every gate through locks for a job with locks, and only the
gates before paused for a job without. Only the status and the wait kinds `dependencies`, `pinned_head` and `locks` are
stored; other verdicts are recomputed on each read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from rota.ids import JobId, LaneId
from rota.kernel.artifacts import ArtifactNeed, Observations, Pin, facts_for_needs, judge_needs, judge_pin
from rota.kernel.edges import UnmetEdge, judge_edges
from rota.kernel.facts import Fact
from rota.kernel.holds import PauseState, judge_delay, judge_pause
from rota.kernel.locks import Lock, LockBoard
from rota.kernel.pools import PoolBoard, PoolDemand
from rota.kernel.queue import Rank
from rota.kernel.reservations import judge_reservation_gate
from rota.kernel.status import Status
from rota.kernel.verdict import PASS, Pass, Verdict, WaitKind


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job, as input of the gates."""

    rank: Rank
    chain: JobId
    status: Status
    wait_kind: WaitKind | None
    waited_on: tuple[WaitKind, ...]
    is_ready: bool
    """Whether the job is in its lane: no gate that an evaluation asks holds it. A ready job without locks can still be
    paused or oversized."""
    is_contending: bool
    """Whether the job is in the queues of its locks: every gate before locks has passed."""
    not_before: datetime | None
    lane: LaneId
    demand: PoolDemand
    scopes: tuple[str, ...]
    """Pause scopes that cover the job."""
    breaker_keys: tuple[str, ...]
    """Breakers that cover the job."""
    locks: tuple[Lock, ...]
    edges: tuple[UnmetEdge, ...]
    """Unmet edges that can decide the verdict: an edge that can no longer be met, else the first open edge."""
    needs: tuple[ArtifactNeed, ...] = ()
    pin: Pin | None = None

    def required_facts(self, observations: Observations) -> list[Fact]:
        """Return the facts that must be probed before the job may start."""
        pinned = [] if self.pin is None else [self.pin.fact]
        return facts_for_needs(self.needs, observations.paths) + pinned


class GateContext(msgspec.Struct, frozen=True, kw_only=True):
    """State of the scheduler and the outside world at one moment."""

    now: datetime
    pauses: PauseState
    locks: LockBoard
    pools: PoolBoard
    observations: Observations = Observations()


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    judge: Callable[[Candidate, GateContext], Verdict]


DEPENDENCIES = Gate(name="after", judge=lambda job, _: judge_edges(job.edges))
ARTIFACTS = Gate(name="artifacts", judge=lambda job, context: judge_needs(job.needs, context.observations))
PINNED_HEAD = Gate(name="pinned head", judge=lambda job, context: judge_pin(job.pin, context.observations))
DELAY = Gate(name="delay", judge=lambda job, context: judge_delay(job.not_before, context.now))
PAUSED = Gate(name="paused", judge=lambda job, context: judge_pause(context.pauses, job.scopes, job.breaker_keys))
SIZE = Gate(name="size", judge=lambda job, context: context.pools.judge_size(job.demand))
LOCKS = Gate(name="locks", judge=lambda job, context: context.locks.judge(job.rank, job.locks))
RESERVATION = Gate(name="reservation", judge=lambda job, context: judge_reservation_gate(context.pools, job.demand))
POOLS = Gate(name="pools", judge=lambda job, context: context.pools.judge(job.demand, job.rank))

GATES = (DEPENDENCIES, ARTIFACTS, PINNED_HEAD, DELAY, PAUSED, SIZE, LOCKS, RESERVATION, POOLS)
BEFORE_PAUSED = GATES[: GATES.index(PAUSED)]
BEFORE_LOCKS = GATES[: GATES.index(LOCKS)]
"""Gates before locks. A job that one of them holds is not in the queues of its locks, so later jobs pass it."""
READY_JOB_GATES = (PAUSED, SIZE, RESERVATION, POOLS)
"""The gates that can hold a ready job without locks."""


def first_verdict(job: Candidate, context: GateContext, gates: Iterable[Gate] = GATES) -> Verdict:
    for gate in gates:
        verdict = gate.judge(job, context)
        if not isinstance(verdict, Pass):
            return verdict
    return PASS
