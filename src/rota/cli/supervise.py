"""`rota supervise`: the process that owns running children and outlives the scheduler."""

from __future__ import annotations

import argparse

from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing of its own."""


def run(args: argparse.Namespace) -> int:
    home = find_home(args.home)
    home.prepare()
    from rota.executor.supervisor.main import main

    return main(home.directory)  # A string: the supervisor stays small, and `pathlib` would be a megabyte of it.
