"""What jobs write."""

from __future__ import annotations

from rota.client.ask import Ask, query, quote

PIECE = 1 << 20
"""Bytes of a log asked for at a time, so that no log is ever in memory whole."""


def get_logs(job: str, *, run: str | None = None) -> Ask:
    """Path and size of each stream, of the job as it is now or of one of its runs."""
    return Ask("GET", f"/api/jobs/{quote(job)}/logs{query(('run', run))}")


def get_log(
    job: str, stream: str = "stdout", *, offset: int = 0, limit: int | None = None, run: str | None = None
) -> Ask:
    """A part of `stdout` or `stderr`, as bytes. A negative offset counts from the end."""
    asked = query(("offset", offset), ("limit", limit), ("run", run))
    return Ask("GET", f"/api/jobs/{quote(job)}/logs/{quote(stream)}{asked}")


def follow_log(job: str, stream: str = "stdout", *, offset: int = 0) -> Ask:
    """The log from `offset` to the job's end, as it is written."""
    asked = query(("offset", offset), ("follow", True))
    return Ask("GET", f"/api/jobs/{quote(job)}/logs/{quote(stream)}{asked}", patience=None)
