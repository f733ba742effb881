"""`rota events`: what happened, one line each, and what happens."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import datetime

from rota.cli.parser import Usage, group_id, job_id
from rota.cli.table import printable
from rota.cli.terminal import say, talk
from rota.client.ask import MOST_LISTED
from rota.client.ask.event import follow_events, list_events
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json
    from rota.client.message import Message

_ABOUT = ("job", "slot", "group")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--follow", action="store_true",
        help="go on with what happens; without --since, only with what happens from now on",
    )  # fmt: skip
    parser.add_argument("--since", type=int, metavar="N", help="only what came after the event of this number")
    parser.add_argument(
        "--job", action="append", metavar="JOB", help="only of this job and of others in its chain; may be repeated"
    )
    parser.add_argument("--group", metavar="GROUP", help="only of this group and of its members")
    parser.add_argument(
        "--kind", action="append", metavar="K",
        help="only of this kind, as job.failed, or of all that begin alike, as 'job.*'; may be repeated",
    )  # fmt: skip
    parser.add_argument("--type", metavar="X", help="only of jobs of this type")
    parser.add_argument("--flow", metavar="X", help="only of jobs of this flow")
    parser.epilog = "With --json, each event is one line of JSON."


def run(args: argparse.Namespace) -> int:
    if args.since is not None and args.since < 0:
        raise Usage("--since takes the number of an event, or 0 for all there is")
    session = Session(find_home(args.home))
    wanted = {
        "job": [job_id(job) for job in args.job or ()],
        "group": None if args.group is None else group_id(args.group),
        "kind": args.kind or (),
        "type": args.type,
        "flow": args.flow,
    }
    for event in _followed(session, args.since, wanted) if args.follow else _past(session, args.since, wanted):
        say(_json(event) if args.json else _line(event))
        if args.follow:
            sys.stdout.flush()
    return 0


def _past(session: Session, since: int | None, wanted: Json) -> Iterator[Json]:
    """All that is left, also from before what is missing: a page's `next` would pass it over."""
    page = session.ask(list_events(since=since, limit=MOST_LISTED, **wanted))
    _say_reset(page["reset"])
    while True:
        yield from page["events"]
        if page["next"] is None:
            return
        page = session.ask(list_events(since=page["position"], limit=MOST_LISTED, **wanted))


def _followed(session: Session, since: int | None, wanted: Json) -> Iterator[Json]:
    for message in session.listen(lambda last: follow_events(last=last, since=since, **wanted)):
        yield from _told(message)


def _told(message: Message) -> Iterator[Json]:
    if message.event == "reset":
        _say_reset(message.json())
    elif message.event != "begin":
        yield message.json()


def _say_reset(reset: Json | None) -> None:
    if reset is not None:
        talk(f"some events after {reset['since']} are not there any more; from {reset['complete_from']} on all are")


def _json(event: Json) -> str:
    import json

    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(event, ensure_ascii=not is_unicode)


def _line(event: Json) -> str:
    at = f"{datetime.fromisoformat(event['at']).astimezone():%Y-%m-%d %H:%M:%S}"
    about = next((event[name] for name in _ABOUT if event[name] is not None), "-")
    said = [f"{name}={_shown(value)}" for name, value in event["data"].items() if value is not None]
    by = [f"by {event['actor']}"] if event["actor"] else []
    return printable(f"{event['seq']:>7}  {at}  {event['kind']:<22} {about:<9} {' '.join((*said, *by))}").rstrip()


def _shown(value: object) -> str:
    import json

    if isinstance(value, str):
        return (
            value if value and not any(letter in value for letter in ' ="') else json.dumps(value, ensure_ascii=False)
        )
    return json.dumps(value, ensure_ascii=False)
