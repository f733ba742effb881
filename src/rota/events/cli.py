"""`rota events`: list events, one line each, or follow them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import datetime

from rota.cli.parser import UsageError, group_id, job_id
from rota.cli.terminal import flush, print_notice, print_text
from rota.client.requests import MAX_PAGE_SIZE
from rota.client.requests.control import follow_events, list_events
from rota.client.session import SchedulerSession
from rota.errors import escape_unprintable
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json
    from rota.client.sse import SseMessage

_SUBJECT_FIELDS = ("job", "reservation", "group")


def add_events_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="Follow new events as they happen; without --since, print only new events.",
    )
    parser.add_argument("--since", type=int, metavar="N", help="Print only events after the event with number N.")
    parser.add_argument(
        "--job", action="append", metavar="JOB", help="Print only events of this job and its chain. Can be repeated."
    )
    parser.add_argument("--group", metavar="GROUP", help="Print only events of this group and its members.")
    parser.add_argument(
        "--kind",
        action="append",
        metavar="K",
        help="Print only events of this kind, for example job.failed or 'job.*'. Can be repeated.",
    )
    parser.add_argument("--type", metavar="X", help="Print only events of jobs of this type.")
    parser.add_argument("--flow", metavar="X", help="Print only events of jobs of this flow.")
    parser.epilog = "With --json, each event is one line of JSON."


def run_events(args: argparse.Namespace) -> int:
    if args.since is not None and args.since < 0:
        raise UsageError("--since takes the number of an event, or 0 for all events")
    session = SchedulerSession(find_home(args.home), is_read_only=True)
    request = {
        "job": [job_id(job) for job in args.job or ()],
        "group": None if args.group is None else group_id(args.group),
        "kind": args.kind or (),
        "type": args.type,
        "flow": args.flow,
    }
    for event in (
        _follow_events(session, args.since, request) if args.follow else _list_events(session, args.since, request)
    ):
        print_text(_format_json(event) if args.json else _format_line(event))
        if args.follow:
            flush()
    return 0


def _list_events(session: SchedulerSession, since: int | None, filters: Json) -> Iterator[Json]:
    """Yield all stored events. Pages continue from `position`: `next` would skip events before a gap."""
    page = session.request_json(list_events(since=since, limit=MAX_PAGE_SIZE, **filters))
    _print_reset(page["reset"])
    while True:
        yield from page["events"]
        if page["next"] is None:
            return
        page = session.request_json(list_events(since=page["position"], limit=MAX_PAGE_SIZE, **filters))


def _follow_events(session: SchedulerSession, since: int | None, filters: Json) -> Iterator[Json]:
    for message in session.listen(lambda last: follow_events(last_event_id=last, since=since, **filters)):
        yield from _events_in(message)


def _events_in(message: SseMessage) -> Iterator[Json]:
    if message.event == "reset":
        _print_reset(message.json())
    elif message.event != "begin":
        yield message.json()


def _print_reset(reset: Json | None) -> None:
    if reset is not None:
        print_notice(
            f"some events after {reset['since']} have been removed; they are complete from {reset['complete_from']} on"
        )


def _format_json(event: Json) -> str:
    import json

    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(event, ensure_ascii=not is_unicode)


def _format_line(event: Json) -> str:
    at = f"{datetime.fromisoformat(event['at']).astimezone():%Y-%m-%d %H:%M:%S}"
    subject = next((event[name] for name in _SUBJECT_FIELDS if event[name] is not None), "-")
    data = [f"{name}={_format_value(value)}" for name, value in event["data"].items() if value is not None]
    by = [f"by {event['actor']}"] if event["actor"] else []
    return escape_unprintable(
        f"{event['seq']:>7}  {at}  {event['kind']:<22} {subject:<9} {' '.join((*data, *by))}"
    ).rstrip()


def _format_value(value: object) -> str:
    import json

    if isinstance(value, str):
        return (
            value if value and not any(letter in value for letter in ' ="') else json.dumps(value, ensure_ascii=False)
        )
    return json.dumps(value, ensure_ascii=False)
