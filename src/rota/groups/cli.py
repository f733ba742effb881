"""`rota group`: manage groups of jobs."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from functools import partial

from rota.cli import table
from rota.cli.confirm import add_confirmation, preview_or_confirm
from rota.cli.parser import add_actions, group_id
from rota.cli.rendering import format_elapsed, parse_time
from rota.cli.terminal import has_color, paint, print_json, print_notice, print_text, terminal_width
from rota.client.requests.jobs import add_group, close_group, get_group, list_groups, preview_cancel_group, rewind_group
from rota.client.session import SchedulerSession
from rota.errors import escape_unprintable
from rota.home import find_home
from rota.jobs.cli.change import cancel_whole_group, rewind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.client.requests import Json

_ACTIONS = {
    "list": "List active groups, or all groups.",
    "add": "Create an empty group, which stays open until it is closed, and print its ID.",
    "show": "Show the state of a group and of its members.",
    "close": "Close a group to new members, so that it can end.",
    "cancel": "Cancel a group and wait until its running jobs have ended.",
    "rewind": "Put the failed, cancelled and skipped jobs of a group, and everything downstream, back in the queue.",
}


def add_group_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, _ACTIONS)
    actions["list"].add_argument("--all", action="store_true", help="Include groups that have ended.")
    add = actions["add"].add_argument
    add("name", nargs="?", metavar="NAME", help="The name of the group, for `rota submit --group NAME`.")
    add(
        "--mode",
        choices=("parallel", "sequential"),
        help="Run the members in parallel or one after the other (default: parallel).",
    )
    add(
        "--on-failure",
        metavar="POLICY",
        help="Set the failure policy: stop, continue, skip, or the name of a plugin policy (default: stop).",
    )
    for action in ("show", "close", "cancel", "rewind"):
        actions[action].add_argument("group", metavar="GROUP", help="The group, by ID or name.")
    for action in ("cancel", "rewind"):
        add_confirmation(actions[action])


def run_group(args: argparse.Namespace) -> int:
    session = SchedulerSession(
        find_home(args.home), is_read_only=args.action in (None, "list", "show") or getattr(args, "dry_run", False)
    )
    match args.action:
        case "add":
            return _add(session, args)
        case "show":
            return _show(session, args)
        case "close":
            return _print_status(session.request_json(close_group(group_id(args.group))), args)
        case "cancel":
            return _cancel(session, args)
        case "rewind":
            return rewind(args, session, partial(rewind_group, group_id(args.group)))
        case _:
            return _list(session, args)


def _list(session: SchedulerSession, args: argparse.Namespace) -> int:
    show_all = getattr(args, "all", False)
    groups = list(session.pages(list_groups, "groups", open=not show_all))
    if args.json:
        print_json({"groups": groups})
    elif groups:
        print_text("\n".join(group_table(groups, now=datetime.now(UTC), width=terminal_width(sys.stdout))))
    else:
        print_notice("there are no groups" if show_all else "there are no active groups; --all lists ended ones too")
    return 0


def _add(session: SchedulerSession, args: argparse.Namespace) -> int:
    request = {"name": args.name, "mode": args.mode, "on_failure": args.on_failure}
    group = session.request_json(add_group(**{name: value for name, value in request.items() if value is not None}))
    if args.json:
        print_json(group)
        return 0
    print_text(group["id"])
    print_notice(
        f"`rota submit --group {group['id']} -- …` adds a member, `rota group close {group['id']}` closes the group"
    )
    return 0


def _show(session: SchedulerSession, args: argparse.Namespace) -> int:
    from rota.cli.rendering import job_table
    from rota.jobs.cli.list import JobListing

    group = session.request_json(get_group(group_id(args.group)))
    if args.json:
        print_json(group)
        return 0
    now, color = datetime.now(UTC), has_color(sys.stdout)
    print_text("\n".join(group_block(group, now=now, color=color)))
    members = JobListing(session, (), None, {"group": group["id"]})
    jobs = [job for page in members.pages() for job in page]
    if jobs:
        jobs.sort(key=lambda job: (job["sequence"], job["attempt"]))
        columns = ("sequence", "id", "status", "title", "why", "time")
        lines = job_table(jobs, columns, now=now, width=terminal_width(sys.stdout), color=color)
        print_text("\n".join(["", *lines]))
    return 0


def _cancel(session: SchedulerSession, args: argparse.Namespace) -> int:
    group = group_id(args.group)
    if (code := preview_or_confirm(args, session, preview_cancel_group(group))) is not None:
        return code
    return _print_status(cancel_whole_group(session, group), args)


def _print_status(group: Json, args: argparse.Namespace) -> int:
    if args.json:
        print_json(group)
    else:
        print_text(f"{group['id']} {group['status']}")
    return 0


def group_table(groups: Sequence[Json], *, now: datetime, width: int | None) -> list[str]:
    rows = [["GROUP", "NAME", "STATUS", "MODE", "ON FAILURE", "JOBS", "AGE"]]
    rows += [
        [
            group["id"],
            group["name"] or "",
            group["status"],
            group["mode"],
            group["on_failure"],
            _format_counts(group),
            _format_age(group["created_at"], now),
        ]
        for group in groups
    ]
    return table.render(rows, width=width, flexible=(((1, 5), 12), ((4,), 8)))


def group_block(group: Json, *, now: datetime, color: bool = False) -> list[str]:
    pairs = [
        ("id", group["id"]),
        ("name", group["name"]),
        ("status", paint(group["status"], group["status"], color=color)),
        ("unreadable", group["unreadable"]),
        ("mode", group["mode"]),
        ("on_failure", group["on_failure"]),
        ("jobs", _format_counts(group)),
        ("created_at", _format_time(group["created_at"], now)),
        ("closed_at", _format_time(group["closed_at"], now) or "- (open for further members)"),
        ("cancelled_at", _format_time(group["cancelled_at"], now)),
        ("finished_at", _format_time(group["finished_at"], now)),
    ]
    return [f"{name:<18} {escape_unprintable(value) if name == 'name' else value}" for name, value in pairs if value]


def _format_counts(group: Json) -> str:
    parts = ", ".join(f"{count} {status}" for status, count in group["counts"].items())
    return f"{group['total']} ({parts})" if parts else "0"


def _format_age(text: str, now: datetime) -> str:
    at = parse_time(text)
    return format_elapsed((now - at).total_seconds()) if at else ""


def _format_time(text: str | None, now: datetime) -> str | None:
    return None if text is None else f"{text} ({_format_age(text, now)} ago)"
