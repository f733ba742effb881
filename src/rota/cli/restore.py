"""`rota restore`: a home as a backup has it. Nothing that is there is thrown away."""

from __future__ import annotations

import argparse
import os

from rota.cli.backup import Patience
from rota.cli.terminal import say, say_json, talk
from rota.client.lock import is_held
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.command.restore import Restored


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--force", action="store_true", help="also where there is a database; that one is kept beside")


def run(args: argparse.Namespace) -> int:
    from datetime import UTC, datetime
    from pathlib import Path

    from rota.command.restore import restore

    file = Path(os.path.abspath(args.file))  # noqa: PTH100 - keeps the path as it is named
    home = find_home(args.home)
    done = restore(home, file, force=args.force, now=datetime.now(UTC), progress=Patience("restoring"))
    held = done.contents
    if args.json:
        say_json(
            {
                "file": held.file, "jobs": held.jobs, "runs": held.runs, "made_at": held.made_at, "store": done.store,
                "kept": done.kept, "config": done.config,
            }
        )  # fmt: skip
    else:
        as_of = f", as of {held.made_at}" if held.made_at else ""
        say(f"{done.store}: {held.jobs:,} jobs, {held.runs:,} runs{as_of}; `rota up` starts it")
    for line in _remarks(done, has_supervisor=is_held(home.supervisor_lock)):
        talk(line)
    return 0


def _remarks(done: Restored, *, has_supervisor: bool) -> list[str]:
    lines = []
    if done.kept:
        lines.append(f"what was there before is in {done.kept}")
    if done.config and done.config.endswith(".backup"):
        lines.append(f"the home's own rota.toml stays; the backup's is {done.config}")
    if done.is_url_dropped:
        lines.append("store.url was left out of rota.toml: the records are in rota.db now; see `rota store copy`")
    if has_supervisor:
        lines.append("if jobs of this home still run, what the backup does not know of is ended at the next start")
    return lines
