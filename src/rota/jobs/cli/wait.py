"""`rota wait`: wait until jobs and groups have ended, and return their exit code.

Several jobs and groups are watched by one long poll for each, behind one selector. A poll returns when the status of
the job differs from the last observed one, so a change is noticed immediately and an idle queue costs nothing.
Progress is redrawn in place on a terminal, and otherwise printed as a line for each change.
"""

from __future__ import annotations

import argparse
import json
import selectors
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from rota.cli import table
from rota.cli.parser import group_not_found, is_job, job_or_group, parse_seconds
from rota.cli.rendering import duration_text, label, reason_text
from rota.cli.terminal import Canvas, has_color, paint, print_json, print_notice, terminal_height, terminal_width
from rota.client.problem import ConnectionBroken
from rota.client.requests.jobs import TERMINAL_STATUSES, get_group, get_job
from rota.client.retrying import STORE_POLL_INTERVAL, StoreOutage
from rota.client.session import SchedulerSession
from rota.client.transport import ResponseStream
from rota.errors import NotFound, StoreUnavailable, escape_unprintable
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

    from rota.client.requests import Json

ENDED_STATUSES = (*TERMINAL_STATUSES, "PARTIAL")
"""Final statuses of jobs and groups."""
_STATUS_WIDTH = len("BLOCKED_BY_DEPENDENCY")
MAX_CONNECTIONS = 64
"""Maximum number of open connections. The remaining jobs of a long list are polled when earlier ones have ended."""
_MIN_POLL_INTERVAL = 0.25
"""Minimum seconds between two polls without news, however the server treats `wait`."""
TIMED_OUT = 124
UNKNOWN_EXIT = 125
"""Exit code for a failed job whose exit status is unknown."""
_STATUS_EXIT_CODES = {"COMPLETED": 0, "SKIPPED": 0, "CANCELLED": 143}
_SCREEN_POLL_SECONDS = 2.0
"""Seconds between two reads on a screen: wait details can change without a status change."""
_POLL_SECONDS = 30.0


def add_wait_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: the exit code of the first job that did not succeed; 124 after the timeout; 125 if the exit code"
        " of a failed job is unknown."
    )
    parser.add_argument(
        "jobs",
        nargs="+",
        metavar="JOB|GROUP",
        help="The jobs by ID, and groups by ID or name. A group returns 0 only if it is COMPLETED.",
    )
    parser.add_argument(
        "--timeout", metavar="DURATION", help="Stop waiting after DURATION and return 124. The jobs continue."
    )


def run_wait(args: argparse.Namespace) -> int:
    limit = parse_seconds(args.timeout)
    names = list(dict.fromkeys(job_or_group(text) for text in args.jobs))
    session = SchedulerSession(find_home(args.home))
    deadline = None if limit is None else time.monotonic() + limit
    jobs = {}
    for name in names:
        if is_job(name):
            # With `wait`, the response for a retried job is the last job of its chain, whose end counts.
            jobs[name] = session.request_json(get_job(name, wait=0))
        else:
            try:
                group = session.request_json(get_group(name))
            except NotFound as error:
                raise group_not_found(name, error) from None
            jobs[group["id"]] = group
    view = JobScreenView(sys.stderr) if sys.stderr.isatty() else JobLineView()
    with StatusWatch(
        session, jobs, poll_seconds=_SCREEN_POLL_SECONDS if isinstance(view, JobScreenView) else _POLL_SECONDS
    ) as watch:
        unfinished_names = _wait_until_ended(watch, view, deadline)
    view.close()
    if unfinished_names:
        unfinished = ", ".join(attempt_name(name, jobs[name]) for name in unfinished_names)
        print_notice(f"stopped waiting after {args.timeout}; not ended: {unfinished}")
    if args.json:
        groups = [job for name, job in jobs.items() if not is_job(name)]
        single_jobs = [job for name, job in jobs.items() if is_job(name)]
        print_json({"jobs": single_jobs, "groups": groups} if groups else {"jobs": single_jobs})
    return TIMED_OUT if unfinished_names else first_failure(jobs.values())


def _wait_until_ended(watch: StatusWatch, view: JobLineView | JobScreenView, deadline: float | None) -> list[str]:
    """Wait until all jobs have ended or the deadline has passed. Return the jobs that have not ended."""
    view.draw(watch.jobs)
    while unfinished := watch.unfinished:
        remaining = view.period if deadline is None else deadline - time.monotonic()
        if remaining <= 0:
            return unfinished
        watch.wait_for_changes(min(remaining, view.period))
        view.draw(watch.jobs)
    return []


def wait_for_end(session: SchedulerSession, job: str) -> Json:
    """Wait without a limit until a job has ended, and return the job."""
    while True:
        response: Json = session.request_json(get_job(job, wait=30))
        if response["status"] in TERMINAL_STATUSES:
            return response


class StatusWatch:
    """Watch of several jobs and groups."""

    def __init__(self, session: SchedulerSession, jobs: dict[str, Json], *, poll_seconds: float) -> None:
        self.jobs = jobs
        """Latest state of each job, by requested ID."""
        self._session = session
        self._poll_seconds = poll_seconds
        self._selector = selectors.DefaultSelector()
        self._streams: dict[str, tuple[ResponseStream, list[bytes]]] = {}
        self._not_before: dict[str, float] = {}
        self._outage = StoreOutage()

    @property
    def unfinished(self) -> list[str]:
        return [name for name, job in self.jobs.items() if job["status"] not in ENDED_STATUSES]

    def wait_for_changes(self, timeout: float) -> None:
        """Wait for a change, at most `timeout` seconds."""
        now = time.monotonic()
        wake_at = now + timeout
        for name in self.unfinished[:MAX_CONNECTIONS]:
            due = self._not_before.get(name, 0.0)
            if due > now:
                wake_at = min(wake_at, due)
            elif name not in self._streams:
                self._open_poll(name, now)
        for key, _ in self._selector.select(max(0.0, wake_at - now)):
            self._receive(key.data)

    def _open_poll(self, name: str, now: float) -> None:
        if not is_job(name):  # only its end matters, not that of each member
            request = get_group(name, wait=self._poll_seconds)
        else:
            request = get_job(name, wait=self._poll_seconds, last_seen=self.jobs[name]["status"])
        stream = self._session.open_stream(request)
        self._streams[name] = (stream, [])
        self._not_before[name] = now + _MIN_POLL_INTERVAL
        self._selector.register(stream, selectors.EVENT_READ, name)

    def _receive(self, name: str) -> None:
        stream, parts = self._streams[name]
        try:
            parts.append(stream.receive())
            if not stream.is_finished:
                return
            job = json.loads(b"".join(parts))
            self._outage.end()
        except ConnectionBroken:
            job = None  # polled again in the next step, after the scheduler has restarted
        except StoreUnavailable as error:
            self._outage.raise_if_too_long(error)
            self._not_before[name], job = time.monotonic() + STORE_POLL_INTERVAL, None
        self._close_poll(name)
        if job is not None:
            if job["status"] != self.jobs[name]["status"]:
                del self._not_before[name]
            self.jobs[name] = job

    def _close_poll(self, name: str) -> None:
        stream, _ = self._streams.pop(name)
        self._selector.unregister(stream)
        stream.close()

    def close(self) -> None:
        for name in list(self._streams):
            self._close_poll(name)
        self._selector.close()

    def __enter__(self) -> StatusWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def attempt_name(requested: str, job: Json) -> str:
    """Return the displayed name of a job. After a retry, the shown job differs from the requested one."""
    return requested if job["id"] == requested else f"{job['id']} (retry of {requested})"


class JobLineView:
    """View that prints a line for each new status, and no line twice."""

    period = 3600.0

    def __init__(self) -> None:
        self._last_state: dict[str, tuple[str, str]] = {}
        self._printed: set[str] = set()

    def draw(self, jobs: Mapping[str, Json]) -> None:
        for name, job in jobs.items():
            if self._last_state.get(name) == (job["id"], job["status"]):
                continue
            self._last_state[name] = (job["id"], job["status"])
            note = reason_text(job)
            text = f"{attempt_name(name, job)} {job['status']} {label(job)}"
            line = escape_unprintable(f"{text}: {note}" if note else text)
            if line not in self._printed:  # while the home cannot be used, one start after another fails
                self._printed.add(line)
                print_notice(line)

    def close(self) -> None:
        """Do nothing: there is nothing to clear."""


class JobScreenView:
    """View with a line for each job, redrawn in place."""

    period = 1.0

    def __init__(self, stream: TextIO, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._stream = stream
        self._clock = clock
        self._canvas = Canvas(stream)

    def draw(self, jobs: Mapping[str, Json]) -> None:
        self._canvas.draw(self._lines(jobs))

    def _lines(self, jobs: Mapping[str, Json]) -> list[str]:
        width, room = (terminal_width(self._stream) or 80) - 1, terminal_height(self._stream) - 2
        shown = list(jobs.items())
        if len(shown) > room:
            # Ended jobs give way to the others: they do not change any more.
            shown.sort(key=lambda item: item[1]["status"] in ENDED_STATUSES)
        lines = [self._line(name, job, width) for name, job in shown[:room]]
        hidden = len(shown) - len(lines)
        return [*lines, f"… and {hidden} more"] if hidden else lines

    def _line(self, name: str, job: Json, width: int) -> str:
        status = job["status"]
        rest = f"{duration_text(job, self._clock()):>6}  {label(job)}"
        note = reason_text(job)
        text = escape_unprintable(f"{rest}  {note}" if note else rest)
        head = f"{attempt_name(name, job):<8} "
        room = max(8, width - len(head) - _STATUS_WIDTH - 1)
        body = text if table.display_width(text) <= room else table.fit(text, room)
        return f"{head}{paint(f'{status:<{_STATUS_WIDTH}}', status, color=has_color(self._stream))} {body}"

    def close(self) -> None:
        self._stream.flush()


def exit_code(job: Json) -> int:
    """Return the exit code of the job, or the code of its status. Groups have no exit code of their own."""
    code = job.get("exit_code")
    if code is not None:
        return int(code)
    if "exit_code" in job and job["status"] == "FAILED":
        return UNKNOWN_EXIT
    return _STATUS_EXIT_CODES.get(job["status"], 1)


def first_failure(jobs: Iterable[Json]) -> int:
    """Return the first exit code that is not 0, in the order of the jobs."""
    return next((code for code in map(exit_code, jobs) if code), 0)


def warn_if_ended(job: Json) -> None:
    """Warn about a new job that has ended before it could start."""
    if job["status"] in TERMINAL_STATUSES:
        print_notice(
            f"warning: ended at once, without a run: {job['id']} {job['status']}: {job['reason']};"
            f" resolve that, then `rota rewind {job['id']}` queues it again"
        )
