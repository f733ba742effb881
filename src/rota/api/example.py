"""What the examples of the OpenAPI document show: the forms themselves, so that no field is made up or left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import structs

from rota.wire.job import JobForm, LockForm, RunForm, WaitForm
from rota.wire.slot import SlotForm

SUBMITTED = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
STARTED = SUBMITTED + timedelta(seconds=2)
ENDED = SUBMITTED + timedelta(minutes=4)
HOME = "/srv/story/.rota"

WAIT = WaitForm(kind="capacity", detail="waiting on pool global (1/1)", on=["pool:global"])

RUN = RunForm(
    id="run-24",
    job="job-24",
    worker="local/1",
    status="COMPLETED",
    started_at=STARTED,
    finished_at=ENDED,
    exit_code=0,
    error=None,
    artifacts=["custom:review:chapter-7"],
    log_paths={"stdout": f"{HOME}/jobs/24/stdout.log", "stderr": f"{HOME}/jobs/24/stderr.log"},
    superseded=False,
)

JOB = JobForm(
    id="job-25",
    name="chapter-7",
    type="story",
    status="QUEUED",
    command=["claude", "-p", "write chapter 7"],
    params={"chapter": 7},
    priority=0,
    position=1_772_443_800_000_000,
    created_at=SUBMITTED,
    queued_at=SUBMITTED,
    started_at=None,
    finished_at=None,
    exit_code=None,
    reason=None,
    after=[],
    needs=[],
    produces=[],
    locks=[LockForm(key="branch/main", mode="exclusive")],
    pools={"global": 1},
    pinned_head=None,
    wait=WAIT,
    waited_on=[],
    flow=None,
    phase=None,
    target=None,
    unique=None,
    group=None,
    sequence=None,
    template=None,
    schedule=None,
    work=None,
    retry_of=None,
    chain="job-25",
    attempt=1,
    permanently_failed=False,
    dispatch_failures=0,
    last_failure=None,
    not_before=None,
    cwd="/srv/story",
    worktree=None,
    pid=None,
    session_path=None,
    outcome_path=None,
    run=None,
)

SLOT = SlotForm(
    id="slot-5",
    status="COMPLETED",
    ready=False,
    name="mine",
    command=["sh", "-c", "echo hi"],
    type="story",
    flow=None,
    target=None,
    locks=[],
    pools={"global": 1},
    attended=True,
    actor="uid 1000",
    created_at=SUBMITTED,
    started_at=STARTED,
    finished_at=ENDED,
    exit_code=0,
    reason=None,
    pid=4711,
    worker="local/1",
    wait=None,
    why=None,
    log_paths={"stdout": f"{HOME}/slots/5/stdout.log", "stderr": f"{HOME}/slots/5/stderr.log"},
)

ENDED_JOB = structs.replace(
    JOB, id="job-24", name="plan", status="COMPLETED", command=["./plan.sh"], params={}, locks=[], started_at=STARTED,
    finished_at=ENDED, exit_code=0, wait=None, chain="job-24", outcome_path=f"{HOME}/jobs/24/outcome.json", run=RUN,
)  # fmt: skip

CANCELLED_JOB = structs.replace(
    JOB, status="CANCELLED", finished_at=ENDED, exit_code=143, reason="cancelled by uid 1000", wait=None
)  # fmt: skip
