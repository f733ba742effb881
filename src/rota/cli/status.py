"""`rota status`: show the state of the scheduler and the queue."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from rota.cli.render import status_block
from rota.cli.terminal import print_json, print_text
from rota.client.requests.scheduler import get_scheduler
from rota.client.session import SchedulerSession
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run(args: argparse.Namespace) -> int:
    status = SchedulerSession(find_home(args.home), is_read_only=True).request_json(get_scheduler())
    if args.json:
        print_json(status)
    else:
        print_text("\n".join(status_block(status, now=datetime.now(UTC))))
    return 0
