"""The `after` gate: explicit edges between jobs.

An edge names a predecessor and points at its whole chain: while the chain retries, the edge is open. An edge that can
no longer be met decides the verdict immediately; otherwise the first unmet edge gives the reason. Messages name the
chain's last job, so that the status in a message belongs to the job in the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from rota.ids import JobId, format_job_id
from rota.kernel.status import TERMINAL, Status
from rota.kernel.verdict import PASS, Block, SkipVerdict, Verdict, Wait, WaitKind


class DependencyPolicy(StrEnum):
    """Outcome of the predecessor that satisfies an edge."""

    SUCCESS = "success"
    """The predecessor COMPLETED or was SKIPPED."""
    FINISHED = "finished"
    """The predecessor ended, with any status."""
    FAILED = "failed"
    """The predecessor FAILED. If it ended differently, the dependent job is SKIPPED."""


class EdgeState(StrEnum):
    """Stored state of an edge, so that the end of a job updates only its own edges."""

    OPEN = "open"
    MET = "met"
    UNMEETABLE = "unmeetable"


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    predecessor: JobId
    """Predecessor as the user named it."""
    chain: JobId
    policy: DependencyPolicy = DependencyPolicy.SUCCESS
    is_implied: bool = False
    """Whether the edge follows from the order of a sequential group instead of an explicit request."""


class UnmetEdge(msgspec.Struct, frozen=True, kw_only=True):
    """An edge that is not met, with the state of its predecessor's chain."""

    edge: Edge
    last_job: JobId | None = None
    """The chain's last job; `None` if there is no such record."""
    status: Status | None
    """Status of the last job."""
    is_skipped_by_group: bool = False
    """Whether the policy of a group that the dependent job is not in skipped the predecessor. That is not a success."""
    error: str | None = None
    """Error that makes the record of the predecessor unreadable, if any."""


_MEETING_STATUSES = {
    DependencyPolicy.SUCCESS: frozenset({Status.COMPLETED, Status.SKIPPED}),
    DependencyPolicy.FINISHED: TERMINAL,
    DependencyPolicy.FAILED: frozenset({Status.FAILED}),
}


def edge_state(policy: DependencyPolicy, status: Status, *, is_skipped_by_group: bool = False) -> EdgeState:
    """Return the state of an edge for a status of its predecessor's chain. `is_skipped_by_group`: the policy of the
    predecessor's group skipped it, and the dependent job is not in that group."""
    if status not in TERMINAL:
        return EdgeState.OPEN
    is_met = status in _MEETING_STATUSES[policy] and not (is_skipped_by_group and policy is DependencyPolicy.SUCCESS)
    return EdgeState.MET if is_met else EdgeState.UNMEETABLE


def policies_met_by(status: Status) -> tuple[DependencyPolicy, ...]:
    return tuple(policy for policy in DependencyPolicy if edge_state(policy, status) is EdgeState.MET)


def _judge(unmet: UnmetEdge) -> Verdict:
    job = unmet.edge.predecessor if unmet.last_job is None else unmet.last_job
    name = format_job_id(job)
    if unmet.error is not None:
        cause = "whose record cannot be read" if unmet.status is Status.UNREADABLE else "which cannot be checked"
        interim = _wait_for(job, f"waiting on job {name}, {cause}: {unmet.error}")
        return Block(detail=f"scheduler data error for job dependency {name}: {unmet.error}", interim=interim)
    if unmet.status is None:
        return Block(detail=f"missing job dependency {name}")
    match edge_state(unmet.edge.policy, unmet.status, is_skipped_by_group=unmet.is_skipped_by_group):
        case EdgeState.MET:
            return PASS
        case EdgeState.OPEN:
            return _wait_for(job, f"waiting on job {name}")
        case EdgeState.UNMEETABLE:
            if unmet.edge.policy is DependencyPolicy.FAILED:
                return SkipVerdict(reason=f"not needed: {name} {unmet.status}")
            return Block(detail=f"dependency failed for job {name} ({unmet.status})")


def _wait_for(job: JobId, detail: str) -> Wait:
    return Wait(status=Status.WAITING_ON_DEPS, kind=WaitKind.DEPENDENCIES, detail=detail, on=(f"job:{job}",))


def judge_edges(edges: Sequence[UnmetEdge]) -> Verdict:
    """Return the combined verdict of all edges."""
    waiting: Verdict = PASS
    for edge in edges:
        verdict = _judge(edge)
        if isinstance(verdict, (Block, SkipVerdict)):
            return verdict
        if waiting is PASS:
            waiting = verdict
    return waiting


def find_cycle(edges: Mapping[JobId, Sequence[JobId]]) -> list[JobId] | None:
    """Return a cycle of dependencies with its first job repeated at the end, or `None` if there is none.

    `edges` maps each job of one submit to its predecessors. Jobs that are not in it are older and cannot be part of a
    cycle. The search keeps its own stack, because a chain may be ten thousand jobs long.
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
