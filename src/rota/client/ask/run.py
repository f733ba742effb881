"""Runs: what a rewind leaves behind, and what a retry begins from."""

from __future__ import annotations

from collections.abc import Sequence

from rota.client.ask import Ask, query, quote
from rota.client.ask.given import key_of, listed


def list_runs(
    *, job: str | None = None, status: Sequence[str] = (), worker: str | None = None, limit: int | None = None,
    cursor: str | None = None,
) -> Ask:  # fmt: skip
    """Runs of all jobs, the newest first."""
    asked = query(
        ("job", job), ("status", listed("status", status)), ("worker", worker), ("limit", limit), ("cursor", cursor)
    )
    return Ask("GET", f"/api/job-runs{asked}")


def list_runs_of_job(job: str, *, limit: int | None = None, cursor: str | None = None) -> Ask:
    """The runs of a job, the newest first."""
    return Ask("GET", f"/api/jobs/{quote(job)}/runs{query(('limit', limit), ('cursor', cursor))}")


def get_run(run: str) -> Ask:
    """One run."""
    return Ask("GET", f"/api/job-runs/{quote(run)}")


def retry_run(run: str, *, key: str | None = None) -> Ask:
    """Try a chain that has failed again, as a new job. A job's id does as well: one that never ran has no run."""
    return Ask("POST", f"/api/job-runs/{quote(run)}/retry", key=key_of(key))
