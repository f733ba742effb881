"""`rota show`: show all details of a job, or selected fields."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from rota.cli import display
from rota.cli.parser import job_id
from rota.cli.rendering import earlier_run_lines, job_block, job_table
from rota.cli.terminal import has_color, print_json, print_notice, print_text, terminal_width
from rota.client.problem import NotRunning
from rota.client.requests.definitions import list_deliveries
from rota.client.requests.jobs import get_job, get_logs, list_runs_of_job
from rota.client.session import SchedulerSession
from rota.columns import DEFAULT_COLUMNS
from rota.errors import NotFound, escape_unprintable
from rota.home import find_home
from rota.jobs.cli.stored_job import StoredJob
from rota.jobs.cli.submit import policy_lines
from rota.webhooks.cli import delivery_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rota.client.requests import Json

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
