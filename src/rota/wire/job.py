"""A job and its run as JSON: API, `--json`, webhooks and the files in the home say the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.core.after import Edge
from rota.core.job import Job
from rota.core.lock import Lock
from rota.core.retry import show_progress
from rota.core.run import Run
from rota.core.status import TERMINAL, Status
from rota.core.verdict import Wait
from rota.core.wait import WaitKind
from rota.ids import show_group, show_job, show_run, show_schedule, show_template

JobStatus = Annotated[
    str, Meta(extra_json_schema={"enum": [status.value for status in Status if status is status.shown]})
]
RunStatus = Annotated[str, Meta(extra_json_schema={"enum": ["COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]})]


class EdgeForm(msgspec.Struct, frozen=True, kw_only=True):
    """A predecessor, and what has to have become of it: `success`, `finished` or `failed`."""

    job: str
    policy: str


class LockForm(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    mode: str
    """`shared` or `exclusive`."""


class PinForm(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that a branch has to be at."""

    branch: str
    oid: str


class WaitForm(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job has not started."""

    kind: str
    detail: str
    on: list[str]
    """The topics that would wake it."""


class RunForm(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    job: str
    worker: str
    status: RunStatus | None
    started_at: datetime
    finished_at: datetime | None
    exit_code: int | None
    error: str | None
    artifacts: list[str]
    log_paths: dict[str, str]
    superseded: bool


class JobForm(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None
    type: str | None
    status: JobStatus
    command: Sequence[str]
    params: Mapping[str, Any]
    priority: int
    position: int
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    reason: str | None
    after: list[EdgeForm]
    needs: list[str]
    produces: list[str]
    locks: list[LockForm]
    pools: Mapping[str, int]
    pinned_head: PinForm | None
    wait: WaitForm | None
    waited_on: list[str]
    flow: str | None
    phase: str | None
    target: str | None
    unique: str | None
    group: str | None
    sequence: int | None
    template: str | None
    schedule: str | None
    work: str | None
    retry_of: str | None
    chain: str
    attempt: int
    permanently_failed: bool
    dispatch_failures: int
    last_failure: str | None
    not_before: datetime | None
    cwd: str
    worktree: str | None
    pid: int | None
    session_path: str | None
    outcome_path: str | None
    run: RunForm | None


class JobsForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs."""

    jobs: list[JobForm]
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""
    counts: Mapping[str, int]
    """How many there are of each status, of all jobs."""


class WhyForm(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    status: JobStatus
    wait: WaitForm | None
    text: str
    """The whole reason in words, a line for each job further up that this one hangs on."""
    warnings: list[str]


def _wait(job: Job, wait: Wait | None) -> WaitForm | None:
    """A blocked job keeps its text; a job that started or ended otherwise waits for nothing."""
    if job.status is Status.BLOCKED_BY_DEPENDENCY:
        return WaitForm(kind=WaitKind.DEPENDENCIES.value, detail=job.reason or "", on=[])
    if wait is None or job.status in TERMINAL:
        return None
    return wait_form(wait)


def wait_form(wait: Wait) -> WaitForm:
    return WaitForm(kind=wait.kind.value, detail=wait.detail, on=list(wait.on))


def _reason(job: Job) -> str | None:
    """Why it ended as it did; while a retry is active, which one it is."""
    return job.reason if job.status in TERMINAL else job.reason or show_progress(job.spec.retry, job.retries)


def _edge(edge: Edge) -> EdgeForm:
    return EdgeForm(job=show_job(edge.predecessor), policy=edge.policy.value)


def lock_form(lock: Lock) -> LockForm:
    return LockForm(key=lock.key, mode=lock.mode.value)


def run_form(run: Run, directory: str, *, superseded: bool = False) -> RunForm:
    """`directory` is where its logs are."""
    return RunForm(
        id=show_run(run.id),
        job=show_job(run.job),
        worker=run.worker,
        status=None if run.status is None else run.status.value,
        started_at=run.started_at,
        finished_at=run.finished_at,
        exit_code=run.exit_code,
        error=run.error,
        artifacts=list(run.artifacts),
        log_paths={stream: f"{directory}/{stream}.log" for stream in ("stdout", "stderr")},
        superseded=superseded,
    )


def job_form(
    job: Job, jobs: Path, *, wait: Wait | None = None, session_path: str | None = None, worktree: str | None = None
) -> JobForm:
    """`jobs` is the home's directory of jobs' files."""
    spec, run, directory = job.spec, job.current_run, f"{jobs}/{job.id}"
    return JobForm(
        id=show_job(job.id),
        name=spec.name,
        type=spec.type,
        status=job.status.shown.value,
        command=spec.command,
        params=spec.params,
        priority=job.priority,
        position=job.position,
        created_at=job.created_at,
        queued_at=job.queued_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        exit_code=job.exit_code,
        reason=_reason(job),
        after=[_edge(edge) for edge in job.after],
        needs=list(spec.needs),
        produces=list(spec.produces),
        locks=[lock_form(lock) for lock in spec.locks],
        pools=job.draws,
        pinned_head=None if spec.pinned_head is None else PinForm(**msgspec.structs.asdict(spec.pinned_head)),
        wait=_wait(job, wait),
        waited_on=[kind.value for kind in job.waited_on],
        flow=spec.flow,
        phase=spec.phase,
        target=spec.target,
        unique=job.unique,
        group=None if job.group is None else show_group(job.group),
        sequence=job.sequence,
        template=None if spec.template is None else show_template(spec.template),
        schedule=None if spec.schedule is None else show_schedule(spec.schedule),
        work=None,
        retry_of=None if job.retry_of is None else show_job(job.retry_of),
        chain=show_job(job.chain),
        attempt=job.attempt,
        permanently_failed=job.permanently_failed,
        dispatch_failures=job.dispatch_failures,
        last_failure=job.last_failure,
        not_before=job.not_before,
        cwd=spec.cwd,
        worktree=worktree,
        pid=job.pid,
        session_path=session_path,
        outcome_path=f"{directory}/outcome.json" if run is not None and job.status in TERMINAL else None,
        run=None if run is None else run_form(run, directory),
    )
