"""Stores the next job of a chain, and finds a chain that lacks one."""

from __future__ import annotations

from datetime import datetime

import msgspec

from rota.core.after import AfterPolicy, EdgeState, state_of
from rota.core.event import Event
from rota.core.retry import RetryPolicy
from rota.core.status import Status
from rota.ids import GroupId, JobId
from rota.store.moment import from_stored, maybe_to_stored, to_stored
from rota.store.record import decode_policy
from rota.store.submit import ChainState, Submitting

_MOST_NAMED = 1000


class Unretried(msgspec.Struct, frozen=True, kw_only=True):
    """A failed job that is neither the final one of its chain nor followed by another."""

    job: JobId
    chain: JobId
    retries: int
    exit_code: int
    reason: str | None
    finished_at: datetime
    stop_requested: str | None
    policy: RetryPolicy | None


class Retrying(Submitting):
    def add_retry(
        self, job: JobId, *, retries: int, not_before: datetime | None, now: datetime, cause: str,
        actor: str | None = None,
    ) -> JobId:  # fmt: skip
        """The next job of the chain that this one is the last of. It shares its spec, stands at its place in the queue,
        and asks of its predecessors' chains what they have come to by now."""
        (successor,) = self.next_job_ids(1)
        edges = self._edges_of(job)
        ((chain, attempt, precedence, position),) = self._db.rows(
            "add_retry", id=successor, job=job, retries=retries, now=to_stored(now),
            not_before=maybe_to_stored(not_before), unmet=sum(1 for edge in edges if edge["state"] != EdgeState.MET),
        )  # fmt: skip
        self._db.run("mark_retried", job=job, successor=successor)
        self._db.run_many("add_edge", [{**edge, "job": successor} for edge in edges])
        rank = {"job": successor, "precedence": precedence, "position": position, "now": to_stored(now)}
        locks = [{**rank, "key": key, "mode": mode} for _, key, mode, _ in self._db.rows("locks_of", ids=[job])]
        self._db.run_many("add_lock", locks)
        data = {"as": successor, "retries": retries, "not_before": maybe_to_stored(not_before)}
        self.emit(Event(kind="job.retried", at=to_stored(now), cause=cause, actor=actor, job=job, data=data))
        data = {"retry_of": job, "chain": chain, "attempt": attempt, "retries": retries}
        self.emit(Event(kind="job.submitted", at=to_stored(now), cause=cause, actor=actor, job=successor, data=data))
        return successor

    def _edges_of(self, job: JobId) -> list[dict[str, object]]:
        named = self._db.rows("edges_of", ids=[job])
        chains = self.chains([job, *(JobId(predecessor) for _, predecessor, *_ in named)]) if named else {}
        return [
            {
                "sequence": n,
                "predecessor": predecessor,
                "chain": chain,
                "policy": policy,
                "implied": implied,
                # A predecessor that is gone from the store was done with when the job first ran.
                "state": _state(policy, chains[predecessor], chains[job].group)
                if predecessor in chains
                else EdgeState.MET,
            }
            for n, (_, predecessor, chain, policy, implied) in enumerate(named)
        ]

    def reopen(self, chain: JobId) -> None:
        """A chain that had ended goes on: of the jobs after it, those that still wait follow it again."""
        self._db.run("count_up_successors", chain=chain)
        self._db.run("reopen_edges", chain=chain)

    def hurry(self, job: JobId, now: datetime, actor: str | None) -> tuple[str, ...]:
        """Clear the delay and the counts of a job that waits; which of them there were."""
        ((not_before, retries, dispatch_failures),) = self._db.rows("patience_of", job=job)
        had = {"not_before": not_before, "retries": retries, "dispatch_failures": dispatch_failures}
        cleared = {name: value for name, value in had.items() if value}
        if cleared:
            self._db.run("hurry", job=job)
            at = to_stored(now)
            self.emit(Event(kind="job.hurried", at=at, cause="retry", actor=actor, job=job, data=cleared))
        return tuple(cleared)

    def mark_spent(self, job: JobId) -> None:
        self._db.run("mark_spent", job=job)

    def unretried(self) -> list[Unretried]:
        """From an index that holds these only: history is not gone through."""
        return [
            Unretried(
                job=JobId(job), chain=JobId(chain), retries=retries, exit_code=1 if exit_code is None else exit_code,
                reason=reason, finished_at=from_stored(finished_at), stop_requested=stop_requested,
                policy=decode_policy(policy),
            )
            for job, chain, retries, exit_code, reason, finished_at, stop_requested, policy
            in self._db.rows("unretried")
        ]  # fmt: skip

    def blocked_by(self, chain: JobId) -> list[JobId]:
        """The jobs right after it that can no longer start because of how it ended; the first of them, if many."""
        return [JobId(job) for (job,) in self._db.rows("blocked_successors", chain=chain, limit=_MOST_NAMED)]

    def unmeetable(self, job: JobId) -> tuple[JobId, AfterPolicy, Status] | None:
        """The first of its edges that cannot be met as things stand."""
        named = self._db.rows("edges_of", ids=[job])
        chains = self.chains([job, *(JobId(predecessor) for _, predecessor, *_ in named)]) if named else {}
        for _, predecessor, _, policy, _ in named:
            state = chains.get(JobId(predecessor))
            if state is not None and _state(policy, state, chains[job].group) is EdgeState.UNMEETABLE:
                return JobId(predecessor), AfterPolicy(policy), state.status
        return None


def _state(policy: str, predecessor: ChainState, group: GroupId | None) -> EdgeState:
    return state_of(AfterPolicy(policy), predecessor.status, is_dropped=predecessor.is_dropped_for(group))
