"""`rota show`: everything about one job, or the fields that were asked for."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from rota.cli import display
from rota.cli.parser import job_id
from rota.cli.render import job_block, job_table
from rota.cli.terminal import has_colour, say, say_json, talk, width_of
from rota.cli.workspace import workspace_lines
from rota.client import api
from rota.client.session import Session
from rota.display import COLUMNS
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB")
    display.add_arguments(parser, "show")


def run(args: argparse.Namespace) -> int:
    display.check(args)
    session = Session(find_home(args.home))
    job = api.job(session, job_id(args.job))
    chosen, fields = display.choose(args, session, "show")
    now, colour = datetime.now(UTC), has_colour(sys.stdout)
    if chosen == "json":
        say_json(display.pick(job, fields, now))
    elif chosen == "table":
        say("\n".join(job_table([job], fields or COLUMNS, now=now, width=width_of(sys.stdout), colour=colour)))
    else:
        say("\n".join(job_block(job, fields, now=now, colour=colour)))
    left = api.logs(session, job["id"]) if job.get("run") else {}
    if chosen == "block" and not fields:
        for line in workspace_lines(left.get("workspace")):
            say(line)
    if left.get("warning"):
        talk(f"warning: {left['warning']}")
    return 0
