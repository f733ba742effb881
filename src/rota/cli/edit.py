"""`rota edit`: change what a job that waits was asked for."""

from __future__ import annotations

import argparse

from rota.cli.param import PARAM_HELP, params
from rota.cli.parser import Usage, job_id, take_command
from rota.cli.terminal import say, say_json, talk
from rota.client.ask.job import edit_job
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

_FIXED = (
    "after", "needs", "produces", "pin", "lock", "pool", "type", "flow", "phase", "target", "unique", "cwd", "env",
)  # fmt: skip
"""Options of a submit that no edit changes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota edit JOB [options] [-- COMMAND [ARGUMENT …]]"
    add = parser.add_argument
    add("job", metavar="JOB")
    add("--param", action="append", metavar="K=V", help=f"set {PARAM_HELP}")
    add("--unset-param", action="append", metavar="K", help="remove a parameter")
    add("--priority", type=int, metavar="N", help="higher goes first")
    add("--name", metavar="S", help="what to call it in lists; '' for no name")
    add("--timeout", metavar="D", help="end it after so long, as 90s or 1h30m; none for no limit")
    add("--idle-timeout", metavar="D", help="end it when it has written nothing for so long; none for no limit")
    add("--retries", type=int, metavar="N", help="if it fails, try it again up to N times")
    add("--retry", metavar="NAME", help="the retry policy: default, fleet, or one of your [retry.NAME]")
    add("--delay", metavar="D", help="do not start before so long from now; none for no delay")
    for name in _FIXED:
        add(f"--{name}", action="append", dest=f"fixed_{name}", help=argparse.SUPPRESS)
    take_command(parser)


def run(args: argparse.Namespace) -> int:
    changes = body(args)
    answer = Session(find_home(args.home)).ask(edit_job(job_id(args.job), **changes))
    if args.json:
        say_json(answer)
        return 0
    if answer["warning"]:
        talk(f"warning: {answer['warning']}")
    job = answer["job"]
    if answer["fields"]:
        say(f"{job['id']} {', '.join(answer['fields'])}")
    else:
        talk(f"{job['id']} was so already; nothing was changed")
    if job["status"] == "RUNNING":
        talk(f"{job['id']} has started")
    return 0


def body(args: argparse.Namespace) -> Json:
    """The request as the API takes it: only what was asked for."""
    for name in _FIXED:
        if getattr(args, f"fixed_{name}") is not None:
            raise Usage(f"--{name} is fixed at submit; cancel the job and submit it anew with another")
    if args.command == []:
        raise Usage("there is no command after --; leave the -- out, or write the new command")
    asked: Json = {
        "command": args.command,
        "set_params": params(args.param) or None,
        "unset_params": args.unset_param,
        "priority": args.priority,
        "retries": args.retries,
        "retry": args.retry,
    }
    changes = {name: value for name, value in asked.items() if value is not None}
    if args.name is not None:
        changes["name"] = args.name or None
    for name in ("timeout", "idle_timeout", "delay"):
        text = getattr(args, name)
        if text is not None:
            changes[name] = None if text == "none" else text
    if not changes:
        raise Usage("nothing is to be changed; `rota edit --help` says what can be")
    return changes
