"""Storage of retries, and search for chains that lack one."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.core.edges import DependencyPolicy, EdgeState, edge_state
from rota.core.event import Event
from rota.core.retry import RetryPolicy
from rota.core.status import Status
from rota.ids import GroupId, JobId
from rota.store.decoding import parse_dependency_policy
from rota.store.job_record import decode_retry_policy
from rota.store.placement import PlacementWriter
from rota.store.submit import ChainState, SubmitWriter
from rota.store.timestamp import delay_to_micros, from_micros, optional_to_micros, to_micros

_MAX_LISTED = 1000


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


class RetryWriter(SubmitWriter, PlacementWriter):
    def add_retry(
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
        (successor,) = self.allocate_job_ids(1)
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
        self.emit(Event(kind="job.retried", at=to_micros(now), cause=cause, actor=actor, job=job, data=data))
        data = {"retry_of": job, "chain": chain, "attempt": attempt, "retries": retries}
        self.emit(Event(kind="job.submitted", at=to_micros(now), cause=cause, actor=actor, job=successor, data=data))
        return successor

    def _retry_edges(self, job: JobId) -> list[dict[str, object]]:
        edges = self._db.rows("edges_of", ids=[job])
        chains = self.chain_states([job, *(JobId(predecessor) for _, predecessor, *_ in edges)]) if edges else {}
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

    def reopen_chain(self, chain: JobId) -> None:
        """Reopen the edges of waiting jobs to a chain that had ended and continues."""
        self.repair_edges()
        self._db.run("increment_unmet_of_successors", chain=chain)
        self._db.run("reopen_edges", chain=chain)

    def reset_backoff(self, job: JobId, now: datetime, actor: str | None) -> tuple[str, ...]:
        """Clear the delay and the failure counts of a waiting job. Return the names of the fields that were set."""
        ((not_before, retries, dispatch_failures),) = self._db.rows("backoff_of", job=job)
        old_values = {"not_before": not_before, "retries": retries, "dispatch_failures": dispatch_failures}
        cleared = {name: value for name, value in old_values.items() if value}
        if cleared:
            self._db.run("reset_backoff", job=job)
            at = to_micros(now)
            self.emit(Event(kind="job.backoff_reset", at=at, cause="retry", actor=actor, job=job, data=cleared))
        return tuple(cleared)

    def mark_permanently_failed(self, job: JobId) -> None:
        self._db.run("mark_permanently_failed", job=job)

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
        chains = self.chain_states([job, *(JobId(predecessor) for _, predecessor, *_ in edges)]) if edges else {}
        for _, predecessor, _, policy, _ in edges:
            state = chains.get(JobId(predecessor))
            if state is not None and _edge_state(policy, state, chains[job].group) is EdgeState.UNMEETABLE:
                return state.last, parse_dependency_policy(policy), state.status
        return None


def _edge_state(policy: str, predecessor: ChainState, group: GroupId | None) -> EdgeState:
    return edge_state(
        parse_dependency_policy(policy), predecessor.status, is_skipped_by_group=predecessor.is_dropped_for(group)
    )
