"""`rota run` and `rota reservation`: run a command ahead of the queue, and list and cancel such direct executions.

With `rota run`, the command runs as if in the foreground of this terminal.
"""

from __future__ import annotations

import argparse
import signal
import sys
from datetime import UTC, datetime

from rota.cli.confirm import DECLINED, END_WAIT_SECONDS, EndProgress, add_confirmation, confirm, should_confirm
from rota.cli.parser import add_actions, reservation_id
from rota.cli.rendering import format_cell, label
from rota.cli.table import render
from rota.cli.terminal import has_color, paint, print_json, print_notice, print_text, terminal_width
from rota.client.requests.direct import cancel_reservation, get_reservation, list_reservations
from rota.client.session import SchedulerSession
from rota.direct.client import ReservationClient, WaitInterrupted, make_notifier
from rota.errors import Conflict, NotFound, RotaError
from rota.home import find_home
from rota.jobs.cli.change import waiting_first
from rota.jobs.cli.options import (
    PARAM_SYNTAX,
    environment_request,
    parse_lock,
    parse_params,
    parse_pool,
    print_quoting_hint,
    require_one_command,
    require_utf8,
)
from rota.jobs.cli.wait import UNKNOWN_EXIT, exit_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_JOB_VARIABLES = ("ROTA_JOB", "ROTA_RUN", "ROTA_RESERVATION", "ROTA_PARAMS", "ROTA_SESSION_FILE", "ROTA_INPUT_PATCH")
"""Variables that identify the job that this command runs in; the new command does not inherit them."""
_TABLE_FIELDS = ("id", "status", "time", "actor", "title", "why")
_TABLE_HEADERS = ("ID", "STATUS", "TIME", "ACTOR", "NAME/COMMAND", "WAIT")
_STATUS_COLUMN, _FLEXIBLE_COLUMNS = 1, ((4, 5), 12)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota run [options] -- COMMAND [ARGUMENT …] | rota run --template T [--param K=V …] [options]"
    add = parser.add_argument
    add("--template", metavar="T", help="Run the command of template T, with its locks and pools.")
    add("--param", action="append", metavar="K=V", help=f"Set a param: {PARAM_SYNTAX}.")
    add("--name", help="Set the name shown in lists.")
    add("--type", help="Set the job type; the command draws from the pool type/TYPE.")
    add("--flow", help="Set the flow; the command draws from the pool flow/FLOW.")
    add("--target", help="Set the target; the command draws from the pool target/TARGET.")
    add("--lock", action="append", metavar="KEY[:shared]", help="Hold this lock while the command runs.")
    add("--pool", action="append", metavar="NAME[=W]", help="Draw W units (default: 1) from this pool.")
    add(
        "--timeout",
        metavar="DURATION",
        help="Kill the command after DURATION, for example 90s or 1h30m, and return 124.",
    )
    add("--idle-timeout", metavar="DURATION", help="Kill the command after DURATION without output.")
    add("--wait", metavar="DURATION", help="Return 75 if the command cannot start within DURATION (default: 5m).")
    add(
        "--env",
        action="append",
        metavar="K=V",
        help="Set an environment variable, in addition to the environment of the caller.",
    )
    add("--cwd", metavar="DIR", help="Run the command in DIR (default: the current directory).")
    add("--quiet", action="store_true", help="Do not print progress messages.")
    add("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="The program and its arguments.")


def run_run(args: argparse.Namespace) -> int:
    request = _build_request(args)
    notify = make_notifier(is_quiet=args.quiet)
    if not args.quiet:
        print_quoting_hint(request.get("command", []), "run")
    client = ReservationClient(SchedulerSession(find_home(args.home)), notify, has_output_on_stderr=args.json)
    try:
        reservation = client.run(request)
    except WaitInterrupted as interruption:
        return _exit_by_signal(interruption.signal_number)
    finally:
        client.close()
    if args.json:
        print_json(reservation)
    if args.quiet and _needs_reason(reservation):
        print_notice(f"{reservation['id']} {reservation['status']}: {reservation['reason']}")
    signal_number = client.cancel_signal(reservation)
    return exit_code(reservation) if signal_number is None else _exit_by_signal(signal_number)


def _needs_reason(reservation: Json) -> bool:
    """Return whether to print the reason: the exit code looks like that of the command but is not."""
    code = exit_code(reservation)
    is_own = reservation["reason"] in (None, f"exit code {code}")
    return reservation["status"] == "FAILED" and code in (1, UNKNOWN_EXIT) and not is_own


def _exit_by_signal(signal_number: int) -> int:
    """Return the exit code for a signal. After Ctrl-C, end this process by the signal too."""
    if signal_number == signal.SIGINT:
        raise KeyboardInterrupt
    return 128 + signal_number


def _build_request(args: argparse.Namespace) -> Json:
    """Return the request body with the given options; the defaults of the server apply to the others."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    require_one_command(command, args.template, "run")
    options = {
        "template": args.template,
        "params": parse_params(args.param),
        "name": args.name,
        "type": args.type,
        "flow": args.flow,
        "target": args.target,
        "locks": [parse_lock(text) for text in args.lock or ()],
        "pools": dict(parse_pool(text) for text in args.pool or ()),
        "timeout": args.timeout,
        "idle_timeout": args.idle_timeout,
        "wait": args.wait,
    }
    request: Json = {name: value for name, value in options.items() if value is not None and value not in ([], {})}
    if command:
        request["command"] = command
    require_utf8(request)
    environment = environment_request(args)
    variables = {name: value for name, value in environment["env"].items() if name not in _JOB_VARIABLES}
    return {**request, **environment, "env": variables}


def add_reservation_arguments(parser: argparse.ArgumentParser) -> None:
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


def run_reservation(args: argparse.Namespace) -> int:
    is_read_only = args.action != "cancel" or args.dry_run
    session = SchedulerSession(find_home(args.home), is_read_only=is_read_only)
    if args.action == "cancel":
        return _cancel_reservations(session, args)
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
    rows = [
        list(_TABLE_HEADERS),
        *([format_cell(item, field, now=now) for field in _TABLE_FIELDS] for item in reservations),
    ]

    def paint_cell(column: int, text: str, padded: str) -> str:
        return paint(padded, text, color=color) if column == _STATUS_COLUMN else padded

    return render(rows, width=terminal_width(sys.stdout), flexible=(_FLEXIBLE_COLUMNS,), paint=paint_cell)


def _cancel_reservations(session: SchedulerSession, args: argparse.Namespace) -> int:
    cancelled, code = [], 0
    names = list(dict.fromkeys(reservation_id(text) for text in args.reservations))
    if args.dry_run:
        return _dry_run_cancel(session, names, as_json=args.json)
    if len(names) > 1 and should_confirm(args):
        plan, _ = _plan_cancel(session, names)
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


def _dry_run_cancel(session: SchedulerSession, names: list[str], *, as_json: bool) -> int:
    plan, refusals = _plan_cancel(session, names)
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


def _plan_cancel(session: SchedulerSession, names: list[str]) -> tuple[list[Json], list[RotaError]]:
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
