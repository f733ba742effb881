"""`rota retry`: try a chain again, from its count's beginning."""

from __future__ import annotations

import argparse

from rota.cli.terminal import say, say_json, talk
from rota.client.ask.run import retry_run
from rota.client.session import Session
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="JOB|RUN", help="any job of the chain, or a run of it")


def run(args: argparse.Namespace) -> int:
    what = f"job-{args.what}" if args.what.isdecimal() else args.what
    answer = Session(find_home(args.home)).ask(retry_run(what))
    if args.json:
        say_json(answer)
        return 0
    talk(answer["text"])
    if answer["warning"]:
        talk(answer["warning"])
    say(answer["job"]["id"])
    return 0
