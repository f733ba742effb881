"""`rota tick`: look at everything now, also at what changed outside, and start what may start."""

from __future__ import annotations

import argparse

from rota.cli.terminal import say, say_json, talk
from rota.client.ask.scheduler import tick
from rota.client.session import Session
from rota.home import find_home

_WHY_NO_MORE = {
    "none": "nothing is ready",
    "ready": "that is all that is ready",
    "batch": "that is the batch",
    "capacity": "there is no room for more",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would start; nothing is changed")
    parser.add_argument("--batch", type=_batch, metavar="N", help="start at most so many")


def _batch(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text} is no number of jobs; it is 1 or more")
    return int(text)


def run(args: argparse.Namespace) -> int:
    answer = Session(find_home(args.home)).ask(tick(dry_run=args.dry_run, batch=args.batch))
    if args.json:
        say_json(answer)
        return 0
    for job in answer["would_dispatch" if args.dry_run else "dispatched"]:
        say(job)
    talk(_sentence(answer, is_dry=args.dry_run))
    return 0


def _sentence(answer: dict[str, object], *, is_dry: bool) -> str:
    started, would = answer["dispatched"], answer["would_dispatch"]
    assert isinstance(started, list)  # noqa: S101 - as the API says
    assert isinstance(would, list)  # noqa: S101
    said = f"would start {len(would)}" if is_dry else f"started {len(started)}"
    later = f", {len(would)} to follow" if would and not is_dry else ""
    left = f"; ready and left: {answer['skipped']}" if answer["skipped"] else ""
    return f"{said}{later}: {_WHY_NO_MORE[str(answer['reason'])]}{left}"
