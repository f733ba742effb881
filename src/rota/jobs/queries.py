"""Jobs as the API shows them, with the reason for the wait of each; their runs, and the queue."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime
from pathlib import Path

import msgspec

from rota.db.jobs import NewJob
from rota.db.runs import ENDED_STATUSES
from rota.db.session import AnyReader, Reader
from rota.engine.dispatch import plan_starts, plan_tick
from rota.engine.transaction import Transaction
from rota.errors import NotFound
from rota.ids import JobId, LaneId, RunId, format_job_id, format_run_id
from rota.job_files import read_session_path, read_worktree_path, run_directory
from rota.jobs.policies import effective_policies
from rota.jobs.result_schemas import QueuedJob
from rota.jobs.schemas import JobView, RunView, render_job, render_run, render_wait
from rota.kernel.artifacts import Observations
from rota.kernel.backpressure import QueueLimits
from rota.kernel.breaker import BreakerPolicy, breaker_keys
from rota.kernel.gates import READY_JOB_GATES, Candidate, GateContext, first_verdict
from rota.kernel.holds import NO_HOLDS, Holds, format_time, scopes_of
from rota.kernel.job import Job
from rota.kernel.locks import LockBoard
from rota.kernel.pacing import StartOutlook
from rota.kernel.pools import PoolBoard, PoolSizes
from rota.kernel.queue import FIRST_RANK, Rank
from rota.kernel.run import Run
from rota.kernel.status import WAITING, Status
from rota.kernel.verdict import PASS, Block, Pass, Undecided, Verdict, Wait, WaitKind

_LOOKAHEAD_SIZES = (32, 256)
"""Numbers of jobs that a view plans first. It plans more only if the shown jobs are not among them."""
RUN_STATUSES = (Status.RUNNING, *ENDED_STATUSES, Status.UNREADABLE)
"""Statuses of runs."""
MAX_RUN_ID = 2**62
FRONT_RANK = Rank._make(FIRST_RANK)


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
        case Undecided() | Block():
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


def show_job(reader: AnyReader, job: JobId, context: ViewContext) -> JobView:
    return render_jobs(reader, [find_job(reader, job)], context)[0]


def show_job_with_policies(reader: AnyReader, job: JobId, context: ViewContext) -> JobView:
    record = find_job(reader, job)
    return add_policies(reader, render_jobs(reader, [record], context)[0], record, context)


def add_policies(reader: AnyReader, job_view: JobView, job: Job, context: ViewContext) -> JobView:
    """Return the rendered job with its policies."""
    needs = reader.artifacts.needs_of([job.chain]).get(job.chain, ()) if job.spec.needs else ()
    policies = effective_policies(job, needs, limits=context.limits, breaker=context.breaker_policy)
    return msgspec.structs.replace(job_view, policies=policies)


def list_runs(
    reader: AnyReader,
    context: ViewContext,
    *,
    statuses: Collection[Status] = RUN_STATUSES,
    before_id: int = MAX_RUN_ID,
    limit: int,
    job: JobId | None = None,
    worker: str | None = None,
) -> tuple[list[RunView], str | None]:
    """Return runs, newest first, and the last id if there are more."""
    if job is not None:
        find_job(reader, job)
    rows = reader.runs.list_latest(statuses=statuses, before_id=before_id, limit=limit + 1, job=job, worker=worker)
    runs = [_render_run(row.run, row.rewound_run, context, is_superseded=row.is_superseded) for row in rows[:limit]]
    return runs, runs[-1].id if len(rows) > limit else None


def show_run(reader: AnyReader, run: RunId, context: ViewContext) -> RunView:
    job, name = reader.runs.job_of(run), format_run_id(run)
    if job is None:
        raise NotFound(f"no such run: {name}; `rota list --all` shows the jobs, `rota show JOB` a job's runs")
    runs, _ = list_runs(reader, context, job=job, before_id=run + 1, limit=1)
    return runs[0]


def _render_run(run: Run, last_rewound_run: RunId | None, context: ViewContext, *, is_superseded: bool) -> RunView:
    return render_run(
        run,
        _run_directory(last_rewound_run, run.id, f"{context.jobs_directory}/{run.job}"),
        is_superseded=is_superseded,
    )


def find_run_directory(job: Job, run: RunId | None, directory: str) -> str:
    """Return the directory with the logs of a run, or of the current run for `None`."""
    return _run_directory(job.rewound_run, run, directory)


def _run_directory(last_rewound_run: RunId | None, run: RunId | None, directory: str) -> str:
    is_past = run is not None and last_rewound_run is not None and run <= last_rewound_run
    return run_directory(directory, run) if run is not None and is_past else directory


def check_run_of_job(reader: AnyReader, job: JobId, run: RunId) -> None:
    if reader.runs.job_of(run) != job:
        name = format_job_id(job)
        raise NotFound(f"{format_run_id(run)} is not a run of {name}; `rota show {name}` lists its runs")


class QueueSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the queue."""

    jobs: list[QueuedJob]
    last: Rank | None
    """Rank after which the next page starts; `None` on the last page."""


def list_queue(reader: Reader, context: ViewContext, *, after: Rank = FRONT_RANK, limit: int) -> QueueSlice:
    ranks = reader.queue.waiting_ranks(after, limit + 1)
    page = ranks[:limit]
    jobs = reader.jobs.find_all([rank.job for rank in page])
    waits = explain_waits(reader, jobs, context)
    queued: list[QueuedJob] = []
    place, precedence = 0, None
    for job in jobs:
        rank = page[len(queued)]
        place = place + 1 if rank.precedence == precedence else reader.queue.place_of(rank)
        precedence, wait = rank.precedence, waits.get(job.id)
        queued.append(
            QueuedJob(
                id=format_job_id(job.id),
                name=job.spec.name,
                status=job.status.public.value,
                priority=job.priority,
                position=job.position,
                place=place,
                wait=None if wait is None else render_wait(wait),
            )
        )
    return QueueSlice(jobs=queued, last=page[-1] if len(ranks) > limit else None)


def show_job_with_place(reader: AnyReader, job: JobId, context: ViewContext) -> tuple[JobView, int | None]:
    """Return the job, and its place while it waits."""
    queued = reader.queue.ranks([job]).get(job)
    place = reader.queue.place_of(queued.rank) if queued is not None and queued.status in WAITING else None
    return show_job(reader, job, context), place
