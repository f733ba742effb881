"""What `rota apply --wait` shows of a group until it is over."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime

from rota.cli import table
from rota.cli.field import elapsed
from rota.cli.live import Canvas
from rota.cli.outcome import TIMED_OUT
from rota.cli.terminal import has_colour, height_of, paint, talk, width_of
from rota.client.ask.group import get_progress
from rota.client.ask.job import TERMINAL
from rota.client.session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

    from rota.client.ask import Json

OVER = ("COMPLETED", "PARTIAL", "CANCELLED")
_POLL = 30.0
_MOST_SHOWN = 20
_FAILED = ("FAILED", "BLOCKED_BY_DEPENDENCY", "CANCELLED")


def follow(session: Session, group: str, limit: float | None) -> tuple[int, Json]:
    """Until it is over or the time is up: the exit code, and what became of it."""
    deadline = None if limit is None else time.monotonic() + limit
    screen = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    view: Screen | Lines = Screen(sys.stderr) if screen else Lines()
    failed: dict[str, Json] = {}
    seen: str | None = None
    while True:
        left = _POLL if deadline is None else max(0.0, deadline - time.monotonic())
        form = session.ask(get_progress(group, wait=min(left, view.period), seen=seen))
        seen = form["seen"]
        for job in form["ended"]:
            if job["status"] in _FAILED and job["retried_as"] is None:
                failed[job["id"]] = job
        view.draw(form)
        if form["status"] in OVER and not form["ended"]:
            break
        if form["status"] not in OVER and deadline is not None and time.monotonic() >= deadline:
            return TIMED_OUT, _end(form, failed)
    _sum_up(form, failed)
    return 0 if form["status"] == "COMPLETED" else 1, _end(form, failed)


def _end(form: Json, failed: dict[str, Json]) -> Json:
    return {
        "status": form["status"], "counts": form["counts"], "total": form["total"], "failed": list(failed.values()),
    }  # fmt: skip


def _sum_up(form: Json, failed: dict[str, Json]) -> None:
    talk(f"{form['id']} {form['status']}: {counts(form)}")
    # What was cancelled or blocked because of another comes behind that.
    told = sorted(failed.values(), key=lambda job: _FAILED.index(job["status"]))
    for job in told[:_MOST_SHOWN]:
        logs = f"; see `rota logs {job['id']}`" if job["status"] == "FAILED" else f"; see `rota why {job['id']}`"
        talk(table.printable(f"{ending(job)}{logs}"))
    if len(told) > _MOST_SHOWN:
        talk(f"… and {len(told) - _MOST_SHOWN} more; `rota group show {form['id']}` has them")


def counts(form: Json) -> str:
    return ", ".join(f"{count} {status}" for status, count in form["counts"].items()) or "nothing in it"


def ending(job: Json) -> str:
    name = f" {job['name']}" if job["name"] else ""
    reason = f": {job['reason']}" if job["reason"] else ""
    if not reason and job["status"] == "FAILED" and job["exit_code"] is not None:
        reason = f": exit code {job['exit_code']}"
    again = f"; tried again as {job['retried_as']}" if job["retried_as"] is not None else ""
    return f"{job['id']}{name} {job['status']}{reason}{again}"


class Lines:
    """One line for each end."""

    period = _POLL

    def draw(self, form: Json) -> None:
        for job in form["ended"]:
            talk(table.printable(ending(job)))


class Screen:
    """One block, redrawn where it stands."""

    period = 1.0

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._canvas = Canvas(stream)

    def draw(self, form: Json) -> None:
        width, room = (width_of(self._stream) or 80) - 1, height_of(self._stream) - 3
        lines = [table.fit(line, width).rstrip() for line in self._lines(form, max(1, room))]
        lines[0] = paint(lines[0], form["status"], colour=has_colour(self._stream))
        self._canvas.draw(lines)

    def _lines(self, form: Json, room: int) -> Iterable[str]:
        ended = sum(form["counts"].get(status, 0) for status in TERMINAL)
        yield f"{form['id']} {form['status']}  {ended}/{form['total']}  {counts(form)}"
        running = form["running"]
        now = datetime.now(UTC)
        for job in running[: room - 1]:
            since = now - datetime.fromisoformat(job["started_at"])
            yield table.printable(f"  {job['id']} {job['name'] or ''} {elapsed(max(0.0, since.total_seconds()))}")
        hidden = form["counts"].get("RUNNING", 0) - len(running[: room - 1])
        if hidden > 0:
            yield f"  … and {hidden} more that run"
