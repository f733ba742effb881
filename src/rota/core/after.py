"""The `after` gate: explicit edges between jobs.

An edge names a predecessor and points at its whole chain: while the chain retries, the edge is open. One
edge that can no longer be met decides at once; otherwise the first unmet edge speaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from rota.core.status import TERMINAL, Status
from rota.core.verdict import PASS, Block, Skip, Verdict, Wait
from rota.core.wait import WaitKind
from rota.ids import JobId, show_job


class AfterPolicy(StrEnum):
    """What has to have become of a predecessor."""

    SUCCESS = "success"
    """The predecessor COMPLETED or was SKIPPED."""
    FINISHED = "finished"
    """The predecessor ended, however."""
    FAILED = "failed"
    """The predecessor FAILED; if it ended otherwise, this job is not needed."""


class EdgeState(StrEnum):
    """What is stored of an edge, so that an end touches only its own edges."""

    OPEN = "open"
    MET = "met"
    UNMEETABLE = "unmeetable"


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    predecessor: JobId
    """As the user named it."""
    chain: JobId
    policy: AfterPolicy = AfterPolicy.SUCCESS
    is_implied: bool = False
    """It follows from the order of a sequential group; nobody named it."""


class EdgeFact(msgspec.Struct, frozen=True, kw_only=True):
    """An edge that is not met, with what its predecessor's chain has come to."""

    edge: Edge
    status: Status | None
    """Status of the chain's last job; none when there is no such record."""
    is_dropped: bool = False
    """If it was SKIPPED, the policy of a group did that which the job is not in: that is no success."""
    error: str | None = None
    """Set when the record is there and cannot be read."""


_MEETS = {
    AfterPolicy.SUCCESS: frozenset({Status.COMPLETED, Status.SKIPPED}),
    AfterPolicy.FINISHED: TERMINAL,
    AfterPolicy.FAILED: frozenset({Status.FAILED}),
}


def state_of(policy: AfterPolicy, status: Status, *, is_dropped: bool = False) -> EdgeState:
    """What an edge with this policy is when its predecessor's chain stands at this status. `is_dropped`: the policy of
    its group has ended it, and whoever comes after it is not in that group."""
    if status not in TERMINAL:
        return EdgeState.OPEN
    is_met = status in _MEETS[policy] and not (is_dropped and policy is AfterPolicy.SUCCESS)
    return EdgeState.MET if is_met else EdgeState.UNMEETABLE


def policies_met_by(status: Status) -> tuple[AfterPolicy, ...]:
    return tuple(policy for policy in AfterPolicy if state_of(policy, status) is EdgeState.MET)


def _judge(fact: EdgeFact) -> Verdict:
    name = show_job(fact.edge.predecessor)
    if fact.error is not None:
        return Block(detail=f"scheduler data error for job dependency {name}: {fact.error}")
    if fact.status is None:
        return Block(detail=f"missing job dependency {name}")
    match state_of(fact.edge.policy, fact.status, is_dropped=fact.is_dropped):
        case EdgeState.MET:
            return PASS
        case EdgeState.OPEN:
            return Wait(
                status=Status.WAITING_ON_DEPS,
                kind=WaitKind.DEPENDENCIES,
                detail=f"waiting on job {name}",
                on=(f"job:{fact.edge.predecessor}",),
            )
        case EdgeState.UNMEETABLE:
            if fact.edge.policy is AfterPolicy.FAILED:
                return Skip(reason=f"not needed: {name} {fact.status}")
            return Block(detail=f"dependency failed for job {name} ({fact.status})")


def judge_edges(edges: Sequence[EdgeFact]) -> Verdict:
    """The verdict of all edges together."""
    waiting: Verdict = PASS
    for fact in edges:
        verdict = _judge(fact)
        if isinstance(verdict, (Block, Skip)):
            return verdict
        if waiting is PASS:
            waiting = verdict
    return waiting


def find_cycle(edges: Mapping[JobId, Sequence[JobId]]) -> list[JobId] | None:
    """Jobs that come after each other in a ring, the first named again at the end; none when there is no such ring.

    `edges` says for each job of one submit which jobs it comes after; jobs that are not in it are older and cannot
    be part of a ring. The walk keeps its own stack: a chain may be ten thousand jobs long.
    """
    done: set[JobId] = set()
    for start in edges:
        path: list[JobId] = []
        on_path: set[JobId] = set()
        stack: list[tuple[JobId, Iterator[JobId]]] = []
        following: JobId | None = start
        while following is not None or stack:
            if following is not None and following in on_path:
                return [*path[path.index(following) :], following]
            if following is not None and following in edges and following not in done:
                path.append(following)
                on_path.add(following)
                stack.append((following, iter(edges[following])))
            if not stack:
                break
            job, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                path.pop()
                on_path.discard(job)
                done.add(job)
    return None
