"""JSON representations of jobs and runs, shared by the API, `--json`, webhooks and the files in the home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.ids import format_group_id, format_job_id, format_run_id, format_schedule_id, format_template_id
from rota.kernel.edges import Edge
from rota.kernel.job import Job
from rota.kernel.locks import Lock
from rota.kernel.retry import format_progress
from rota.kernel.run import Run
from rota.kernel.status import STARTED, TERMINAL, Status
from rota.kernel.verdict import Wait, WaitKind

JobStatusText = Annotated[
    str, Meta(extra_json_schema={"enum": [status.value for status in Status if status is status.public]})
]
RunStatusText = Annotated[
    str, Meta(extra_json_schema={"enum": ["COMPLETED", "FAILED", "SKIPPED", "CANCELLED", "UNREADABLE"]})
]


class Predecessor(msgspec.Struct, frozen=True, kw_only=True):
    """A job that must end first, and the outcome that it must have."""

    job: str
    """Id of the predecessor, as the submit named it. If the order of a sequential group implies the dependency: the
    first job in the chain of the previous member."""
    policy: str
    """Required outcome: `success`, `finished` or `failed`."""


class LockView(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that a job holds while it runs."""

    key: str
    """Key of the lock: any text. Jobs with the same key compete for the lock."""
    mode: str
    """Mode of the lock: `shared` or `exclusive`."""


class PinnedHeadView(msgspec.Struct, frozen=True, kw_only=True):
    """A branch and the commit that it must be at."""

    branch: str
    """Name of the branch, in the repository that contains the job's working directory."""
    oid: str
    """Id of the commit."""


class WaitReason(msgspec.Struct, frozen=True, kw_only=True):
    """The reason that a job has not started."""

    kind: str
    """Kind of the gate that holds the job, such as `capacity`."""
    detail: str
    """Description of the reason."""
    topics: list[str]
    """Names of the objects that the job waits for, such as `pool:global`. A change of one of them causes the job to be
    evaluated again."""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A single execution of a job."""

    id: str
    """Id of the run."""
    job: str
    """Id of the job that was run."""
    worker: str
    """Name of the worker that executed the run."""
    status: RunStatusText | None
    """Outcome of the run; `null` while it is active."""
    started_at: datetime
    """Time at which the run was claimed."""
    finished_at: datetime | None
    """Time at which all processes of the run had ended; `null` while it is active."""
    exit_code: int | None
    """Exit code: 128+n if the run was killed by signal n, 124 if it timed out, 143 if it was cancelled. `null` if the
    run is active or its exit code is unknown."""
    error: str | None
    """Reason for the failure, and the end of stderr; `null` if the run did not fail."""
    artifacts: list[str]
    """Artifacts that the run put with `rota artifact put`."""
    log_paths: dict[str, str]
    """Paths of `stdout` and `stderr` on the scheduler's machine."""
    superseded: bool
    """Whether the job was rewound or run again after this run."""


class EffectivePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy in force for a job."""

    name: str
    """Name of the policy, such as `retry`, `timeout`, `pool flow/review` or `lock repo`."""
    value: str
    """Description of the rule."""
    source: str
    """Source of the policy: a submit option, a template, a default of the flow or type, a configuration key, or
    built-in."""


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job: one intent to run one command once."""

    id: str
    """Id of the job."""
    name: str | None
    """Display name of the job; `null` if it has none. Several jobs can have the same name."""
    type: str | None
    """Kind of work of the job; it has a pool and a breaker."""
    status: JobStatusText
    """Status of the job."""
    command: Sequence[str]
    """Program and arguments. The command runs without a shell unless it names one."""
    params: Mapping[str, Any]
    """Parameters of the job for its template and its process."""
    priority: int
    """Priority of the job. Jobs with a higher priority start first."""
    position: int
    """Position of the job among the jobs of its priority. Lower positions start first."""
    created_at: datetime
    """Time at which the job was created."""
    queued_at: datetime | None
    """Time at which the job last entered the queue; `null` if it has not."""
    started_at: datetime | None
    """Time at which the current run was claimed; `null` before."""
    finished_at: datetime | None
    """Time at which the job ended; `null` while it is active."""
    exit_code: int | None
    """Exit code of the job. Without a run, it is 143 if the job was cancelled and 1 if it could not be started. `null`
    while the job is active, if it was blocked or skipped before it ran, or if its exit status is unknown."""
    reason: str | None
    """Reason for the outcome of the job. While a retry is active: the number of the retry."""
    after: list[Predecessor]
    """Predecessors of the job."""
    needs: list[str]
    """Artifacts that must exist before the job starts."""
    produces: list[str]
    """Artifacts that the job declares to produce."""
    missing_products: list[str]
    """Artifacts in `produces` that were missing after the job COMPLETED."""
    locks: list[LockView]
    """Locks that the job holds while it runs."""
    pools: Mapping[str, int]
    """Capacity that the job takes from each pool while it runs."""
    pinned_head: PinnedHeadView | None
    """Branch and commit required for the start; `null` if there is none."""
    wait: WaitReason | None
    """Reason that the job has not started; `null` if it has started, or if nothing holds it."""
    waited_on: list[str]
    """Kinds of the gates that have held the job so far."""
    flow: str | None
    """Flow that the job is a step of; `null` if there is none."""
    phase: str | None
    """Phase of the flow; `null` if there is none. Its jobs run one at a time, unless submitted as parallelizable."""
    target: str | None
    """Target that the job works on; `null` if there is none."""
    unique: str | None
    """Unique key of the job: only one active chain can have it. `null` if there is none."""
    group: str | None
    """Id of the group that the job is a member of; `null` if there is none."""
    sequence: int | None
    """Position of the job in its group; `null` if it is not a member of a group."""
    template: str | None
    """Id of the template that the job was created from; `null` if there is none."""
    schedule: str | None
    """Id of the schedule that created the job; `null` if there is none."""
    work: str | None
    """Reserved; always `null`."""
    retry_of: str | None
    """Id of the previous job in the chain; `null` for the first one."""
    chain: str
    """Id of the first job in the chain; the job's own id if it is the first one."""
    attempt: int
    """Number of the job in its chain, from 1."""
    permanently_failed: bool
    """Whether the job failed and is not retried automatically."""
    dispatch_failures: int
    """Number of consecutive failed starts."""
    last_failure: str | None
    """Error of the last failed start; `null` if there is none."""
    not_before: datetime | None
    """Earliest start time; `null` if there is none."""
    cwd: str
    """Working directory of the job."""
    worktree: str | None
    """Path of the job's git worktree; `null` if the job has none, or if it does not exist."""
    pid: int | None
    """Process group id of the job; `null` if it is not running."""
    session_path: str | None
    """Path of the session file that the program reported; `null` if there is none."""
    outcome_path: str | None
    """Path of the outcome file; `null` until the job has run and ended."""
    run: RunView | None
    """Current run of the job; `null` if the job has not started since it was submitted or last rewound."""
    unreadable: str | None
    """Errors in the stored record; `null` if the record is valid. A job with an invalid status is UNREADABLE."""
    policies: list[EffectivePolicy] | None = None
    """Policies in force for the job, with their sources. `null` unless a single job is shown or submitted."""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs."""

    jobs: list[JobView]
    """Running jobs, waiting jobs in queue order, then ended jobs, newest first."""
    next: str | None
    counts: Mapping[str, int] | None
    """Number of jobs of each status, regardless of the filters. Only on the first page; `null` on later pages."""
    total: int | None
    """Number of jobs on all pages; `null` unless `total` was requested."""


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs, newest first."""

    runs: list[RunView]
    """Runs, newest first."""
    next: str | None


class WaitExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """An explanation of why a job has not started."""

    job: str
    """Id of the job."""
    status: JobStatusText
    """Status of the job."""
    wait: WaitReason | None
    """First gate that holds the job; `null` if it has started, or if nothing holds it."""
    text: str
    """Complete explanation: a line for the job, and one for each blocking job upstream."""
    warnings: list[str]
    """Possible reasons why the job can never start."""


def _render_job_wait(job: Job, wait: Wait | None) -> WaitReason | None:
    """Return the wait of a job. A blocked job keeps its reason; other ended or started jobs have none."""
    if job.status is Status.BLOCKED_BY_DEPENDENCY:
        return WaitReason(kind=WaitKind.DEPENDENCIES.value, detail=job.reason or "", topics=[])
    if wait is None or job.status in TERMINAL:
        return None
    return render_wait(wait)


def render_wait(wait: Wait) -> WaitReason:
    return WaitReason(kind=wait.kind.value, detail=wait.detail, topics=list(wait.on))


def _status_reason(job: Job) -> str | None:
    """Return the reason for the outcome or, while a retry is active, its number."""
    return job.reason if job.status in TERMINAL else job.reason or format_progress(job.spec.retry, job.retries)


def _render_predecessor(edge: Edge) -> Predecessor:
    return Predecessor(job=format_job_id(edge.predecessor), policy=edge.policy.value)


def render_lock(lock: Lock) -> LockView:
    return LockView(key=lock.key, mode=lock.mode.value)


def render_run(run: Run, log_directory: str, *, is_superseded: bool = False) -> RunView:
    """Render a run whose logs are in `log_directory`."""
    return RunView(
        id=format_run_id(run.id),
        job=format_job_id(run.job),
        worker=run.worker,
        status=None if run.status is None else run.status.value,
        started_at=run.started_at,
        finished_at=run.finished_at,
        exit_code=run.exit_code,
        error=run.error,
        artifacts=list(run.artifacts),
        log_paths={stream: f"{log_directory}/{stream}.log" for stream in ("stdout", "stderr")},
        superseded=is_superseded,
    )


def render_job(
    job: Job,
    jobs_directory: Path,
    *,
    wait: Wait | None = None,
    session_path: str | None = None,
    worktree: str | None = None,
) -> JobView:
    """Render a job. `jobs_directory` is the directory with a subdirectory for each job."""
    spec, run, directory = job.spec, job.current_run, f"{jobs_directory}/{job.id}"
    return JobView(
        id=format_job_id(job.id),
        name=spec.name,
        type=spec.type,
        status=job.status.public.value,
        command=spec.command,
        params=spec.params,
        priority=job.priority,
        position=job.position,
        created_at=job.created_at,
        queued_at=job.queued_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        exit_code=job.exit_code,
        reason=_status_reason(job),
        after=[_render_predecessor(edge) for edge in job.after],
        needs=list(spec.needs),
        produces=list(spec.produces),
        missing_products=list(job.missing_products) if job.status is Status.COMPLETED else [],
        locks=[render_lock(lock) for lock in spec.locks],
        pools=job.demand,
        pinned_head=None if spec.pinned_head is None else PinnedHeadView(**msgspec.structs.asdict(spec.pinned_head)),
        wait=_render_job_wait(job, wait),
        waited_on=[kind.value for kind in job.waited_on],
        flow=spec.flow,
        phase=spec.phase,
        target=spec.target,
        unique=job.unique,
        group=None if job.group is None else format_group_id(job.group),
        sequence=job.sequence,
        template=None if spec.template is None else format_template_id(spec.template),
        schedule=None if spec.schedule is None else format_schedule_id(spec.schedule),
        work=None,
        retry_of=None if job.retry_of is None else format_job_id(job.retry_of),
        chain=format_job_id(job.chain),
        attempt=job.attempt,
        permanently_failed=job.permanently_failed,
        dispatch_failures=job.dispatch_failures,
        last_failure=job.last_failure,
        not_before=job.not_before,
        cwd=spec.cwd,
        worktree=worktree,
        pid=job.pid if job.status in STARTED else None,
        session_path=session_path,
        outcome_path=f"{directory}/outcome.json" if run is not None and job.status in TERMINAL else None,
        run=None if run is None else render_run(run, directory),
        unreadable=job.unreadable,
    )
