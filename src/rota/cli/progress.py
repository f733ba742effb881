"""Progress display of a group for `rota apply --wait`."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime

from rota.cli import table
from rota.cli.field import format_elapsed
from rota.cli.live import Canvas
from rota.cli.outcome import TIMED_OUT
from rota.cli.terminal import can_redraw, has_color, paint, print_notice, terminal_height, terminal_width
from rota.client.requests.group import get_progress
from rota.client.requests.job import TERMINAL_STATUSES
from rota.client.session import SchedulerSession
from rota.errors import escape_unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from rota.client.requests import Json

ENDED_STATUSES = ("COMPLETED", "PARTIAL", "CANCELLED")
_POLL_SECONDS = 30.0
_MAX_FAILURES_SHOWN = 20
_FAILED_STATUSES = ("FAILED", "BLOCKED_BY_DEPENDENCY", "CANCELLED")


def follow_group(session: SchedulerSession, group: str, limit: float | None) -> tuple[int, Json]:
    """Follow a group until it ends or the time limit expires. Return the exit code and the result."""
    deadline = None if limit is None else time.monotonic() + limit
    view: GroupScreenView | GroupLineView = GroupScreenView(sys.stderr) if can_redraw(sys.stderr) else GroupLineView()
    failed: dict[str, Json] = {}
    cursor: str | None = None
    while True:
        remaining = _POLL_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
        progress = session.request_json(get_progress(group, wait=min(remaining, view.period), cursor=cursor))
        cursor = progress["cursor"]
        for job in progress["ended"]:
            if job["status"] in _FAILED_STATUSES and job["retried_as"] is None:
                failed[job["id"]] = job
        view.draw(progress)
        if progress["status"] in ENDED_STATUSES and not progress["ended"]:
            break
        if progress["status"] not in ENDED_STATUSES and deadline is not None and time.monotonic() >= deadline:
            return TIMED_OUT, _final_result(progress, failed)
    _print_summary(progress, failed)
    return 0 if progress["status"] == "COMPLETED" else 1, _final_result(progress, failed)


def _final_result(progress: Json, failed: dict[str, Json]) -> Json:
    return {
        "status": progress["status"],
        "counts": progress["counts"],
        "total": progress["total"],
        "failed": list(failed.values()),
    }


def _print_summary(progress: Json, failed: dict[str, Json]) -> None:
    print_notice(f"{progress['id']} {progress['status']}: {format_counts(progress)}")
    # Failed jobs first: the blocked and cancelled ones are usually consequences.
    result = sorted(failed.values(), key=lambda job: _FAILED_STATUSES.index(job["status"]))
    for job in result[:_MAX_FAILURES_SHOWN]:
        logs = f"; see `rota logs {job['id']}`" if job["status"] == "FAILED" else f"; see `rota why {job['id']}`"
        print_notice(escape_unprintable(f"{format_end(job)}{logs}"))
    if len(result) > _MAX_FAILURES_SHOWN:
        print_notice(f"… and {len(result) - _MAX_FAILURES_SHOWN} more; `rota group show {progress['id']}` lists them")


def format_counts(progress: Json) -> str:
    return ", ".join(f"{count} {status}" for status, count in progress["counts"].items()) or "no jobs"


def format_end(job: Json) -> str:
    name = f" {job['name']}" if job["name"] else ""
    reason = f": {job['reason']}" if job["reason"] else ""
    if not reason and job["status"] == "FAILED" and job["exit_code"] is not None:
        reason = f": exit code {job['exit_code']}"
    retry = f"; retried as {job['retried_as']}" if job["retried_as"] is not None else ""
    return f"{job['id']}{name} {job['status']}{reason}{retry}"


class GroupLineView:
    """View that prints a line for each job that ends."""

    period = _POLL_SECONDS

    def draw(self, progress: Json) -> None:
        for job in progress["ended"]:
            print_notice(escape_unprintable(format_end(job)))


class GroupScreenView:
    """View with a block for the group, redrawn in place."""

    period = 1.0

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._canvas = Canvas(stream)

    def draw(self, progress: Json) -> None:
        width, room = (terminal_width(self._stream) or 80) - 1, terminal_height(self._stream) - 3
        lines = [table.fit(line, width).rstrip() for line in self._lines(progress, max(1, room))]
        lines[0] = paint(lines[0], progress["status"], color=has_color(self._stream))
        self._canvas.draw(lines)

    def _lines(self, progress: Json, max_lines: int) -> Iterable[str]:
        ended = sum(progress["counts"].get(status, 0) for status in TERMINAL_STATUSES)
        yield f"{progress['id']} {progress['status']}  {ended}/{progress['total']}  {format_counts(progress)}"
        running = progress["running"]
        now = datetime.now(UTC)
        for job in running[: max_lines - 1]:
            since = now - datetime.fromisoformat(job["started_at"])
            yield escape_unprintable(
                f"  {job['id']} {job['name'] or ''} {format_elapsed(max(0.0, since.total_seconds()))}"
            )
        hidden = progress["counts"].get("RUNNING", 0) - len(running[: max_lines - 1])
        if hidden > 0:
            yield f"  … and {hidden} more running"
