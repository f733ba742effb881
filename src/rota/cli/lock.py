"""`rota lock`: list locks with their holders and waiters."""

from __future__ import annotations

import argparse
import sys

from rota.cli import table
from rota.cli.parser import add_actions
from rota.cli.terminal import print_json, print_notice, print_text, terminal_width
from rota.client.requests.queue import list_locks
from rota.client.session import SchedulerSession
from rota.errors import escape_unprintable
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.client.requests import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, {"list": "List every lock that is held or waited for."})
    actions["list"].add_argument("key", nargs="?", metavar="KEY", help="List only this lock.")


def run(args: argparse.Namespace) -> int:
    key = getattr(args, "key", None)
    locks = list(SchedulerSession(find_home(args.home), is_read_only=True).pages(list_locks, "locks", key=key))
    if args.json:
        print_json({"locks": locks})
        return 0
    shown = [lock for lock in locks if lock["holders"] or lock["waiters"]]
    if shown:
        print_text("\n".join(lock_table(shown, width=terminal_width(sys.stdout))))
    else:
        lock = None if key is None else f"lock {escape_unprintable(key)}"
        print_notice("no lock is held or waited for" if lock is None else f"{lock} is not held and has no waiters")
    return 0


def lock_table(locks: Sequence[Json], *, width: int | None) -> list[str]:
    rows = [["LOCK", "MODE", "HOLDERS", "WAITERS"]]
    rows += [
        [
            lock["key"],
            lock["mode"] or "free",
            ", ".join(holder["id"] for holder in lock["holders"]),
            _format_waiters(lock),
        ]
        for lock in locks
    ]
    return table.render(rows, width=width, flexible=(((3,), 12), ((0, 2), 8)))


def _format_waiters(lock: Json) -> str:
    """List the waiters in order, with the mode if it is not exclusive."""
    names = [waiter["id"] if waiter["mode"] == "exclusive" else f"{waiter['id']}:shared" for waiter in lock["waiters"]]
    more = lock["waiting"] - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
