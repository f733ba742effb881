"""`rota up`: start the scheduler if it is not running, and print its home, socket and pid."""

from __future__ import annotations

import argparse

from rota.cli.render import recovery_lines
from rota.cli.serve import add_accept_loss
from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.scheduler import get_scheduler
from rota.client.session import SchedulerSession
from rota.home import Home, find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_accept_loss(parser)


def _start_without_records(home: Home) -> None:
    """Start a scheduler that accepts the loss of records, and print the next job number."""
    from rota import config
    from rota.client.autostart import start
    from rota.store.open import open_store, read_id_watermarks

    if not start(home, options=["--accept-loss"]):
        print_notice("a scheduler is already running, so --accept-loss has no effect")
        return
    print_notice(f"started the scheduler in {home.directory}; `rota down` stops it")
    numbers = read_id_watermarks(open_store(config.load(home.config).store.url or home.database))
    print_notice(f"the next job is job-{numbers.ids.get('job', 0) + 1}")


def run(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    if args.accept_loss:
        _start_without_records(home)
    status = SchedulerSession(home).request_json(get_scheduler())
    if args.json:
        print_json(status)
        return 0
    print_text(f"home    {status.get('home') or home.root}")
    print_text(f"socket  {status.get('socket') or home.socket}")
    print_text(f"pid     {status.get('pid')}")
    for line in recovery_lines(status.get("recovery") or {}):
        print_text(f"recovered  {line}")
    for failure in status.get("errors") or ():
        print_notice(f"warning: {failure}")
    return 0
