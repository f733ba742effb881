"""`rota lock`: keys that are held or wanted."""

from __future__ import annotations

import argparse
import sys

from rota.cli import table
from rota.cli.parser import add_actions
from rota.cli.terminal import say, say_json, talk, width_of
from rota.client.ask.queue import list_locks
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.client.ask import Json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(parser, {"list": "every key that is held or wanted"})
    actions["list"].add_argument("key", nargs="?", metavar="KEY", help="this one alone")


def run(args: argparse.Namespace) -> int:
    key = getattr(args, "key", None)
    locks = list(Session(find_home(args.home)).pages(list_locks, "locks", key=key))
    if args.json:
        say_json({"locks": locks})
        return 0
    shown = [lock for lock in locks if lock["holders"] or lock["waiters"]]
    if shown:
        say("\n".join(lock_table(shown, width=width_of(sys.stdout))))
    else:
        talk("no lock is held or wanted" if key is None else f"nobody holds {key} or stands in line for it")
    return 0


def lock_table(locks: Sequence[Json], *, width: int | None) -> list[str]:
    rows = [["LOCK", "HELD", "BY", "IN LINE"]]
    rows += [
        [lock["key"], lock["mode"] or "no", ", ".join(each["id"] for each in lock["holders"]), _line(lock)]
        for lock in locks
    ]
    return table.render(rows, width=width, flexible=(((3,), 12), ((0, 2), 8)))


def _line(lock: Json) -> str:
    """In order; to want it alone is what goes without saying."""
    names = [each["id"] if each["mode"] == "exclusive" else f"{each['id']}:shared" for each in lock["waiters"]]
    more = lock["waiting"] - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
