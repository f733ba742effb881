"""`rota status`: the scheduler at a glance."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from rota.cli.render import status_block
from rota.cli.terminal import say, say_json
from rota.client.ask.scheduler import get_scheduler
from rota.client.session import Session
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing of its own."""


def run(args: argparse.Namespace) -> int:
    status = Session(find_home(args.home)).ask(get_scheduler())
    if args.json:
        say_json(status)
    else:
        say("\n".join(status_block(status, now=datetime.now(UTC))))
    return 0
