"""Storage of chains. A chain is a job and its retries.

A retry adds a job to a chain, and a rewind returns the last job of a chain to the queue. All statements of a rewind
take lists, so a set of ten thousand chains takes as many statements as a set of two. The set includes every chain with
an edge to one of its chains or with a need for one of their products, so no other chain is affected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from rota.db.artifacts import Artifacts
from rota.db.database import Database
from rota.db.decoding import (
    decode_retry_policy,
    delay_to_micros,
    from_micros,
    optional_to_micros,
    parse_dependency_policy,
    to_micros,
)
from rota.db.edges import Edges
from rota.db.events import Events
from rota.db.ids import Ids
from rota.errors import StoreError
from rota.ids import GroupId, JobId, LaneId, RunId
from rota.kernel.artifacts import decode_artifact
from rota.kernel.edges import DependencyPolicy, EdgeState, edge_state
from rota.kernel.events import Event
from rota.kernel.retry import RetryPolicy
from rota.kernel.rewind import ArtifactUse, rewound_status
from rota.kernel.status import Status, parse_status

_MAX_LISTED = 1000


class ChainState(msgspec.Struct, frozen=True, kw_only=True):
    chain: JobId
    last: JobId
    status: Status
    unique: str | None = None
    group: GroupId | None = None
    is_dropped: bool = False

    def is_dropped_for(self, group: GroupId | None) -> bool:
        """Return whether the policy of its group ended the chain and a dependent in `group` is outside that group."""
        return self.is_dropped and self.group != group


class UnretriedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Failed job that is not final and has no retry."""

    job: JobId
    chain: JobId
    retries: int
    exit_code: int | None
    reason: str | None
    finished_at: datetime
    stop_requested: str | None
    retry_policy: RetryPolicy | None


class ChainTail(msgspec.Struct, frozen=True, kw_only=True):
    """Last job of a chain."""

    chain: JobId
    job: JobId
    status: Status
    is_ready: bool
    lane: LaneId
    unique: str | None = None
    group: GroupId | None = None
    is_dropped: bool = False
    backoff_until: datetime | None = None
    """End of the delay of a retry or of a failed start. None if the job has no delay, or one from its submit."""


class ChainRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def last_job(self, job: JobId) -> tuple[JobId, Status] | None:
        rows = self._db.rows("last_of_chain", job=job)
        return (JobId(rows[0][0]), parse_status(rows[0][1])) if rows else None

    def states(self, jobs: Sequence[JobId]) -> dict[JobId, ChainState]:
        """Return the state of the chain of each job. Jobs that do not exist are missing from the result."""
        return {
            JobId(job): ChainState(
                chain=JobId(chain),
                last=JobId(last),
                status=parse_status(status),
                unique=unique,
                group=group,
                is_dropped=bool(dropped),
            )
            for job, chain, last, status, unique, group, dropped in self._db.rows("chain_states", ids=list(jobs))
        }

    def unretried_failures(self) -> list[UnretriedFailure]:
        """Return failed jobs without a retry. Their index contains no other jobs, so this does not scan the history."""
        return [
            UnretriedFailure(
                job=JobId(job),
                chain=JobId(chain),
                retries=retries,
                exit_code=exit_code,
                reason=reason,
                finished_at=from_micros(finished_at),
                stop_requested=stop_requested,
                retry_policy=decode_retry_policy(policy),
            )
            for job, chain, retries, exit_code, reason, finished_at, stop_requested, policy in self._db.rows(
                "unretried_failures"
            )
        ]

    def blocked_successors(self, chain: JobId) -> list[JobId]:
        """Return the first direct dependents that are blocked because of how the chain ended."""
        return [JobId(job) for (job,) in self._db.rows("blocked_successors", chain=chain, limit=_MAX_LISTED)]

    def first_unmeetable_edge(self, job: JobId) -> tuple[JobId, DependencyPolicy, Status] | None:
        """Return the first edge of a job that cannot be met: the last job of the predecessor's chain, the policy and
        the status."""
        edges = self._db.rows("edges_of", ids=[job])
        chains = self.states([job, *(JobId(predecessor) for _, predecessor, *_ in edges)]) if edges else {}
        for _, predecessor, _, policy, _ in edges:
            state = chains.get(JobId(predecessor))
            if state is not None and _edge_state(policy, state, chains[job].group) is EdgeState.UNMEETABLE:
                return state.last, parse_dependency_policy(policy), state.status
        return None

    def downstream(self, chains: Sequence[JobId]) -> list[JobId]:
        """Return the chains that depend directly on these, by an edge or by a need for a product."""
        rows = [*self._db.rows("downstream_chains", chains=list(chains))]
        rows += self._db.rows("consumer_chains", chains=list(chains))
        return sorted({JobId(chain) for (chain,) in rows})

    def tails(self, chains: Sequence[JobId]) -> list[ChainTail]:
        """Return the last job of each chain that exists, in the given order."""
        tails = {
            chain: ChainTail(
                chain=JobId(chain),
                job=JobId(job),
                status=parse_status(status),
                is_ready=bool(ready),
                lane=LaneId(lane),
                unique=unique,
                group=group,
                is_dropped=bool(dropped),
                backoff_until=from_micros(not_before) if is_backoff and not_before is not None else None,
            )
            for chain, job, status, ready, lane, unique, group, dropped, not_before, is_backoff in self._db.rows(
                "chain_tails", chains=list(chains)
            )
        }
        return [tails[chain] for chain in chains if chain in tails]

    def artifact_uses(self, chains: Sequence[JobId]) -> list[ArtifactUse]:
        """Return the needs and products of these chains."""
        return [
            ArtifactUse(chain=JobId(chain), artifact=decode_artifact(name), scope=scope, is_produced=bool(is_produced))
            for chain, name, scope, is_produced in self._db.rows("artifact_uses", chains=list(chains))
        ]

    def repositories_of(self, chains: Sequence[JobId]) -> list[str]:
        rows = self._db.rows("repositories_of", chains=list(chains)) if chains else ()
        return sorted(repository for (repository,) in rows)

    def predecessor_tails(self, tail: ChainTail) -> list[ChainTail]:
        """Return the last jobs of the chains that this one depends on directly, by an edge or by a need."""
        rows = self._db.rows("upstream_chains", job=tail.job, chain=tail.chain)
        return self.tails(sorted({JobId(chain) for (chain,) in rows}))

    def statuses(self, jobs: Sequence[JobId]) -> dict[JobId, str]:
        """Return the status of the chain of each job. Jobs that retention has removed are missing from the result."""
        rows = self._db.rows("chain_states", ids=list(jobs)) if jobs else ()
        return {JobId(row[0]): parse_status(row[3]).public.value for row in rows}


class Chains(ChainRecords):
    def __init__(self, database: Database, ids: Ids, events: Events, artifacts: Artifacts, edges: Edges) -> None:
        super().__init__(database)
        self._ids = ids
        self._events = events
        self._artifacts = artifacts
        self._edges = edges

    def retry(
        self,
        job: JobId,
        *,
        retries: int,
        not_before: datetime | None,
        now: datetime,
        cause: str,
        actor: str | None = None,
    ) -> JobId:
        """Add the next job of a chain after its last job `job`. It shares the spec and the position of that job, and
        its edges are computed from the current status of each predecessor's chain."""
        (successor,) = self._ids.allocate_jobs(1)
        edges = self._retry_edges(job)
        ((chain, attempt, precedence, position),) = self._db.rows(
            "add_retry",
            id=successor,
            job=job,
            retries=retries,
            now=to_micros(now),
            not_before=optional_to_micros(not_before),
            delay=delay_to_micros(not_before, now),
            unmet_edges=sum(1 for edge in edges if edge["state"] != EdgeState.MET),
        )
        self._db.run("mark_retried", job=job, successor=successor)
        self._db.run_many("add_edge", [{**edge, "job": successor} for edge in edges])
        rank = {"job": successor, "precedence": precedence, "position": position, "now": to_micros(now)}
        locks = [{**rank, "key": key, "mode": mode} for _, key, mode, _ in self._db.rows("locks_of", ids=[job])]
        self._db.run_many("add_lock", locks)
        data = {"retried_as": successor, "retries": retries, "not_before": optional_to_micros(not_before)}
        self._events.emit(Event(kind="job.retried", at=to_micros(now), cause=cause, actor=actor, job=job, data=data))
        data = {"retry_of": job, "chain": chain, "attempt": attempt, "retries": retries}
        self._events.emit(
            Event(kind="job.submitted", at=to_micros(now), cause=cause, actor=actor, job=successor, data=data)
        )
        return successor

    def _retry_edges(self, job: JobId) -> list[dict[str, object]]:
        edges = self._db.rows("edges_of", ids=[job])
        chains = self.states([job, *(JobId(predecessor) for _, predecessor, *_ in edges)]) if edges else {}
        return [
            {
                "sequence": n,
                "predecessor": predecessor,
                "chain": chain,
                "policy": policy,
                "implied": implied,
                # A predecessor that retention removed was met when the job first ran.
                "state": _edge_state(policy, chains[predecessor], chains[job].group)
                if predecessor in chains
                else EdgeState.MET,
            }
            for n, (_, predecessor, chain, policy, implied) in enumerate(edges)
        ]

    def rewind(self, tails: Sequence[ChainTail], *, now: datetime, actor: str | None) -> Mapping[JobId, RunId]:
        """Put jobs that have not started since back into the queue. Return the last run of each job that has one."""
        chains, jobs, at = [tail.chain for tail in tails], [tail.job for tail in tails], to_micros(now)
        rows = [
            {"job": tail.job, "from_status": tail.status.value, "status": rewound_status(tail.status).value, "now": at}
            for tail in tails
        ]
        if self._db.run_many("rewind", rows) != len(rows):
            raise StoreError("a job changed while it was rewound; make sure that no second scheduler uses this store")
        self._remove_from_lanes(tails)
        self._edges.reevaluate(jobs)
        self._db.run("rewind_products", chains=chains)
        self._artifacts.wake_needing([row[0] for row in self._db.rows("withdraw_artifacts_of_chains", chains=chains)])
        for tail in tails:
            data = {"from": tail.status.value}
            self._events.emit(Event(kind="job.rewound", at=at, cause="rewind", actor=actor, job=tail.job, data=data))
        return {JobId(job): RunId(run) for job, run in self._db.rows("rewound_runs", jobs=jobs)}

    def _remove_from_lanes(self, tails: Sequence[ChainTail]) -> None:
        """Remove jobs from their lanes. They keep their place in lock queues until the next evaluation decides about
        it."""
        counts: dict[LaneId, int] = {}
        for tail in tails:
            if tail.is_ready:
                counts[tail.lane] = counts.get(tail.lane, 0) + 1
        self._db.run_many("update_ready_count", [{"lane": lane, "delta": -count} for lane, count in counts.items()])


def _edge_state(policy: str, predecessor: ChainState, group: GroupId | None) -> EdgeState:
    return edge_state(
        parse_dependency_policy(policy), predecessor.status, is_skipped_by_group=predecessor.is_dropped_for(group)
    )
