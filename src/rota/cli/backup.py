"""`rota backup`: a copy of the home in one file, while jobs run."""

from __future__ import annotations

import argparse
import os
import time

from rota.cli.terminal import say, say_json, talk
from rota.home import find_home

_QUIET = 2.0
"""Seconds without a word: what takes longer says how far it is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--logs", action="store_true", help="with what the jobs wrote; without, the records only")
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")


def run(args: argparse.Namespace) -> int:
    from datetime import UTC, datetime
    from pathlib import Path

    from rota.command.backup import back_up

    target = Path(os.path.abspath(args.file))  # noqa: PTH100 - keeps the path as it is named
    home = find_home(args.home)
    now = datetime.now(UTC)
    made = back_up(home, target, with_logs=args.logs, force=args.force, now=now, progress=Patience("backing up"))
    if args.json:
        say_json({name: getattr(made, name) for name in made.__struct_fields__})
    else:
        say(f"{made.file}: {made.jobs:,} jobs, {made.runs:,} runs, {made.bytes:,} bytes")
        if not made.has_logs:
            talk("what the jobs wrote is not in it; --logs takes that too")
    return 0


class Patience:
    """Progress for somebody who waits: nothing at first, then a line now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._next = time.monotonic() + _QUIET

    def __call__(self, thing: str, done: int, total: int) -> None:
        if total and time.monotonic() >= self._next:
            self._next = time.monotonic() + _QUIET
            talk(f"{self._what}: {thing} {done * 100 // total} %")
