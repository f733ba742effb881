"""Requests for runs and retries."""

from __future__ import annotations

from collections.abc import Sequence

from rota.client.requests import Request, build_query, quote
from rota.client.requests.arguments import as_idempotency_key, as_list


def list_runs(
    *,
    job: str | None = None,
    status: Sequence[str] = (),
    worker: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Request:
    """List runs of all jobs, newest first."""
    query = build_query(
        ("job", job), ("status", as_list("status", status)), ("worker", worker), ("limit", limit), ("cursor", cursor)
    )
    return Request("GET", f"/api/job-runs{query}")


def list_runs_of_job(job: str, *, limit: int | None = None, cursor: str | None = None) -> Request:
    """List runs of a job, newest first."""
    return Request("GET", f"/api/jobs/{quote(job)}/runs{build_query(('limit', limit), ('cursor', cursor))}")


def get_run(run: str) -> Request:
    """Return a run."""
    return Request("GET", f"/api/job-runs/{quote(run)}")


def retry_run(run: str, *, key: str | None = None) -> Request:
    """Retry a failed chain as a new job. Takes the id of a run or of a job, because a job that never started has no
    run."""
    return Request("POST", f"/api/job-runs/{quote(run)}/retry", key=as_idempotency_key(key))
