"""`rota run`: a command at the next free place, as if it were run right here."""

from __future__ import annotations

import argparse
import signal

from rota.cli.asked import draw, hint_at_quoting, lock, refuse_both, refuse_bytes, surroundings
from rota.cli.attendant import Attendant, Left, speaker
from rota.cli.outcome import exit_code
from rota.cli.param import PARAM_HELP, params
from rota.cli.terminal import say_json, talk
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

_ANOTHERS = ("ROTA_JOB", "ROTA_RUN", "ROTA_SLOT", "ROTA_PARAMS", "ROTA_SESSION_FILE", "ROTA_INPUT_PATCH")
"""What says which job we are ourselves, if we are one: not what is run here."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota run [options] -- COMMAND [ARGUMENT …] | rota run --template T [--param K=V …] [options]"
    add = parser.add_argument
    add("--template", metavar="T", help="run what a job of this template would, and draw like it")
    add("--param", action="append", metavar="K=V", help=PARAM_HELP)
    add("--name", help="what to call it in lists")
    add("--type", help="its kind; draws from the pool type/TYPE")
    add("--flow", help="its flow; draws from the pool flow/FLOW")
    add("--target", help="where its work belongs; draws from the pool target/TARGET")
    add("--lock", action="append", metavar="KEY[:shared]", help="hold this key while it runs")
    add("--pool", action="append", metavar="NAME[=W]", help="draw W (1) from this pool")
    add("--timeout", metavar="D", help="end it after so long, as 90s or 1h30m, and return 124")
    add("--idle-timeout", metavar="D", help="end it when it has written nothing for so long")
    add("--wait", metavar="D", help="wait so long for its turn, then return 75; 5m unless set")
    add("--env", action="append", metavar="K=V", help="set in its environment, on top of yours")
    add("--cwd", metavar="DIR", help="its working directory instead of yours")
    add("--quiet", action="store_true", help="do not say what it waits for")
    add("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the program and its arguments")


def run(args: argparse.Namespace) -> int:
    request = body(args)
    say = speaker(is_quiet=args.quiet)
    if not args.quiet:
        hint_at_quoting(request.get("command", []), "run")
    attendant = Attendant(Session(find_home(args.home)), say, is_all_talk=args.json)
    try:
        ended = attendant.attend(request)
    except Left as left:
        return _leave(left.number)
    finally:
        attendant.close()
    if args.json:
        say_json(ended)
    if args.quiet and _is_unaccounted(ended):
        talk(f"{ended['id']} {ended['status']}: {ended['reason']}")
    left_by = attendant.left_by(ended)
    return exit_code(ended) if left_by is None else _leave(left_by)


def _is_unaccounted(ended: Json) -> bool:
    """Its code of 1 looks like the command's own, and is not: nobody would know, if it were not said."""
    return ended["status"] == "FAILED" and exit_code(ended) == 1 and ended["reason"] not in (None, "exit code 1")


def _leave(number: int) -> int:
    """Ended by a signal; where it was Ctrl-C, so is this process."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    return 128 + number


def body(args: argparse.Namespace) -> Json:
    """The request as the API takes it; what was not asked for is left out, so that the server's defaults hold."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    refuse_both(command, args.template, "run")
    options = {
        "template": args.template,
        "params": params(args.param),
        "name": args.name,
        "type": args.type,
        "flow": args.flow,
        "target": args.target,
        "locks": [lock(text) for text in args.lock or ()],
        "pools": dict(draw(text) for text in args.pool or ()),
        "timeout": args.timeout,
        "idle_timeout": args.idle_timeout,
        "wait": args.wait,
    }
    request: Json = {name: value for name, value in options.items() if value is not None and value not in ([], {})}
    if command:
        request["command"] = command
    refuse_bytes(request)
    around = surroundings(args)
    variables = {name: value for name, value in around["env"].items() if name not in _ANOTHERS}
    return {**request, **around, "env": variables}
