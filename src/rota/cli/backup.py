"""`rota backup`: write a copy of the home to one file while jobs run."""

from __future__ import annotations

import argparse
import os
import time

from rota.cli.terminal import print_json, print_notice, print_text
from rota.home import find_home

_PROGRESS_INTERVAL = 2.0
"""Seconds between two progress messages."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="The file to write.")
    parser.add_argument("--logs", action="store_true", help="Include the output of jobs, not only the records.")
    parser.add_argument("--force", action="store_true", help="Replace FILE if it exists.")


def run(args: argparse.Namespace) -> int:
    from datetime import UTC, datetime
    from pathlib import Path

    from rota.command.backup import back_up

    target = Path(os.path.abspath(args.file))  # noqa: PTH100 - keeps the path as it is written
    home = find_home(args.home)
    now = datetime.now(UTC)
    backup = back_up(
        home, target, with_logs=args.logs, force=args.force, now=now, progress=ProgressPrinter("backing up")
    )
    if args.json:
        print_json({name: getattr(backup, name) for name in backup.__struct_fields__})
    else:
        print_text(f"{backup.file}: {backup.jobs:,} jobs, {backup.runs:,} runs, {backup.bytes:,} bytes")
        if not backup.has_logs:
            print_notice("the output of jobs is not included; --logs includes it")
    return 0


class ProgressPrinter:
    """Callback that prints a progress message at most every two seconds, and none for short work."""

    def __init__(self, activity: str) -> None:
        self._activity = activity
        self._next_print_at = time.monotonic() + _PROGRESS_INTERVAL

    def __call__(self, item: str, done: int, total: int) -> None:
        if total and time.monotonic() >= self._next_print_at:
            self._next_print_at = time.monotonic() + _PROGRESS_INTERVAL
            print_notice(f"{self._activity}: {item} {done * 100 // total} %")
