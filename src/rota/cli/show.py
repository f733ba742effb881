"""`rota show`: everything about one job, or the fields that were asked for."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from rota.cli import display
from rota.cli.parser import job_id
from rota.cli.render import earlier_runs, job_block, job_table
from rota.cli.terminal import has_colour, say, say_json, talk, width_of
from rota.cli.webhook import delivery_lines
from rota.cli.workspace import workspace_lines
from rota.client.ask.job import get_job
from rota.client.ask.log import get_logs
from rota.client.ask.run import list_runs_of_job
from rota.client.ask.webhook import list_deliveries
from rota.client.session import Session
from rota.display import COLUMNS
from rota.errors import NotFound
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB")
    display.add_arguments(parser, "show")


def _runs(session: Session, job: str) -> list[Json]:
    """None where the scheduler is an older one."""
    try:
        return list(session.pages(list_runs_of_job, "runs", job=job))
    except NotFound:
        return []


def _deliveries(session: Session, job: str) -> list[Json]:
    """The latest; none where the scheduler is an older one."""
    try:
        answer: list[Json] = session.ask(list_deliveries(job=job, limit=20))["deliveries"]
    except NotFound:
        return []
    return answer


def run(args: argparse.Namespace) -> int:
    display.check(args)
    session = Session(find_home(args.home))
    job = session.ask(get_job(job_id(args.job)))
    chosen, fields = display.choose(args, session, "show")
    now, colour = datetime.now(UTC), has_colour(sys.stdout)
    if chosen == "json":
        say_json(display.pick(job, fields, now))
    elif chosen == "table":
        say("\n".join(job_table([job], fields or COLUMNS, now=now, width=width_of(sys.stdout), colour=colour)))
    else:
        say("\n".join(job_block(job, fields, now=now, colour=colour)))
    left = session.ask(get_logs(job["id"])) if job.get("run") else {}
    if chosen == "block" and not fields:
        for line in workspace_lines(left.get("workspace")):
            say(line)
        for line in earlier_runs(_runs(session, job["id"]), job.get("run")):
            say(line)
        for line in delivery_lines(_deliveries(session, job["id"])):
            say(line)
    if left.get("warning"):
        talk(f"warning: {left['warning']}")
    return 0
