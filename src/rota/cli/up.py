"""`rota up`: start the scheduler if it does not run, and say where it is."""

from __future__ import annotations

import argparse

from rota.cli.render import recovery_lines
from rota.cli.terminal import say, say_json, talk
from rota.client.ask.scheduler import get_scheduler
from rota.client.session import Session
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing of its own."""


def run(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    status = Session(home).ask(get_scheduler())
    if args.json:
        say_json(status)
        return 0
    say(f"home    {status.get('home') or home.root}")
    say(f"socket  {status.get('socket') or home.socket}")
    say(f"pid     {status.get('pid')}")
    for line in recovery_lines(status.get("recovery") or {}):
        say(f"recovered  {line}")
    for trouble in status.get("trouble") or ():
        talk(f"warning: {trouble}")
    return 0
