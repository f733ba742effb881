"""`rota serve`: run the scheduler in this process."""

from __future__ import annotations

import argparse
import gc

from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_accept_loss(parser)


def add_accept_loss(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="Start even if the store has lost records. Job numbers continue after those in jobs/.",
    )


def run(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    home.prepare()
    from rota.home_lock import acquire_home_lock

    # Before the slow import: of several starting schedulers, all but one exit here.
    with acquire_home_lock(home) as lock:
        gc.disable()  # until the start is complete: collections during the imports take a tenth of the start time
        from rota.daemon import main

        return main(home, lock, accepts_loss=args.accept_loss)
