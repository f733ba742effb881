"""`rota why`: explain why a job has not started, or how it ended."""

from __future__ import annotations

import argparse

from rota.cli.parser import job_id
from rota.cli.terminal import print_json, print_text
from rota.client.requests.jobs import explain_job
from rota.client.session import SchedulerSession
from rota.errors import escape_unprintable
from rota.home import find_home


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
