"""`rota breaker`: types and targets that are held because their runs keep failing."""

from __future__ import annotations

import argparse
import sys

from rota.cli.parser import add_actions, job_id
from rota.cli.render import breaker_table
from rota.cli.terminal import say, say_json, talk, width_of
from rota.client.ask.job import TERMINAL
from rota.client.ask.scheduler import list_breakers, reset_breaker
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        {
            "list": "every type and target with failures that count",
            "reset": "close a breaker, or forget a job's failed starts",
        },
    )
    actions["reset"].add_argument("key", metavar="KEY|JOB", help="type/… or target/…, or a job that could not start")


def run(args: argparse.Namespace) -> int:
    session = Session(find_home(args.home))
    if args.action == "reset":
        key = job_id(args.key) if args.key.isdecimal() else args.key
        answer = session.ask(reset_breaker(key))
        say_json(answer) if args.json else _say_reset(answer)
        return 0
    answer = {"breakers": [*session.pages(list_breakers, "breakers")]}
    if args.json:
        say_json(answer)
    elif answer["breakers"]:
        say("\n".join(breaker_table(answer["breakers"], width=width_of(sys.stdout))))
    else:
        talk("all breakers are closed, and nothing has failed lately")
    return 0


def _say_reset(answer: Json) -> None:
    """Data to stdout, what follows from it to stderr."""
    count = answer["failures_forgotten"]
    if "job" not in answer:
        say(f"{answer['key']} {answer['state']}")
        talk(f"failures forgotten: {count}; what it held goes on")
        return
    say(f"{answer['job']} {answer['status']}")
    then = "; it goes at once" if answer["goes_at_once"] else ""
    if answer["status"] in TERMINAL:
        then = f"; it has ended, and stays so: `rota retry {answer['job']}` tries again"
    talk(f"failed starts forgotten: {count}{then}")
