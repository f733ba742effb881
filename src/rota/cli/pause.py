"""`rota pause`: nothing new starts, of everything or of one pool, flow or target; what runs goes on."""

from __future__ import annotations

import argparse

from rota.cli.scope import add_scope, said, scope_of
from rota.cli.terminal import say, say_json, talk
from rota.client.ask.scheduler import pause
from rota.client.session import Session
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scope(parser)


def run(args: argparse.Namespace) -> int:
    answer = Session(find_home(args.home)).ask(pause(scope_of(args)))
    if args.json:
        say_json(answer)
        return 0
    say(f"{said(answer['scope'])} is paused by {answer['paused_by']} since {answer['paused_at']}")
    if not answer["result"]:
        talk("it was paused already; nothing was changed")
    if answer.get("warning"):
        talk(answer["warning"])
    return 0
