"""Jobs as the API shows them, with the reason for the wait of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from pathlib import Path

import msgspec

from rota.child_report import read_session_path, read_worktree_path
from rota.core.artifact import Observations
from rota.core.backpressure import QueueLimits
from rota.core.breaker import BreakerPolicy, breaker_keys
from rota.core.control import NO_HOLDS, Holds, format_time, scopes_of
from rota.core.gates import READY_JOB_GATES, Candidate, GateContext, first_verdict
from rota.core.job import Job
from rota.core.lock import LockBoard
from rota.core.pacing import StartOutlook
from rota.core.pool import PoolBoard, PoolSizes
from rota.core.queue import Rank
from rota.core.status import WAITING, Status
from rota.core.verdict import PASS, Pass, Undecided, Verdict, Wait
from rota.core.wait import WaitKind
from rota.engine.dispatch import plan_starts, plan_tick
from rota.engine.transaction import Transaction
from rota.ids import JobId, LaneId
from rota.store.job import NewJob
from rota.store.session import AnyReader
from rota.view.policies import effective_policies
from rota.wire.job import JobView, render_job

_LOOKAHEAD_SIZES = (32, 256)
"""Numbers of jobs that a view plans first. It plans more only if the shown jobs are not among them."""


class ViewContext(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of views besides the store: effective limits, the time, and paths."""

    limits: PoolSizes
    batch_size: int | None
    now: datetime
    jobs_directory: Path
    breaker_policy: BreakerPolicy = BreakerPolicy()
    hold_reason: str | None = None
    """Reason that no job starts, whatever the gates decide; `None` if there is none."""
    executor_silence: str | None = None
    """Message that the supervisor does not answer, and what to do; `None` if it answers."""
    holds: Holds = NO_HOLDS
    observations: Observations = Observations()
    start_outlook: StartOutlook = StartOutlook()
    queue_limits: QueueLimits = QueueLimits()


def explain_waits(reader: AnyReader, jobs: Sequence[Job], context: ViewContext) -> dict[JobId, Wait]:
    """Return the wait of each waiting job, as decided by the gates. Jobs that start with the next tick are not
    included."""
    waits = explain_waits_of_ids(reader, [job.id for job in jobs if job.status in WAITING], context)
    return {job.id: _with_failed_start(job, waits[job.id]) for job in jobs if job.id in waits}


def _with_failed_start(job: Job, wait: Wait) -> Wait:
    """Add the error of the last failed start to the wait for the next one."""
    if wait.kind is not WaitKind.DELAY or not job.dispatch_failures or job.not_before is None:
        return wait
    detail = f"could not be started: {job.last_failure}; next try at {format_time(job.not_before)}"
    return msgspec.structs.replace(wait, detail=detail)


def explain_waits_of_ids(reader: AnyReader, job_ids: Sequence[JobId], context: ViewContext) -> dict[JobId, Wait]:
    """Return the waits of jobs that are known to wait."""
    if not job_ids:
        return {}
    candidates = reader.queue.candidates(job_ids)
    contending = [candidate.rank.job for candidate in candidates if candidate.locks]
    # If starts are delayed, no job takes capacity ahead of the others.
    is_delayed = context.start_outlook.is_delayed(context.now)
    plan = plan_starts(reader, context.limits, 0 if is_delayed else context.batch_size, holds=context.holds)
    starting = {claim.job for claim in plan.claims}
    gate_context = GateContext(
        now=context.now,
        pauses=plan.pauses,
        locks=LockBoard(reader.locks.fronts_of(contending) if contending else {}),
        pools=plan.pools,
        observations=context.observations,
    )
    verdicts = {
        candidate.rank.job: PASS if candidate.rank.job in starting else first_verdict(candidate, gate_context)
        for candidate in candidates
    }
    if context.hold_reason is not None:
        _ignore_planned_capacity(reader, context, candidates, gate_context, verdicts)
    passing = {job for job, verdict in verdicts.items() if verdict == PASS} if is_delayed else set()
    order = _start_order(reader, context, passing) if passing else {}
    last = None if context.start_outlook.needs_tick else len(order)
    waits = {job: _wait_from_verdict(verdict, context, order.get(job, last)) for job, verdict in verdicts.items()}
    return {job: wait for job, wait in waits.items() if wait is not None}


def _ignore_planned_capacity(
    reader: AnyReader,
    context: ViewContext,
    candidates: Sequence[Candidate],
    gate_context: GateContext,
    verdicts: dict[JobId, Verdict],
) -> None:
    """Judge jobs that wait for a pool by what runs now: while everything is held, no planned job takes capacity."""
    pools = PoolBoard(context.limits, reader.queue.pool_usage()[0])
    present = msgspec.structs.replace(gate_context, pools=pools)
    for candidate in candidates:
        verdict = verdicts[candidate.rank.job]
        if isinstance(verdict, Wait) and verdict.kind is WaitKind.CAPACITY:
            verdicts[candidate.rank.job] = first_verdict(candidate, present)


def _start_order(reader: AnyReader, context: ViewContext, jobs: Set[JobId]) -> dict[JobId, int]:
    """Return the number of jobs that start before each of the jobs that start next: with the next tick, or one after
    the other. It reads only as much of the queue as is needed to find `jobs`."""
    batch = context.batch_size if context.start_outlook.needs_tick else None
    order: dict[JobId, int] = {}
    for limit in (*(size for size in _LOOKAHEAD_SIZES if batch is None or size < batch), batch):
        plan = plan_tick(reader, context.limits, limit, holds=context.holds, has_dirty_jobs=True)
        order = {claim.job: index for index, claim in enumerate(plan.claims)}
        if jobs <= order.keys() or (limit is not None and len(order) < limit):
            break
    return order


def _wait_from_verdict(verdict: Verdict, context: ViewContext, position: int | None) -> Wait | None:
    match verdict:
        case Pass():
            return hold_wait(context) or context.start_outlook.make_wait(context.now, position)
        case Wait():
            return verdict
        case Undecided():
            return verdict.interim
        case _:
            return None


def hold_wait(context: ViewContext) -> Wait | None:
    """Return the wait for a hold of everything, or `None` if there is no such hold."""
    if context.hold_reason is None:
        return None
    return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=context.hold_reason)


def find_job(reader: AnyReader, job: JobId) -> Job:
    record = reader.jobs.find(job)
    if record is None:
        raise reader.jobs.not_found(job)
    return record


def render_jobs(reader: AnyReader, jobs: Sequence[Job], context: ViewContext) -> list[JobView]:
    waits = explain_waits(reader, jobs, context)
    return [
        render_job(
            job,
            context.jobs_directory,
            wait=waits.get(job.id),
            session_path=None if job.current_run is None else read_session_path(f"{context.jobs_directory}/{job.id}"),
            worktree=None if job.spec.workspace is None else read_worktree_path(f"{context.jobs_directory}/{job.id}"),
        )
        for job in jobs
    ]


def render_stored_jobs(
    tx: Transaction, jobs: Sequence[JobId], new: Mapping[JobId, NewJob], context: ViewContext
) -> Mapping[JobId, JobView]:
    """Render jobs at the end of the turn that stored them. For most jobs the turn has all data; the others are read
    together."""
    views: dict[JobId, JobView] = {}
    plan = tx.effects.plan
    if plan is not None and context.hold_reason is None and not context.start_outlook.is_delayed(context.now):
        starting = {claim.job for claim in plan.claims}
        gate_context = GateContext(now=tx.now, pauses=plan.pauses, locks=LockBoard({}), pools=plan.pools)
        views = {
            job: _render_new_job(new[job], tx.now, gate_context, context)
            for job in jobs
            if job in new and new[job].is_ready and job not in starting
        }
    rest = tx.jobs.find_all([job for job in jobs if job not in views])
    return views | dict(zip((job.id for job in rest), render_jobs(tx, rest, context), strict=True))


def _render_new_job(new: NewJob, now: datetime, gate_context: GateContext, context: ViewContext) -> JobView:
    """Render a ready job that was stored in this turn and was not chosen to start, without a read."""
    job = new.to_job(now)
    candidate = Candidate(
        rank=Rank(-job.priority, job.position, 0, job.id),
        chain=job.chain,
        status=job.status,
        wait_kind=None,
        waited_on=(),
        is_ready=True,
        scopes=scopes_of(job.demand, job.spec.type, job.spec.flow, job.spec.target),
        breaker_keys=breaker_keys(job.spec.type, job.spec.target),
        is_contending=False,
        not_before=None,
        lane=LaneId(0),
        demand=job.demand,
        locks=(),
        edges=(),
    )
    return render_job(
        job,
        context.jobs_directory,
        wait=_wait_from_verdict(first_verdict(candidate, gate_context, READY_JOB_GATES), context, 0),
    )


def show(reader: AnyReader, job: JobId, context: ViewContext) -> JobView:
    return render_jobs(reader, [find_job(reader, job)], context)[0]


def show_with_policies(reader: AnyReader, job: JobId, context: ViewContext) -> JobView:
    record = find_job(reader, job)
    return add_policies(reader, render_jobs(reader, [record], context)[0], record, context)


def add_policies(reader: AnyReader, job_view: JobView, job: Job, context: ViewContext) -> JobView:
    """Return the rendered job with its policies."""
    needs = reader.artifacts.needs_of([job.chain]).get(job.chain, ()) if job.spec.needs else ()
    policies = effective_policies(job, needs, limits=context.limits, breaker=context.breaker_policy)
    return msgspec.structs.replace(job_view, policies=policies)
