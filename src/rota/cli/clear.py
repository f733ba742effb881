"""`rota clear`: cancel what waits, of everything or of one pool, flow or target; what runs goes on."""

from __future__ import annotations

import argparse

from rota.cli.scope import GLOBAL, add_scope, scope_of
from rota.cli.terminal import say, say_json
from rota.client.ask.scheduler import clear
from rota.client.session import Session
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scope(parser)


def run(args: argparse.Namespace) -> int:
    answer = Session(find_home(args.home)).ask(clear(scope_of(args)))
    if args.json:
        say_json(answer)
    else:
        count = answer["cleared"]
        of = "" if answer["scope"] == GLOBAL else f" of {answer['scope']}"
        say(f"{count} {'job' if count == 1 else 'jobs'}{of} cancelled")
    return 0
