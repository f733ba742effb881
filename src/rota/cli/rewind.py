"""`rota rewind`: put a job, and all that is downstream of it, back in the queue."""

from __future__ import annotations

import argparse

from rota.cli.parser import job_id
from rota.cli.terminal import say, say_json, talk
from rota.client.ask.job import rewind_job
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

_MOST_NAMES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="the first to run again; a retried one stands for its last retry")


def run(args: argparse.Namespace) -> int:
    report = Session(find_home(args.home)).ask(rewind_job(job_id(args.job)))
    if args.json:
        say_json(report)
    else:
        say_report(report)
    return 0


def say_report(report: Json) -> None:
    if report["root"] != report["requested_job"]:
        talk(f"{report['root']} is the last job of the chain of {report['requested_job']}")
    say(f"reset: {_names(report['reset'])}")
    if report["cancelled"]:
        say(f"had been CANCELLED: {_names(report['cancelled'])}")
    if report["last_successful_point"]:
        say(f"last successful point: {_names(report['last_successful_point'])}")
    say(f"restarted: {_names(report['restarted'])}")
    if not report["restarted"]:
        talk(report["warning"] or f"nothing has started yet; `rota why {report['root']}` says what it waits for")
    elif report["warning"]:
        talk(f"warning: {report['warning']}")


def _names(jobs: list[str]) -> str:
    more = f" and {len(jobs) - _MOST_NAMES} more" if len(jobs) > _MOST_NAMES else ""
    return ", ".join(jobs[:_MOST_NAMES]) + more if jobs else "none"
