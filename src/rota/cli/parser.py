"""The verbs and their parsers. A command builds its own verb's parser only: the whole is for help and completion."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from rota import __version__
from rota.cli.terminal import width_of
from rota.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, NoReturn

VERBS = {
    "up": "start the scheduler and say where it is",
    "down": "stop the scheduler; what still runs then is kept and adopted at the next start, or ended with --kill",
    "status": "what runs, what waits, and why nothing runs if nothing does",
    "doctor": "check that everything Rota needs is in order",
    "submit": "submit a command as a job and print its id",
    "apply": "submit the jobs of a workflow file, all or none, as one group",
    "run": "run a command at the next free place, before the queue, and return its exit code",
    "list": "list jobs",
    "show": "show everything about a job",
    "why": "say why a job has not started, or how it ended",
    "graph": "draw which jobs wait for what",
    "logs": "print what a job wrote",
    "events": "print what happened, and go on with what happens",
    "wait": "wait for jobs to end and return their exit code",
    "cancel": "cancel jobs; running ones are gone when this returns",
    "retry": "try a failed or cancelled job again, as a new job in its chain",
    "rewind": "put a job and everything downstream of it back in the queue, in place",
    "edit": "change what a waiting job was asked for",
    "move": "put waiting jobs at another place in the queue",
    "group": "jobs that belong together: make, list, show, close, cancel or rewind a group",
    "template": "add, list, change or archive templates: named defaults for jobs of one kind",
    "lock": "list locks, with who holds them and who stands in line",
    "artifact": "declare what is there, for the jobs that need it",
    "tick": "look at everything now, and start what may start",
    "pause": "start nothing new, of everything or of one pool, flow or target; what runs goes on",
    "resume": "let start again what was paused",
    "clear": "cancel what waits, of everything or of one pool, flow or target; what runs goes on",
    "pool": "list pools or set a pool's size",
    "slot": "list direct executions that wait or run, or cancel one",
    "breaker": "list what is held because its runs fail, or let it begin anew",
    "schedule": "make jobs by the clock: add, list, show, change, preview and trigger schedules",
    "webhook": "tell URLs how jobs end, and see what they were told",
    "gc": "remove jobs that ended long ago, with their files",
    "config": "list, read or change the configuration",
    "token": "print the token that programs need over TCP, or make another one",
    "store": "migrate the store, or copy it to another database",
    "backup": "write the home's records to one file, while jobs run",
    "restore": "make a home what it was when a backup was made",
    "completion": "print a shell's completion script",
    "serve": "run the scheduler in the foreground (commands start it by themselves)",
    "supervise": "run the supervisor (the scheduler starts it by itself)",
}


class Usage(InvalidInput):
    """The command line cannot be understood."""


class Formatter(argparse.HelpFormatter):
    """argparse makes one for every option it is told of, and without a width each would import `shutil`."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=min(100, width_of(sys.stdout) or 100) - 2)


class Parser(argparse.ArgumentParser):
    """An argparse parser whose complaint is an exception, so that every error is printed in one place."""

    is_action = False
    """It is that of the second word of a verb: what it does not know, nobody does."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, "allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        raise Usage(f"{message}; see `{self.prog} --help`")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """argparse gives a command that follows other words the options between them too: it is taken off before."""
        if self.get_default("takes_command") is None or args is None or "--" not in args:
            found, unknown = super().parse_known_args(args, namespace)
            if unknown and self.is_action:
                self.error(f"unrecognized arguments: {' '.join(unknown)}")
            return found, unknown
        end = args.index("--")
        found, unknown = super().parse_known_args(args[:end], namespace)
        found.command = args[end + 1 :]
        return found, unknown


def load(verb: str) -> ModuleType:
    return import_module(f"rota.cli.{verb}")


def add_global_options(parser: argparse.ArgumentParser) -> None:
    # No default: on nested parsers it would undo what was said before the verb.
    parser.add_argument(
        "--home", metavar="DIR", default=argparse.SUPPRESS, help="the home to use instead of the one found here"
    )
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print the answer as JSON, for programs"
    )


def verb_parser(verb: str) -> tuple[Parser, ModuleType]:
    module = load(verb)
    parser = Parser(prog=f"rota {verb}", description=VERBS[verb])
    add_global_options(parser)
    module.add_arguments(parser)
    return parser, module


def full_parser() -> Parser:
    parser = Parser(
        prog="rota", description="A durable scheduler: it runs commands in order and says why they wait.",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"rota {__version__}")
    add_global_options(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, text in VERBS.items():
        child = verbs.add_parser(verb, help=text, description=text)
        add_global_options(child)
        load(verb).add_arguments(child)
    return parser


def add_actions(parser: argparse.ArgumentParser, actions: dict[str, str]) -> dict[str, argparse.ArgumentParser]:
    """Parsers for the second word of `rota pool set` and its like, by that word; the first is the default."""
    group = parser.add_subparsers(dest="action", metavar="ACTION", prog=parser.prog)
    children: dict[str, argparse.ArgumentParser] = {}
    for action, text in actions.items():
        child = children[action] = group.add_parser(action, help=text, description=text)
        if isinstance(child, Parser):
            child.is_action = True
        add_global_options(child)
    return children


def take_command(parser: argparse.ArgumentParser) -> None:
    """What follows `--` is `args.command`; none where there is no `--`."""
    parser.set_defaults(takes_command=True, command=None)


def pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Read repeated `K=V`."""
    found = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Usage(f"{option} {text}: write it as NAME=VALUE")
        found[key] = value
    return found


def job_id(text: str) -> str:
    """`job-24`, or `24` for short."""
    from rota.ids import parse_job, show_job

    return show_job(parse_job(f"job-{text}" if text.isdecimal() else text))


def slot_id(text: str) -> str:
    """`slot-3`, or `3` for short."""
    from rota.ids import parse_slot, show_slot

    return show_slot(parse_slot(f"slot-{text}" if text.isdecimal() else text))


def group_id(text: str) -> str:
    """`group-3`, or `3` for short, or its name."""
    return f"group-{text}" if text.isdecimal() else text


def job_or_group_id(text: str) -> str:
    from rota.ids import parse_group, show_group

    return show_group(parse_group(text)) if text.startswith("group-") else job_id(text)


def seconds(text: str | None) -> float | None:
    """A duration option in seconds."""
    if text is None:
        return None
    from rota.duration import parse_duration

    return parse_duration(text).total_seconds()
