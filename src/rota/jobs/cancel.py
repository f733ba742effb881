"""`cancel`: end a waiting job at once; stop a running job, which is CANCELLED when its process tree is gone.

The dry runs of cancel and clear show the jobs that would be cancelled, and the waiting jobs that this would end.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from rota.db.session import AnyReader
from rota.engine.finish import cancel_unreadable, cancel_waiting
from rota.engine.transaction import Transaction
from rota.errors import Conflict
from rota.executor.port import StopOrder
from rota.ids import JobId, LaneId, format_job_id
from rota.jobs.result_schemas import CancelledDependent, CancelPlan, CancelTarget, ClearPlan
from rota.kernel.edges import DependencyPolicy, Edge, EdgeState, edge_state
from rota.kernel.job import Job
from rota.kernel.queue import FIRST_RANK
from rota.kernel.status import STARTED, TERMINAL, WAITING, Status
from rota.naming import GLOBAL

_MAY_RUN = STARTED | {Status.UNREADABLE}
_PAGE_SIZE = 500
_MAX_JOB_ID = JobId(2**62)
_MAX_JOBS_WITH_DEPENDENTS = 10_000
"""A clear of more jobs lists no dependents: its question must not take seconds."""


def cancel(tx: Transaction, job: JobId, *, actor: str, only_waiting: bool = False) -> JobId:
    """Cancel the last job of the job's chain, and return it. With `only_waiting`, refuse a running job."""
    last = tx.chains.last_job(job)
    if last is None:
        raise tx.jobs.not_found(job)
    member, status = last
    reason = f"cancelled by {actor}"
    if status in WAITING:
        chain = tx.chains.states([member])[member].chain
        cancel_waiting(tx, member, chain, reason=reason, actor=actor)
    elif status is Status.UNREADABLE and tx.runs.find_open_of(member) is None:
        chain = tx.chains.states([member])[member].chain
        cancel_unreadable(tx, member, chain, reason=reason, actor=actor)
    elif status in _MAY_RUN and only_waiting:
        raise Conflict(
            f"{format_job_id(member)} is {status.public}, and this request cancels only waiting jobs;"
            f" `rota cancel {format_job_id(member)}` stops it"
        )
    elif status in _MAY_RUN:
        tx.jobs.request_stop(member, reason, tx.now, actor)
        run = tx.runs.find_open_of(member)
        if run is not None:
            tx.effects.orders.append(StopOrder(run=run.run, kill_after=tx.settings.kill_after.total_seconds()))
    elif status is not Status.CANCELLED:
        raise Conflict(f"{format_job_id(member)} has already ended ({status}); nothing was changed")
    return member


def plan_cancel(reader: AnyReader, jobs: Sequence[JobId]) -> CancelPlan:
    """Return the plan to cancel these jobs, in this order, without jobs that have ended."""
    active = _active_jobs(reader, jobs)
    return CancelPlan(jobs=[_make_target(job) for job in active], dependents=_find_dependents(reader, active))


def plan_clear(reader: AnyReader, scope: str, limit: int | None = None) -> ClearPlan:
    """Return the plan to clear this scope, with its jobs in queue order. `limit` limits the listed jobs."""
    lanes = reader.lanes.under(scope)
    total, last = reader.lanes.count_clearable(lanes)
    listed = total if limit is None else limit
    has_dependents = scope != GLOBAL and total <= _MAX_JOBS_WITH_DEPENDENTS
    active = _active_jobs(reader, _list_clearable(reader, lanes, total if has_dependents else listed))
    return ClearPlan(
        jobs=[_make_target(job) for job in active[:listed]],
        dependents=_find_dependents(reader, active) if has_dependents else [],
        total=total,
        up_to=None if last is None else format_job_id(last),
    )


def _list_clearable(reader: AnyReader, lanes: Sequence[LaneId], limit: int) -> list[JobId]:
    jobs: list[JobId] = []
    after: Sequence[int] = FIRST_RANK
    while len(jobs) < limit:
        size = min(limit - len(jobs), _PAGE_SIZE)
        page = reader.lanes.clearable_jobs(lanes, max_id=_MAX_JOB_ID, after=after, limit=size)
        jobs += [queued.rank.job for queued in page]
        if len(page) < size:
            break
        after = tuple(page[-1].rank)
    return jobs


def _active_jobs(reader: AnyReader, jobs: Sequence[JobId]) -> list[Job]:
    return [
        job
        for start in range(0, len(jobs), _PAGE_SIZE)
        for job in reader.jobs.find_all(jobs[start : start + _PAGE_SIZE])
        if job.status not in TERMINAL
    ]


def _make_target(job: Job) -> CancelTarget:
    return CancelTarget(id=format_job_id(job.id), name=_job_name(job), status=job.status.public)


def _job_name(job: Job) -> str:
    return job.spec.name or shlex.join(job.spec.command)


def _find_dependents(reader: AnyReader, cancelled: Sequence[Job]) -> list[CancelledDependent]:
    """Return the waiting jobs that would end because these jobs end CANCELLED, nearest first."""
    outcomes = {job.chain: Status.CANCELLED for job in cancelled}
    dependents: list[CancelledDependent] = []
    wave = list(outcomes)
    while wave:
        downstream = [chain for chain in reader.chains.downstream(wave) if chain not in outcomes]
        producers = _producers_by_consumer(reader, downstream)
        wave = []
        waiting = [tail.job for tail in reader.chains.tails(downstream) if tail.status in WAITING]
        for job in reader.jobs.find_all(waiting):
            outcome = _outcome(job.after, producers.get(job.chain, ()), outcomes)
            if outcome is not None:
                outcomes[job.chain] = outcome
                wave.append(job.chain)
                dependents.append(_make_dependent(job, outcome))
    return dependents


def _make_dependent(job: Job, outcome: Status) -> CancelledDependent:
    name, status = _job_name(job), job.status.public
    return CancelledDependent(id=format_job_id(job.id), name=name, status=status, outcome=outcome.public)


def _producers_by_consumer(reader: AnyReader, chains: Sequence[JobId]) -> Mapping[JobId, list[Sequence[JobId]]]:
    """Return the producers of each artifact that a chain needs, without the chain itself."""
    needs = [use for use in reader.chains.artifact_uses(chains) if not use.is_produced] if chains else []
    by_name = reader.artifacts.producers_by_name(sorted({str(use.artifact) for use in needs}))
    producers: dict[JobId, list[Sequence[JobId]]] = {}
    for use in needs:
        others = [chain for chain in by_name.get(str(use.artifact), ()) if chain != use.chain]
        producers.setdefault(use.chain, []).append(others)
    return producers


def _outcome(
    edges: Iterable[Edge], producers: Iterable[Sequence[JobId]], outcomes: Mapping[JobId, Status]
) -> Status | None:
    """Return the status in which a waiting job would end, or None if it would still wait."""
    for edge in edges:
        status = outcomes.get(edge.chain)
        if status is not None and edge_state(edge.policy, status) is EdgeState.UNMEETABLE:
            return Status.SKIPPED if edge.policy is DependencyPolicy.FAILED else Status.BLOCKED_BY_DEPENDENCY
    if any(chains and all(chain in outcomes for chain in chains) for chains in producers):
        return Status.BLOCKED_BY_DEPENDENCY
    return None
