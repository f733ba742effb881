"""`rota resume`: what was paused starts again."""

from __future__ import annotations

import argparse

from rota.cli.scope import add_scope, said, scope_of
from rota.cli.terminal import say, say_json, talk
from rota.client.ask.scheduler import resume
from rota.client.session import Session
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_scope(parser)


def run(args: argparse.Namespace) -> int:
    answer = Session(find_home(args.home)).ask(resume(scope_of(args)))
    if args.json:
        say_json(answer)
    elif answer["result"]:
        say(f"{said(answer['scope'])} goes on; {answer['paused_by']} had paused it at {answer['paused_at']}")
    else:
        talk(f"{said(answer['scope'])} is not paused; nothing was changed (`rota status` shows what is)")
    return 0
