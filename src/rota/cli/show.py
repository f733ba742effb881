"""`rota show`: everything about one job."""

from __future__ import annotations

import argparse
import sys

from rota.cli.parser import job_id
from rota.cli.render import job_block
from rota.cli.terminal import has_colour, say, say_json, talk
from rota.cli.workspace import workspace_lines
from rota.client import api
from rota.client.session import Session
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB")


def run(args: argparse.Namespace) -> int:
    session = Session(find_home(args.home))
    job = api.job(session, job_id(args.job))
    if args.json:
        say_json(job)
    else:
        say("\n".join(job_block(job, colour=has_colour(sys.stdout))))
    left = api.logs(session, job["id"]) if job.get("run") else {}
    if not args.json:
        for line in workspace_lines(left.get("workspace")):
            say(line)
    if left.get("warning"):
        talk(f"warning: {left['warning']}")
    return 0
