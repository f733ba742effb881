"""`rota tick`: evaluate all jobs now, including changes outside the scheduler, and start the ready ones."""

from __future__ import annotations

import argparse

from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.scheduler import tick
from rota.client.session import SchedulerSession
from rota.home import find_home

_REASON_TEXTS = {
    "none": "nothing is ready",
    "ready": "no more jobs are ready",
    "batch": "the batch limit is reached",
    "capacity": "there is no free capacity",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="Print the jobs that would start without changing anything."
    )
    parser.add_argument("--batch", type=_parse_batch, metavar="N", help="Start at most N jobs.")


def _parse_batch(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text} is not a valid number of jobs; use a number from 1 to 2147483647")
    return int(text)


def run(args: argparse.Namespace) -> int:
    response = SchedulerSession(find_home(args.home), is_read_only=args.dry_run).request_json(
        tick(dry_run=args.dry_run, batch=args.batch)
    )
    if args.json:
        print_json(response)
        return 0
    for job in response["would_dispatch" if args.dry_run else "dispatched"]:
        print_text(job)
    print_notice(_format_summary(response, is_dry_run=args.dry_run))
    return 0


def _format_summary(result: dict[str, object], *, is_dry_run: bool) -> str:
    started, would = result["dispatched"], result["would_dispatch"]
    assert isinstance(started, list)  # noqa: S101 - the API guarantees it
    assert isinstance(would, list)  # noqa: S101
    text = f"would start {len(would)}" if is_dry_run else f"started {len(started)}"
    later = f", {len(would)} to follow" if would and not is_dry_run else ""
    skipped = f"; ready but not started: {result['skipped']}" if result["skipped"] else ""
    reason = result.get("blocker") or _REASON_TEXTS[str(result["reason"])]
    return f"{text}{later}: {reason}{skipped}"
