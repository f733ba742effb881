"""`rota show`: everything about one job."""

from __future__ import annotations

import argparse
import sys

from rota.cli.parser import job_id
from rota.cli.render import earlier_runs, job_block
from rota.cli.terminal import has_colour, say, say_json, talk
from rota.client import api
from rota.client.session import Session
from rota.errors import NotFound
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.api import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB")


def _runs(session: Session, job: str) -> list[Json]:
    """None where the scheduler is an older one."""
    try:
        return api.runs(session, job)
    except NotFound:
        return []


def run(args: argparse.Namespace) -> int:
    session = Session(find_home(args.home))
    job = api.job(session, job_id(args.job))
    if args.json:
        say_json(job)
    else:
        say("\n".join(job_block(job, colour=has_colour(sys.stdout))))
    if job.get("run") and (warning := api.logs(session, job["id"]).get("warning")):
        talk(f"warning: {warning}")
    if not args.json:
        for line in earlier_runs(_runs(session, job["id"]), job.get("run")):
            say(line)
    return 0
