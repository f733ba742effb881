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
    """The predecessor's id; of a chain, its first job's."""
    policy: str
    """`success`, `finished` or `failed`."""


class LockForm(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that a job has while it runs."""

    key: str
    """What is locked: any text that those who share it agree on."""
    mode: str
    """`shared` or `exclusive`."""


class PinForm(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that a branch has to be at."""

    branch: str
    """Of the repository around the job's working directory."""
    oid: str
    """The commit's id."""


class WaitForm(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job has not started."""

    kind: str
    """Which gate holds it."""
    detail: str
    """What it waits for, in words."""
    on: list[str]
    """The topics that would wake it."""


class RunForm(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one start of a job."""

    id: str
    job: str
    """The job that was run."""
    worker: str
    """Who ran it."""
    status: RunStatus | None
    """How it ended; null while it runs."""
    started_at: datetime
    """When it was claimed."""
    finished_at: datetime | None
    """When all of its processes were gone."""
    exit_code: int | None
    """128+n for one that was killed by signal n, 124 for one that timed out, 143 for one that was cancelled."""
    error: str | None
    """Why it failed, and the end of what it wrote to stderr."""
    artifacts: list[str]
    """What it has put with `rota artifact put`."""
    log_paths: dict[str, str]
    """Where `stdout` and `stderr` are on the scheduler's machine."""
    superseded: bool
    """Whether the job was rewound or run again since."""


class JobForm(msgspec.Struct, frozen=True, kw_only=True):
    """A job: what was asked for, and what has become of it."""

    id: str
    name: str | None
    """What people call it; many jobs may have the same."""
    type: str | None
    """What kind of work it is: pools and breakers go by it."""
    status: JobStatus
    """Where it stands."""
    command: Sequence[str]
    """The program and its arguments; no shell is involved unless it names one."""
    params: Mapping[str, Any]
    """Whatever was given with it, for its template and for those who read it."""
    priority: int
    """Higher goes first."""
    position: int
    """Its place in the queue among those of the same priority; lower goes first."""
    created_at: datetime
    queued_at: datetime | None
    """When it last came into the queue."""
    started_at: datetime | None
    """When its run was claimed."""
    finished_at: datetime | None
    """When it ended; null while it is active."""
    exit_code: int | None
    """That of its run; null if there is none or it goes on."""
    reason: str | None
    """Why it ended as it did, or which retry it is."""
    after: list[EdgeForm]
    """The jobs that it comes after."""
    needs: list[str]
    """Artifacts that have to be there before it starts."""
    produces: list[str]
    """Artifacts that it is to make."""
    locks: list[LockForm]
    """What it locks while it runs."""
    pools: Mapping[str, int]
    """What it takes from which pools while it runs."""
    pinned_head: PinForm | None
    """The commit that a branch has to be at for it to start."""
    wait: WaitForm | None
    """Why it has not started; null when it has."""
    waited_on: list[str]
    """The kinds of gates that have held it up to now."""
    flow: str | None
    """The flow that it is a step of."""
    phase: str | None
    """The part of its flow in which jobs run one by one."""
    target: str | None
    """What it works on."""
    unique: str | None
    """A key that its chain has to itself as long as it is active."""
    group: str | None
    """The group that it is a member of."""
    sequence: int | None
    """Its place in its group."""
    template: str | None
    """What it was made from."""
    schedule: str | None
    """What made it."""
    work: str | None
    """The work item that it is for; always null for now."""
    retry_of: str | None
    """The job of its chain before it."""
    chain: str
    """The first job of its chain, its own id if it is that."""
    attempt: int
    """Which one of its chain it is, counted from 1."""
    permanently_failed: bool
    """It failed, and is not tried again by itself."""
    dispatch_failures: int
    """How often in a row it could not be started."""
    last_failure: str | None
    """Why it could not be started the last time."""
    not_before: datetime | None
    """It does not start earlier than this."""
    cwd: str
    """The directory that it runs in."""
    worktree: str | None
    """The git worktree of its own, if it asked for one and that is there."""
    pid: int | None
    """The process group that it runs as."""
    session_path: str | None
    """The session file that its program has reported."""
    outcome_path: str | None
    """The file with its outcome, once it has ended."""
    run: RunForm | None
    """Its run since it was submitted or last rewound; null before it starts."""


class JobsForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs."""

    jobs: list[JobForm]
    """Those that are active in queue order, then those that have ended, the latest first."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""
    counts: Mapping[str, int]
    """How many there are of each status, of all jobs."""


class WhyForm(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job has not started."""

    job: str
    """The job that was asked about."""
    status: JobStatus
    """Where it stands."""
    wait: WaitForm | None
    """The first gate that does not let it pass; null when it has started."""
    text: str
    """The whole reason in words, a line for each job further up that this one hangs on."""
    warnings: list[str]
    """What may be why it never starts."""


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
