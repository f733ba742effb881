"""`rota reservation`: list and cancel direct executions."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from rota.cli.cancel import waiting_first
from rota.cli.confirm import DECLINED, add_confirmation, confirm, should_confirm
from rota.cli.end_progress import END_WAIT_SECONDS, EndProgress
from rota.cli.field import format_cell, label
from rota.cli.parser import add_actions, reservation_id
from rota.cli.table import render
from rota.cli.terminal import has_color, paint, print_json, print_notice, print_text, terminal_width
from rota.client.requests.reservation import cancel_reservation, get_reservation, list_reservations
from rota.client.session import SchedulerSession
from rota.errors import Conflict, NotFound, RotaError
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_FIELDS = ("id", "status", "time", "actor", "title", "why")
_HEADERS = ("ID", "STATUS", "TIME", "ACTOR", "NAME/COMMAND", "WAIT")
_STATUS_COLUMN, _FLEXIBLE_COLUMNS = 1, ((4, 5), 12)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = add_actions(
        parser,
        {
            "list": "List running direct executions, and waiting ones in queue order.",
            "cancel": "Cancel direct executions and wait until their processes have ended.",
        },
    )
    actions["cancel"].add_argument(
        "reservations", nargs="+", metavar="RESERVATION", help="The direct executions, by reservation ID."
    )
    add_confirmation(actions["cancel"])


def run(args: argparse.Namespace) -> int:
    is_read_only = args.action != "cancel" or args.dry_run
    session = SchedulerSession(find_home(args.home), is_read_only=is_read_only)
    if args.action == "cancel":
        return _cancel(session, args)
    response = {"reservations": [*session.pages(list_reservations, "reservations")]}
    if args.json:
        print_json(response)
    elif response["reservations"]:
        print_text("\n".join(_reservation_table(response["reservations"])))
    else:
        print_notice("there are no waiting or running direct executions")
    return 0


def _reservation_table(reservations: list[Json]) -> list[str]:
    now, color = datetime.now(UTC), has_color(sys.stdout)
    rows = [list(_HEADERS), *([format_cell(item, field, now=now) for field in _FIELDS] for item in reservations)]

    def paint_cell(column: int, text: str, padded: str) -> str:
        return paint(padded, text, color=color) if column == _STATUS_COLUMN else padded

    return render(rows, width=terminal_width(sys.stdout), flexible=(_FLEXIBLE_COLUMNS,), paint=paint_cell)


def _cancel(session: SchedulerSession, args: argparse.Namespace) -> int:
    cancelled, code = [], 0
    names = list(dict.fromkeys(reservation_id(text) for text in args.reservations))
    if args.dry_run:
        return _dry_run(session, names, as_json=args.json)
    if len(names) > 1 and should_confirm(args):
        plan, _ = _plan(session, names)
        if len(plan) > 1 and not confirm(f"cancel {len(plan)} direct executions?", _plan_lines(plan)):
            return DECLINED
    for reservation in waiting_first(names, lambda item: session.request_json(get_reservation(item))):
        try:
            cancelled.append(_cancel_and_wait(session, reservation))
        except (NotFound, Conflict) as error:
            print_notice(error.message)
            code = code or error.exit_code
        else:
            if not args.json:
                print_text(f"{reservation} {cancelled[-1]['status']}")
    if args.json:
        print_json({"reservations": cancelled})
    return code


def _dry_run(session: SchedulerSession, names: list[str], *, as_json: bool) -> int:
    plan, refusals = _plan(session, names)
    for error in refusals:
        print_notice(error.message)
    if as_json:
        fields = ("id", "name", "status")
        print_json({"dry_run": True, "reservations": [{field: item[field] for field in fields} for item in plan]})
    else:
        if not plan:
            print_notice("no direct execution would be cancelled")
        for line in _plan_lines(plan):
            print_text(line)
    return refusals[0].exit_code if refusals else 0


def _plan(session: SchedulerSession, names: list[str]) -> tuple[list[Json], list[RotaError]]:
    """Return the direct executions that would be cancelled, and the refusals of the others."""
    plan: list[Json] = []
    refusals: list[RotaError] = []
    for name in names:
        try:
            reservation = session.request_json(get_reservation(name))
        except NotFound as error:
            refusals.append(error)
            continue
        status = reservation["status"]
        if reservation["finished_at"] is None:
            plan.append(reservation)
        elif status != "CANCELLED":  # to cancel it twice changes nothing and is no error
            refusals.append(Conflict(f"{name} has already ended ({status}); nothing was changed"))
    return plan, refusals


def _plan_lines(plan: list[Json]) -> list[str]:
    return [f"would cancel {item['id']} ({item['status']}): {label(item)}" for item in plan]


def _cancel_and_wait(session: SchedulerSession, reservation: str) -> Json:
    response: Json = session.request_json(cancel_reservation(reservation, wait=END_WAIT_SECONDS))
    progress = EndProgress(session, reservation)
    while response["finished_at"] is None:
        progress.print_changes()
        response = session.request_json(get_reservation(reservation, wait=END_WAIT_SECONDS))
    return response
