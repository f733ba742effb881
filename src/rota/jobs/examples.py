"""Examples in the OpenAPI document that several endpoints share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from rota.jobs.schemas import JobView, RunView

RUN: dict[str, Any] = {
    "id": "run-21",
    "job": "job-21",
    "worker": "local",
    "status": "COMPLETED",
    "started_at": "2026-11-16T08:20:04.101325Z",
    "finished_at": "2026-11-16T08:21:33.763984Z",
    "exit_code": 0,
    "error": None,
    "artifacts": [],
    "log_paths": {"stdout": "/srv/web/.rota/jobs/21/stdout.log", "stderr": "/srv/web/.rota/jobs/21/stderr.log"},
    "superseded": False,
}

WAITING_JOB: dict[str, Any] = {
    "id": "job-24",
    "name": "fix",
    "type": None,
    "status": "QUEUED",
    "command": ["claude", "-p", "fix the failing test"],
    "params": {},
    "priority": 5,
    "position": 24,
    "created_at": "2026-11-16T08:21:40.000213Z",
    "queued_at": "2026-11-16T08:21:40.000213Z",
    "started_at": None,
    "finished_at": None,
    "exit_code": None,
    "reason": None,
    "after": [],
    "needs": [],
    "produces": [],
    "missing_products": [],
    "locks": [],
    "pools": {"global": 1},
    "pinned_head": None,
    "wait": {"kind": "capacity", "detail": "waiting on pool global (1/1), used by job-23", "topics": ["pool:global"]},
    "waited_on": [],
    "flow": None,
    "phase": None,
    "target": None,
    "unique": None,
    "group": None,
    "sequence": None,
    "template": None,
    "schedule": None,
    "work": None,
    "retry_of": None,
    "chain": "job-24",
    "attempt": 1,
    "permanently_failed": False,
    "dispatch_failures": 0,
    "last_failure": None,
    "not_before": None,
    "cwd": "/srv/web",
    "worktree": None,
    "pid": None,
    "session_path": None,
    "outcome_path": None,
    "run": None,
    "unreadable": None,
    "policies": None,
}

ENDED_JOB: dict[str, Any] = {
    **WAITING_JOB,
    "id": "job-21",
    "name": "plan",
    "status": "COMPLETED",
    "command": ["./plan.sh"],
    "position": 21,
    "started_at": RUN["started_at"],
    "finished_at": RUN["finished_at"],
    "exit_code": 0,
    "wait": None,
    "chain": "job-21",
    "outcome_path": "/srv/web/.rota/jobs/21/outcome.json",
    "run": RUN,
    "unreadable": None,
}

CANCELLED_JOB: dict[str, Any] = {
    **WAITING_JOB,
    "status": "CANCELLED",
    "finished_at": "2026-11-16T08:22:00.512004Z",
    "exit_code": 143,
    "reason": "cancelled by rota",
    "wait": None,
}

SUBMITTED_AT = datetime(2026, 11, 16, 8, 20, tzinfo=UTC)
JOB = msgspec.convert(WAITING_JOB, JobView)
JOB_RUN = msgspec.convert(RUN, RunView)
