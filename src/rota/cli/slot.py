"""`rota slot`: direct executions that wait or run."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from rota.cli.cancel import waiting_first
from rota.cli.field import cell
from rota.cli.parser import add_actions, slot_id
from rota.cli.table import render
from rota.cli.terminal import has_colour, paint, say, say_json, talk, width_of
from rota.client.ask.slot import cancel_slot, get_slot, list_slots
from rota.client.session import Session
from rota.errors import Conflict, NotFound
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

_FIELDS = ("id", "status", "time", "actor", "title", "why")
_HEADS = ("ID", "STATUS", "TIME", "ACTOR", "NAME/COMMAND", "WAIT")
_STATUS, _GIVE_WAY = 1, ((4, 5), 12)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        {
            "list": "those that wait, in the order of their turns, and those that run",
            "cancel": "end some; running ones are gone when this returns",
        },
    )
    actions["cancel"].add_argument("slots", nargs="+", metavar="SLOT")


def run(args: argparse.Namespace) -> int:
    session = Session(find_home(args.home))
    if args.action == "cancel":
        return _cancel(session, args)
    answer = {"slots": [*session.pages(list_slots, "slots")]}
    if args.json:
        say_json(answer)
    elif answer["slots"]:
        say("\n".join(_table(answer["slots"])))
    else:
        talk("no direct execution waits or runs")
    return 0


def _table(slots: list[Json]) -> list[str]:
    now, colour = datetime.now(UTC), has_colour(sys.stdout)
    rows = [list(_HEADS), *([cell(slot, field, now=now) for field in _FIELDS] for slot in slots)]

    def colours(column: int, text: str, padded: str) -> str:
        return paint(padded, text, colour=colour) if column == _STATUS else padded

    return render(rows, width=width_of(sys.stdout), flexible=(_GIVE_WAY,), paint=colours)


def _cancel(session: Session, args: argparse.Namespace) -> int:
    cancelled, code = [], 0
    named = list(dict.fromkeys(slot_id(text) for text in args.slots))
    for slot in waiting_first(named, lambda slot: session.ask(get_slot(slot))):
        try:
            cancelled.append(_gone(session, slot))
        except (NotFound, Conflict) as refused:
            talk(refused.message)
            code = code or refused.exit_code
        else:
            if not args.json:
                say(f"{slot} {cancelled[-1]['status']}")
    if args.json:
        say_json({"slots": cancelled})
    return code


def _gone(session: Session, slot: str) -> Json:
    """The server waits for the end, but not for ever; a tree may take its time to die."""
    form: Json = session.ask(cancel_slot(slot))
    while form["finished_at"] is None:
        form = session.ask(get_slot(slot, wait=30))
    return form
