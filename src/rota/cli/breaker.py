"""`rota breaker`: list and reset the circuit breakers of types and targets."""

from __future__ import annotations

import argparse
import sys

from rota.cli.parser import add_actions, job_id
from rota.cli.render import breaker_table
from rota.cli.terminal import print_json, print_notice, print_text, terminal_width
from rota.client.requests.job import TERMINAL_STATUSES
from rota.client.requests.scheduler import list_breakers, reset_breaker
from rota.client.session import SchedulerSession
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        {
            "list": "List every type and target with recent failures.",
            "reset": "Close a breaker, or clear the failed starts of a job.",
        },
    )
    actions["reset"].add_argument(
        "key", metavar="KEY|JOB", help="The breaker, type/… or target/…, or a job that could not start."
    )


def run(args: argparse.Namespace) -> int:
    session = SchedulerSession(find_home(args.home), is_read_only=args.action != "reset")
    if args.action == "reset":
        key = job_id(args.key) if args.key.isdecimal() else args.key
        response = session.request_json(reset_breaker(key))
        print_json(response) if args.json else _print_reset(response)
        return 0
    response = {"breakers": [*session.pages(list_breakers, "breakers")]}
    if args.json:
        print_json(response)
    elif response["breakers"]:
        print_text("\n".join(breaker_table(response["breakers"], width=terminal_width(sys.stdout))))
    else:
        print_notice("all breakers are closed, without recent failures")
    return 0


def _print_reset(result: Json) -> None:
    """Print the new state to stdout and its consequences to stderr."""
    count = result["failures_cleared"]
    if "job" not in result:
        print_text(f"{result['key']} {result['state']}")
        print_notice(f"failures cleared: {count}; held jobs can start again")
        return
    print_text(f"{result['job']} {result['status']}")
    then = "; the job starts immediately" if result["starts_immediately"] else ""
    if result["status"] in TERMINAL_STATUSES:
        then = f"; the job has ended: `rota retry {result['job']}` retries it"
    print_notice(f"failed starts cleared: {count}{then}")
