"""Runs: what a rewind leaves behind, and what a retry begins from."""

from __future__ import annotations

from rota.client.ask import Ask, new_key, quote


def list_runs(job: str) -> Ask:
    """All runs of a job, the newest first."""
    return Ask("GET", f"/api/jobs/{quote(job)}/runs")


def get_run(run: str) -> Ask:
    """One run."""
    return Ask("GET", f"/api/job-runs/{quote(run)}")


def retry_run(run: str, *, key: str | None = None) -> Ask:
    """Try a chain that has failed again, as a new job. A job's id does as well: one that never ran has no run."""
    return Ask("POST", f"/api/job-runs/{quote(run)}/retry", key=key or new_key())
