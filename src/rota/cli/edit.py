"""`rota edit`: change a waiting job."""

from __future__ import annotations

import argparse

from rota.cli.param import PARAM_SYNTAX, parse_params
from rota.cli.parser import UsageError, add_command_argument, job_id
from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.requests.job import edit_job
from rota.client.session import SchedulerSession
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_FIXED_OPTIONS = (
    "after",
    "needs",
    "produces",
    "pin",
    "lock",
    "pool",
    "type",
    "flow",
    "phase",
    "target",
    "unique",
    "cwd",
    "env",
)
"""Options of `rota submit` that cannot be edited."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota edit JOB [options] [-- COMMAND [ARGUMENT …]]"
    add = parser.add_argument
    add("job", metavar="JOB", help="The waiting job.")
    add("--param", action="append", metavar="K=V", help=f"Set a param: {PARAM_SYNTAX}.")
    add("--unset-param", action="append", metavar="K", help="Remove a param.")
    add("--priority", type=int, metavar="N", help="Set the priority; higher priorities start first.")
    add("--name", metavar="NAME", help="Set the name; '' removes it.")
    add(
        "--timeout",
        metavar="DURATION",
        help="Kill the job after DURATION, for example 90s or 1h30m; none removes the limit.",
    )
    add(
        "--idle-timeout", metavar="DURATION", help="Kill the job after DURATION without output; none removes the limit."
    )
    add("--retries", type=int, metavar="N", help="Retry the job up to N times if it fails.")
    add("--retry", metavar="NAME", help="Set the retry policy: default, fleet, or a configured [retry.NAME].")
    add("--delay", metavar="DURATION", help="Start the job no earlier than DURATION from now; none removes the delay.")
    for name in _FIXED_OPTIONS:
        add(f"--{name}", action="append", dest=f"fixed_{name}", help=argparse.SUPPRESS)
    add_command_argument(parser)


def run(args: argparse.Namespace) -> int:
    changes = build_request(args)
    response = SchedulerSession(find_home(args.home)).request_json(edit_job(job_id(args.job), **changes))
    if args.json:
        print_json(response)
        return 0
    if response["warning"]:
        print_notice(f"warning: {response['warning']}")
    job = response["job"]
    if response["fields"]:
        print_text(f"{job['id']} {', '.join(response['fields'])}")
    else:
        print_notice(f"nothing changed: {job['id']} already has these values")
    if job["status"] == "RUNNING":
        print_notice(f"{job['id']} has started")
    return 0


def build_request(args: argparse.Namespace) -> Json:
    """Return the request body with the changed fields only."""
    for name in _FIXED_OPTIONS:
        if getattr(args, f"fixed_{name}") is not None:
            raise UsageError(f"--{name} cannot be edited; cancel the job and submit a new one")
    if args.command == []:
        raise UsageError("there is no command after --; remove the --, or add the new command")
    request: Json = {
        "command": args.command,
        "set_params": parse_params(args.param) or None,
        "unset_params": args.unset_param,
        "priority": args.priority,
        "retries": args.retries,
        "retry": args.retry,
    }
    changes = {name: value for name, value in request.items() if value is not None}
    if args.name is not None:
        changes["name"] = args.name or None
    for name in ("timeout", "idle_timeout", "delay"):
        text = getattr(args, name)
        if text is not None:
            changes[name] = None if text == "none" else text
    if not changes:
        raise UsageError("no change given; `rota edit --help` lists the options")
    return changes
