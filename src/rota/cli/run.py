"""`rota run`: run a command ahead of the queue, as if it ran in the foreground of this terminal."""

from __future__ import annotations

import argparse
import signal

from rota.cli.environment_options import (
    environment_request,
    parse_lock,
    parse_pool,
    print_quoting_hint,
    require_one_command,
    require_utf8,
)
from rota.cli.outcome import UNKNOWN_EXIT, exit_code
from rota.cli.param import PARAM_SYNTAX, parse_params
from rota.cli.reservation_client import ReservationClient, WaitInterrupted, make_notifier
from rota.cli.terminal import print_json, print_notice
from rota.client.session import SchedulerSession
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_JOB_VARIABLES = ("ROTA_JOB", "ROTA_RUN", "ROTA_RESERVATION", "ROTA_PARAMS", "ROTA_SESSION_FILE", "ROTA_INPUT_PATCH")
"""Variables that identify the job that this command runs in; the new command does not inherit them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(args: argparse.Namespace) -> int:
    request = build_request(args)
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


def build_request(args: argparse.Namespace) -> Json:
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
