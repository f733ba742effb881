"""`rota gc`: remove jobs that ended long ago, with their files."""

from __future__ import annotations

import argparse

from rota.cli.confirm import DECLINED, add_confirmation, confirm, format_count, should_confirm
from rota.cli.parser import UsageError
from rota.cli.terminal import print_json, print_notice
from rota.client.requests.control import collect_garbage, get_gc_status
from rota.client.session import SchedulerSession
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json
    from rota.home import Home

_PROGRESS_INTERVAL = 2.0
"""Seconds between two progress messages."""
_MAX_KEPT_SHOWN = 20
_KEPT_REASONS = {
    "referenced": "that others refer to",
    "worktree": "with a worktree",
    "files": "whose files cannot be removed",
}


def add_gc_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days",
        metavar="N",
        help="Remove jobs that ended at least N days ago; 0 is all ended jobs (default: gc.days, 7).",
    )
    add_confirmation(parser)


def run_gc(args: argparse.Namespace) -> int:
    home, days = find_home(args.home), _parse_days(args.days)
    if not args.dry_run and should_confirm(args):
        plan = _run_collection(home, days, dry_run=True, is_read_only=False)
        count = plan["removed"]["jobs"]
        if count > 1 and not confirm(f"remove {count:,} jobs?", [format_summary(plan)]):
            return DECLINED
    response = _run_collection(home, days, dry_run=args.dry_run, is_read_only=args.dry_run)
    if args.json:
        print_json(response)
        return 0
    print_notice(format_summary(response))
    for job in response["kept"][:_MAX_KEPT_SHOWN]:
        print_notice(f"kept {job['job']}: {job['detail']}")
    if len(response["kept"]) > _MAX_KEPT_SHOWN:
        print_notice(f"and {len(response['kept']) - _MAX_KEPT_SHOWN} more; --json lists them")
    for text in response["remaining"]:
        print_notice(f"not removed: {text}")
    return 0


def _parse_days(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise UsageError(f"--days {text}: write a whole number of days; 0 is all ended jobs")
    return int(text)


def _run_collection(home: Home, days: int | None, *, dry_run: bool, is_read_only: bool) -> Json:
    """Send the request in a separate thread, so that this one can print the progress."""
    from threading import Event, Thread

    responses: list[Json] = []
    failure: list[BaseException] = []
    done = Event()

    def send_request() -> None:
        try:
            responses.append(
                SchedulerSession(home, is_read_only=is_read_only).request_json(
                    collect_garbage(days=days, dry_run=dry_run)
                )
            )
        except BaseException as error:  # noqa: BLE001 - the main thread raises it again
            failure.append(error)
        done.set()

    Thread(target=send_request, daemon=True).start()
    while not done.wait(_PROGRESS_INTERVAL):
        _print_progress(home)
    if failure:
        raise failure[0]
    return responses[0]


def _print_progress(home: Home) -> None:
    """Print the progress, if it can be read. Errors are ignored: the response of the request is still to come."""
    from rota.errors import RotaError

    try:
        in_progress = SchedulerSession(home, autostart=False).request_json(get_gc_status())["in_progress"]
    except (RotaError, OSError):
        return
    if in_progress:
        print_notice(f"removed {in_progress['jobs']:,} jobs so far, {format_size(in_progress['bytes'])} of files")


_OTHER_NOUNS = {
    "reservations": "direct execution",
    "groups": "group",
    "templates": "archived template",
    "fires": "schedule time",
    "deliveries": "webhook message",
}
"""Nouns of the removed objects besides jobs, which are listed only if there are any."""


def format_summary(result: Json) -> str:
    removed, kept = result["removed"], result["kept_counts"]
    verb = "would remove" if result["dry_run"] else "removed"
    files = f"{format_size(removed['bytes'])} of files"
    text = f"{verb} {format_count(removed['jobs'], 'job')} ({format_count(removed['runs'], 'run')}, "
    text += f"{format_count(removed['events'], 'event')}, {files})"
    others = [format_count(removed[name], noun) for name, noun in _OTHER_NOUNS.items() if removed.get(name)]
    text = f"{text}, {', '.join(others)}" if others else text
    if result["abandoned"]:
        verb = "would abandon" if result["dry_run"] else "abandoned"
        text += f"; {verb} {format_count(result['abandoned'], 'undelivered webhook message')}"
    parts = [f"{kept[reason]:,} {words}" for reason, words in _KEPT_REASONS.items() if kept.get(reason)]
    return f"{text}; kept {', '.join(parts)}" if parts else text


def format_size(count: int) -> str:
    """Format a number of bytes with a unit: `0 bytes`, `3.4 MB`."""
    if count < 1000:
        return format_count(count, "byte")
    amount, units = count / 1000, ["kB", "MB", "GB", "TB"]
    while amount >= 999.95 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.1f} {units[0]}"
