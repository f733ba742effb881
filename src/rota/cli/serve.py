"""`rota serve`: the scheduler itself, in this process."""

from __future__ import annotations

import argparse
import gc

from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing of its own."""


def run(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    home.prepare()
    from rota.occupancy import sole_occupant

    with sole_occupant(home):  # before the costly import: of many starters all but one leave here
        gc.disable()  # until it runs: what is imported stays, and to look at it again and again is a tenth of a start
        from rota.daemon import main

        return main(home)
