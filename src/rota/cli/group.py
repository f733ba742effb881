"""`rota group`: jobs that belong together, and what becomes of them as a whole."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from rota.cli import table
from rota.cli.cancel import cancel_whole_group
from rota.cli.field import elapsed, moment
from rota.cli.parser import add_actions, group_id
from rota.cli.rewind import say_report
from rota.cli.terminal import has_colour, paint, say, say_json, talk, width_of
from rota.client.ask.group import add_group, close_group, get_group, list_groups, rewind_group
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.client.ask import Json

_ACTIONS = {
    "list": "groups that are not over, or all of them",
    "add": "make a group without members, which stays open until it is closed, and print its id",
    "show": "what has become of a group and each of its members",
    "close": "let a group end with the members that it has",
    "cancel": "cancel a group as a whole; what runs of it is gone when this returns",
    "rewind": "run again what of a group has failed, was cancelled or left out, with all that comes after it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, _ACTIONS)
    actions["list"].add_argument("--all", action="store_true", help="those that are over too")
    add = actions["add"].add_argument
    add("name", nargs="?", metavar="NAME", help="what to call it, for `rota submit --group NAME`")
    add("--mode", choices=("parallel", "sequential"), help="parallel unless given")
    add("--on-failure", metavar="POLICY", help="stop, continue, skip, or one that a package brings; stop unless given")
    for action in ("show", "close", "cancel", "rewind"):
        actions[action].add_argument("group", metavar="GROUP", help="by id or name")


def run(args: argparse.Namespace) -> int:
    session = Session(find_home(args.home))
    match args.action:
        case "add":
            return _add(session, args)
        case "show":
            return _show(session, args)
        case "close":
            return _said(session.ask(close_group(group_id(args.group))), args)
        case "cancel":
            return _said(cancel_whole_group(session, group_id(args.group)), args)
        case "rewind":
            report = session.ask(rewind_group(group_id(args.group)))
            say_json(report) if args.json else say_report(report)
            return 0
        case _:
            return _list(session, args)


def _list(session: Session, args: argparse.Namespace) -> int:
    everything = getattr(args, "all", False)
    groups = list(session.pages(list_groups, "groups", open=not everything))
    if args.json:
        say_json({"groups": groups})
    elif groups:
        say("\n".join(group_table(groups, now=datetime.now(UTC), width=width_of(sys.stdout))))
    else:
        talk("there are no groups" if everything else "no group is under way; --all shows those that are over")
    return 0


def _add(session: Session, args: argparse.Namespace) -> int:
    asked = {"name": args.name, "mode": args.mode, "on_failure": args.on_failure}
    group = session.ask(add_group(**{name: value for name, value in asked.items() if value is not None}))
    if args.json:
        say_json(group)
        return 0
    say(group["id"])
    talk(f"`rota submit --group {group['id']} -- …` adds a member, `rota group close {group['id']}` lets it end")
    return 0


def _show(session: Session, args: argparse.Namespace) -> int:
    from rota.cli.list import collect
    from rota.cli.render import job_table

    group = session.ask(get_group(group_id(args.group)))
    if args.json:
        say_json(group)
        return 0
    now, colour = datetime.now(UTC), has_colour(sys.stdout)
    say("\n".join(group_block(group, now=now, colour=colour)))
    jobs = collect(session, (), None, [("group", group["id"])])["jobs"]
    if jobs:
        jobs.sort(key=lambda job: (job["sequence"], job["attempt"]))
        columns = ("sequence", "id", "status", "title", "why", "time")
        lines = job_table(jobs, columns, now=now, width=width_of(sys.stdout), colour=colour)
        say("\n".join(["", *lines]))
    return 0


def _said(group: Json, args: argparse.Namespace) -> int:
    if args.json:
        say_json(group)
    else:
        say(f"{group['id']} {group['status']}")
    return 0


def group_table(groups: Sequence[Json], *, now: datetime, width: int | None) -> list[str]:
    rows = [["GROUP", "NAME", "STATUS", "MODE", "ON FAILURE", "JOBS", "AGE"]]
    rows += [
        [
            group["id"], group["name"] or "", group["status"], group["mode"], group["on_failure"], _counts(group),
            _age(group["created_at"], now),
        ]
        for group in groups
    ]  # fmt: skip
    return table.render(rows, width=width, flexible=(((1, 5), 12), ((4,), 8)))


def group_block(group: Json, *, now: datetime, colour: bool = False) -> list[str]:
    pairs = [
        ("id", group["id"]),
        ("name", group["name"]),
        ("status", paint(group["status"], group["status"], colour=colour)),
        ("mode", group["mode"]),
        ("on_failure", group["on_failure"]),
        ("jobs", _counts(group)),
        ("created_at", _when(group["created_at"], now)),
        ("closed_at", _when(group["closed_at"], now) or "- (it stays open for further members)"),
        ("cancelled_at", _when(group["cancelled_at"], now)),
        ("finished_at", _when(group["finished_at"], now)),
    ]
    return [f"{name:<18} {table.printable(value) if name == 'name' else value}" for name, value in pairs if value]


def _counts(group: Json) -> str:
    parts = ", ".join(f"{count} {status}" for status, count in group["counts"].items())
    return f"{group['total']} ({parts})" if parts else "0"


def _age(text: str, now: datetime) -> str:
    at = moment(text)
    return elapsed((now - at).total_seconds()) if at else ""


def _when(text: str | None, now: datetime) -> str | None:
    return None if text is None else f"{text} ({_age(text, now)} ago)"
