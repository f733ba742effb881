"""`rota retry`: retry the last job of a chain, with a new count of attempts."""

from __future__ import annotations

import argparse

from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.run import retry_run
from rota.client.session import SchedulerSession
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job_or_run", metavar="JOB|RUN", help="Any job of the chain, or a run of it.")


def run(args: argparse.Namespace) -> int:
    target = f"job-{args.job_or_run}" if args.job_or_run.isdecimal() else args.job_or_run
    response = SchedulerSession(find_home(args.home)).request_json(retry_run(target))
    if args.json:
        print_json(response)
        return 0
    print_notice(response["message"])
    if response["warning"]:
        print_notice(response["warning"])
    print_text(response["job"]["id"])
    return 0
