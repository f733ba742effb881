"""`rota show` and `rota why`: the details of a job, and why it has not started or how it ended.

While the scheduler is stopped, `rota show` and `rota logs` read the files of the job. The scheduler writes `job.json`
when a job starts and when it ends; the child process writes the logs. A job that has not started has no files.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

from rota.cli import display
from rota.cli.parser import job_id
from rota.cli.rendering import earlier_run_lines, job_block, job_table
from rota.cli.terminal import has_color, print_json, print_notice, print_text, terminal_width
from rota.client.problem import NotRunning
from rota.client.requests.definitions import list_deliveries
from rota.client.requests.jobs import TERMINAL_STATUSES, explain_job, get_job, get_logs, list_runs_of_job
from rota.client.session import SchedulerSession
from rota.columns import DEFAULT_COLUMNS
from rota.errors import NotFound, escape_unprintable
from rota.home import find_home
from rota.ids import parse_job_id, parse_run_id
from rota.job_files import run_directory
from rota.jobs.cli.submit import policy_lines
from rota.webhooks.cli import delivery_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.client.requests import Json
    from rota.home import Home

UNKNOWN_END_NOTE = "when the scheduler stopped; its end is not known yet"


def add_show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="The job.")
    display.add_arguments(parser, "show")


def _list_runs(session: SchedulerSession, job: str) -> list[Json]:
    """Return the runs of the job, or an empty list from a scheduler of an older version."""
    try:
        return list(session.pages(list_runs_of_job, "runs", job=job))
    except NotFound:
        return []


def _list_deliveries(session: SchedulerSession, job: str) -> list[Json]:
    """Return the latest deliveries, or an empty list from a scheduler of an older version."""
    try:
        response: list[Json] = session.request_json(list_deliveries(job=job, limit=20))["deliveries"]
    except NotFound:
        return []
    return response


def run_show(args: argparse.Namespace) -> int:
    display.check_options(args)
    session = SchedulerSession(find_home(args.home), is_read_only=True)
    name = job_id(args.job)
    try:
        job = session.request_json(get_job(name))
    except NotRunning as error:
        if session.has_answered:
            raise
        stored = StoredJob(session.home, name, error)
        record = stored.record()
        notes = {"status": UNKNOWN_END_NOTE, "run.status": UNKNOWN_END_NOTE} if stored.is_open(record) else {}
        _print_job(record, *display.choose_display(args, None, "show"), notes=notes)
        print_notice(stored.note)
        if notes:
            print_notice(stored.unknown_end_note(record))
        return 0
    format_name, fields = display.choose_display(args, session, "show")
    policies = (job.pop("policies", None) or []) if format_name == "block" and not fields else []
    _print_job(job, format_name, fields)
    logs = session.request_json(get_logs(job["id"])) if job.get("run") else {}
    if format_name == "block" and not fields:
        for line in policy_lines(policies):
            print_text(line)
        for line in workspace_lines(logs.get("workspace")):
            print_text(line)
        for line in earlier_run_lines(_list_runs(session, job["id"]), job.get("run")):
            print_text(line)
        for line in delivery_lines(_list_deliveries(session, job["id"])):
            print_text(line)
    if logs.get("warning"):
        print_notice(f"warning: {logs['warning']}")
    return 0


def _print_job(
    job: Json, format_name: str, fields: Sequence[str] | None, *, notes: Mapping[str, str] | None = None
) -> None:
    now, color = datetime.now(UTC), has_color(sys.stdout)
    if format_name == "json":
        print_json(display.select_fields(job, fields, now))
    elif format_name == "table":
        print_text(
            "\n".join(
                job_table([job], fields or DEFAULT_COLUMNS, now=now, width=terminal_width(sys.stdout), color=color)
            )
        )
    else:
        print_text("\n".join(job_block(job, fields, now=now, color=color, notes=notes)))


def workspace_lines(workspace: Json | None) -> list[str]:
    """Return the lines on the workspace that are not fields of the job."""
    if workspace is None:
        return []
    kept = f"kept, {workspace['kept_reason']}" if workspace.get("kept_reason") and workspace.get("worktree") else None
    pairs = [
        ("branch", workspace.get("branch")),
        ("worktree is", kept),
        ("command patch", workspace.get("command_patch")),
        ("input patch", workspace.get("input_patch")),
    ]
    return [f"{name:<18} {escape_unprintable(str(value))}" for name, value in pairs if value]


def add_why_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="The job.")


def run_why(args: argparse.Namespace) -> int:
    response = SchedulerSession(find_home(args.home), is_read_only=True).request_json(explain_job(job_id(args.job)))
    if args.json:
        print_json(response)
        return 0
    for line in (*response["text"].splitlines(), *(response.get("warnings") or ())):
        print_text(escape_unprintable(line))
    return 0


class StoredJob:
    """Files of a job."""

    def __init__(self, home: Home, job: str, error: NotRunning) -> None:
        """Open the files of a job. `error` is the connection error, which is raised again if the files do not help."""
        self.id = job
        self.directory = home.jobs / str(parse_job_id(job))
        if not self.directory.is_dir():
            raise NotRunning(
                f"{error.message}\n{job} has no files: it has not started, or it does not exist",
                has_stale_socket=error.has_stale_socket,
            ) from None
        self.error = error

    @property
    def note(self) -> str:
        return f"{self.error.message}; this is the content of {self.directory}"

    def record(self) -> Json:
        """Return the job as the scheduler last wrote it."""
        try:
            record: Json = json.loads((self.directory / "job.json").read_bytes())
        except (OSError, ValueError):
            raise NotRunning(
                f"{self.error.message}\n{self.directory} has no readable job.json;"
                f" `rota logs {self.id}` prints the output of the job",
                has_stale_socket=self.error.has_stale_socket,
            ) from None
        return record

    def is_open(self, record: Json) -> bool:
        """Return whether the job had not ended when the scheduler last wrote its record."""
        return record["status"] not in TERMINAL_STATUSES

    def unknown_end_note(self, record: Json) -> str:
        pid = record.get("pid")
        is_gone = pid is not None and not Path(f"/proc/{int(pid)}").exists()
        text = f"{self.id} was {record['status']} when the scheduler stopped; its end is not known yet"
        gone = f"; its process (pid {pid}) is gone" if is_gone else ""
        return f"{text}{gone}; `rota up` starts the scheduler, which records how it ended or continues it"

    def log(self, stream: str, run: str | None) -> StoredLog:
        return StoredLog(self._directory_of(run) / f"{stream}.log")

    def _directory_of(self, run: str | None) -> Path:
        """Return the directory of a run. Earlier runs of a rewound job have their own directories."""
        if run is None:
            return self.directory
        earlier = Path(run_directory(str(self.directory), parse_run_id(run)))
        if earlier.is_dir():
            return earlier
        if (self.record().get("run") or {}).get("id") == run:
            return self.directory
        raise NotFound(f"{self.directory} has no files of {run}; `rota show {self.id}` shows the last run")


class StoredLog:
    """Log file. The child may have replaced it by anything, so only a regular file is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def size(self) -> int:
        try:
            status = self._path.stat()
        except OSError:
            return 0
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def read(self, offset: int, limit: int) -> bytes:
        if not self.size():
            return b""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, limit, offset)
        finally:
            os.close(descriptor)
