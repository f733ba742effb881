"""`rota tick`: look at everything now, also at what changed outside, and start what may start."""

from __future__ import annotations

import argparse

from rota.cli.terminal import say, say_json, talk
from rota.client import api
from rota.client.session import Session
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(args: argparse.Namespace) -> int:
    answer = api.tick(Session(find_home(args.home)))
    if args.json:
        say_json(answer)
        return 0
    for job in answer["dispatched"]:
        say(job)
    talk(f"started {len(answer['dispatched'])}; ready and not started: {answer['skipped']}")
    return 0
