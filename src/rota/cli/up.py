"""`rota up` starts the scheduler if it is not running; `rota serve` is the scheduler, `rota supervise` the supervisor.

The supervisor owns the running children and outlives the scheduler.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys

from rota.cli.rendering import recovery_lines
from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.control import get_scheduler
from rota.client.session import SchedulerSession
from rota.home import Home, find_home


def add_up_arguments(parser: argparse.ArgumentParser) -> None:
    _add_accept_loss(parser)


def run_up(args: argparse.Namespace) -> int:
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


def _start_without_records(home: Home) -> None:
    """Start a scheduler that accepts the loss of records, and print the next job number."""
    from rota import config
    from rota.client.autostart import start
    from rota.db.store import open_store, read_id_watermarks

    if not start(home, options=["--accept-loss"]):
        print_notice("a scheduler is already running, so --accept-loss has no effect")
        return
    print_notice(f"started the scheduler in {home.directory}; `rota down` stops it")
    numbers = read_id_watermarks(open_store(config.load(home.config).store.url or home.database))
    print_notice(f"the next job is job-{numbers.ids.get('job', 0) + 1}")


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    _add_accept_loss(parser)


def run_serve(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    home.prepare()
    from rota.home import acquire_home_lock

    # Before the slow import: of several starting schedulers, all but one exit here.
    with acquire_home_lock(home) as lock:
        gc.disable()  # until the start is complete: collections during the imports take a tenth of the start time
        from rota.daemon import main

        return main(home, lock, accepts_loss=args.accept_loss)


def add_supervise_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run_supervise(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    home.prepare()
    from rota.config import load
    from rota.supervisor import protocol

    options = [protocol.NO_CGROUPS] if load(home.config).scheduler.cgroups == "off" else []
    # The exec drops the modules that reading the configuration needs, so that the supervisor stays small.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "rota.supervisor", str(home.root), *options])


def _add_accept_loss(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="Start even if the store has lost records. Job numbers continue after those in jobs/.",
    )
