"""Requests for logs."""

from __future__ import annotations

from rota.client.requests import Request, build_query, quote

CHUNK_BYTES = 1 << 20
"""Size of the parts in which a log is read, so that no log is in memory as a whole."""


def get_logs(job: str, *, run: str | None = None) -> Request:
    """Return the path and size of each log of a job, or of one of its runs."""
    return Request("GET", f"/api/jobs/{quote(job)}/logs{build_query(('run', run))}")


def get_log(
    job: str, stream: str = "stdout", *, offset: int = 0, limit: int | None = None, run: str | None = None
) -> Request:
    """Return a part of `stdout` or `stderr`, as bytes. A negative offset counts from the end."""
    query = build_query(("offset", offset), ("limit", limit), ("run", run))
    return Request("GET", f"/api/jobs/{quote(job)}/logs/{quote(stream)}{query}")


def follow_log(job: str, stream: str = "stdout", *, offset: int = 0) -> Request:
    """Stream the log from `offset` until the job ends."""
    query = build_query(("offset", offset), ("follow", True))
    return Request("GET", f"/api/jobs/{quote(job)}/logs/{quote(stream)}{query}", timeout=None)
