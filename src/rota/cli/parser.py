"""Verbs and their parsers. A command builds only the parser of its verb; the full parser is for help and completion."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import import_module

from rota import __version__
from rota.cli.terminal import terminal_width
from rota.errors import InvalidInput, NotFound, find_nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, NoReturn


class Verb:
    """Verb of the command line: its help, and the module that has `add_VERB_arguments` and `run_VERB`.

    The module is imported only when the verb is used."""

    __slots__ = ("help", "module")

    def __init__(self, module: str, help: str) -> None:  # noqa: A002 - the word that argparse uses
        self.module = module
        self.help = help


VERBS = {
    "up": Verb("rota.cli.up", "Start the scheduler and print its home, socket and process ID."),
    "down": Verb(
        "rota.cli.down", "Stop the scheduler. Jobs that outlast the grace period keep running unless --kill is given."
    ),
    "status": Verb("rota.control.cli", "Show the state of the scheduler and the queue, and why it is idle."),
    "doctor": Verb("rota.cli.doctor", "Check the environment and the home for problems."),
    "submit": Verb("rota.jobs.cli.submit", "Submit a command as a job and print the job ID."),
    "apply": Verb("rota.workflows.cli", "Submit the jobs of a workflow file as one group, all or none."),
    "run": Verb("rota.direct.cli", "Run a command directly, ahead of the queue, and return its exit code."),
    "list": Verb("rota.jobs.cli.list", "List jobs."),
    "show": Verb("rota.jobs.cli.show", "Show all details of a job."),
    "why": Verb("rota.jobs.cli.why", "Explain why a job has not started, or how it ended."),
    "graph": Verb("rota.graph.cli", "Draw the dependency graph of jobs."),
    "logs": Verb("rota.jobs.cli.logs", "Print the output of a job."),
    "events": Verb("rota.events.cli", "List events, or follow them as they happen."),
    "wait": Verb("rota.jobs.cli.wait", "Wait for jobs to end and return their exit code."),
    "cancel": Verb("rota.jobs.cli.change", "Cancel jobs and groups, and wait until their processes have ended."),
    "retry": Verb("rota.jobs.cli.change", "Retry a failed or cancelled job as a new job in its chain."),
    "rewind": Verb("rota.jobs.cli.change", "Put a job and everything downstream of it back in the queue."),
    "edit": Verb("rota.jobs.cli.change", "Change a waiting job."),
    "move": Verb("rota.jobs.cli.change", "Move waiting jobs within the queue."),
    "group": Verb("rota.groups.cli", "Manage groups of jobs."),
    "template": Verb("rota.templates.cli", "Manage templates: named defaults for jobs of one kind."),
    "work": Verb("rota.work.cli", "List the work items of trackers and lists, and read them again."),
    "lock": Verb("rota.control.cli", "List locks with their holders and waiters."),
    "artifact": Verb("rota.artifacts.cli", "Declare artifacts for the jobs that need them, and inspect them."),
    "tick": Verb("rota.control.cli", "Evaluate all waiting jobs now and start the ready ones."),
    "pause": Verb(
        "rota.control.cli", "Pause everything, or one pool, flow or target. Running jobs continue; no new jobs start."
    ),
    "resume": Verb("rota.control.cli", "Resume paused work."),
    "clear": Verb(
        "rota.control.cli", "Clear the queue, or its jobs of one pool, flow or target. Running jobs continue."
    ),
    "pool": Verb("rota.control.cli", "List pools or set the size of a pool."),
    "reservation": Verb("rota.direct.cli", "List or cancel direct executions."),
    "breaker": Verb("rota.control.cli", "List or reset circuit breakers."),
    "schedule": Verb("rota.schedules.cli", "Manage schedules, which submit jobs at the times of a cron expression."),
    "webhook": Verb("rota.webhooks.cli", "Notify URLs when jobs end, and inspect the deliveries."),
    "gc": Verb("rota.retention.cli", "Remove jobs that ended long ago, with their files."),
    "config": Verb("rota.cli.config", "List, read or change the configuration."),
    "token": Verb("rota.cli.token", "Print or rotate the token for access over TCP."),
    "store": Verb("rota.cli.store", "Show, migrate, copy or adopt the store."),
    "backup": Verb("rota.backup.cli", "Back up the home to one file while jobs run."),
    "restore": Verb("rota.backup.cli", "Restore a home from a backup."),
    "completion": Verb("rota.cli.completion", "Print the completion script of a shell."),
    "serve": Verb("rota.cli.up", "Run the scheduler in the foreground. Other commands start it automatically."),
    "supervise": Verb("rota.cli.up", "Run the supervisor. The scheduler starts it automatically."),
}


_POSITIVE_INTEGER = re.compile(r"[1-9][0-9]{0,17}")
_NEGATIVE_NUMBER = re.compile(r"-\.?\d")
"""Start of an argument that is a value and not an option, such as `-5s`, so that its error names the real problem."""


_MISSING_ARGUMENTS = "the following arguments are required: "
"""Start of a message of argparse."""


class UsageError(InvalidInput):
    """The command line is invalid."""


class Formatter(argparse.HelpFormatter):
    """Help formatter with a fixed width: argparse creates one for each option and imports `shutil` to get a width."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=min(100, terminal_width(sys.stdout) or 100) - 2)


class Parser(argparse.ArgumentParser):
    """Argument parser that raises an exception for an error, so that all errors are printed in one place."""

    is_action_parser = False
    """Whether this parser is for an action, the second word of a verb. It reports its unknown arguments itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, "allow_abbrev": False, **options})
        for action in self._actions:
            if isinstance(action, argparse._HelpAction):
                action.help = "Show this help message and exit."
        self._negative_number_matcher = _NEGATIVE_NUMBER  # the pattern of argparse since Python 3.14

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        if message.startswith(_MISSING_ARGUMENTS):
            names = message.removeprefix(_MISSING_ARGUMENTS)
            message = f"missing argument{'s' * (', ' in names)}: {names}"
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def raise_unknown(self, unknown: list[str]) -> NoReturn:
        """Raise for arguments that the parser does not know."""
        option = next((word.partition("=")[0] for word in unknown if word.startswith("--")), None)
        if option is None:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        names = {known.lstrip("-") for known in option_strings(self)}
        plural = f"{option.lstrip('-').removesuffix('ys')}ies"  # --retrys means --retries, although --retry is nearer
        suggestion = plural if plural in names else find_nearest(option.lstrip("-"), names)
        raise UsageError(
            f"unknown option {option}; "
            + (f"did you mean --{suggestion}?" if suggestion else f"see `{self.prog} --help`")
        )

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Convert a value. Errors quote it as typed and name the values that are accepted."""
        if action.type is int:
            try:
                return int(arg_string)
            except ValueError:
                self.error(f"{_display_name(action)} cannot be {arg_string!r}; it takes a whole number")
        value = super()._get_value(action, arg_string)
        is_action = isinstance(action, argparse._SubParsersAction)
        if action.choices is not None and not is_action and value not in action.choices:
            choices = ", ".join(map(str, action.choices))
            self.error(f"{_display_name(action)} cannot be {arg_string!r}; it takes one of: {choices}")
        return value

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Check an action, the second word of a verb. The choices of options are checked in `_get_value`."""
        if action.choices is not None and value not in action.choices:
            self.error(f"unknown action {value!r}; actions: {', '.join(action.choices)}")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.raise_unknown(unknown)
        return parsed

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments before `--` and keep the rest as the command: argparse would mix up the two."""
        if self.get_default("takes_command") is None or args is None or "--" not in args:
            parsed, unknown = super().parse_known_args(args, namespace)
            if unknown and self.is_action_parser:
                self.raise_unknown(unknown)
            return parsed, unknown
        end = args.index("--")
        parsed, unknown = super().parse_known_args(args[:end], namespace)
        parsed.command = args[end + 1 :]
        return parsed, unknown


def _display_name(action: argparse.Action) -> str:
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def option_strings(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of a parser and of its actions."""
    options: set[str] = set()
    for action in parser._actions:
        options.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                options |= option_strings(child)
    return options


def add_verb_arguments(verb: str, parser: argparse.ArgumentParser) -> ModuleType:
    """Add the arguments of a verb to its parser, and return the module that runs the verb."""
    module = import_module(VERBS[verb].module)
    getattr(module, f"add_{verb}_arguments")(parser)
    return module


def add_global_options(parser: argparse.ArgumentParser) -> None:
    # No default: nested parsers would overwrite options given before the verb.
    parser.add_argument(
        "--home",
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="Use this home instead of the one found from the current directory.",
    )
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="Print the result as JSON.")


def verb_parser(verb: str) -> tuple[Parser, Callable[[argparse.Namespace], int]]:
    """Return the parser of a verb, and the function that runs it."""
    parser = Parser(prog=f"rota {verb}", description=VERBS[verb].help)
    add_global_options(parser)
    module = add_verb_arguments(verb, parser)
    return parser, getattr(module, f"run_{verb}")


def full_parser() -> Parser:
    parser = Parser(prog="rota", description="A durable job scheduler that explains why jobs wait.")
    parser.add_argument("--version", action="version", version=f"rota {__version__}", help="Print the version.")
    add_global_options(parser)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, entry in VERBS.items():
        child = verbs.add_parser(verb, help=entry.help, description=entry.help)
        add_global_options(child)
        add_verb_arguments(verb, child)
    return parser


def add_actions(parser: argparse.ArgumentParser, actions: dict[str, str]) -> dict[str, argparse.ArgumentParser]:
    """Add parsers for the actions of a verb, such as `set` of `rota pool set`. The first action is the default."""
    group = parser.add_subparsers(dest="action", metavar="ACTION", prog=parser.prog)
    children: dict[str, argparse.ArgumentParser] = {}
    for action, text in actions.items():
        child = children[action] = group.add_parser(action, help=text, description=text)
        if isinstance(child, Parser):
            child.is_action_parser = True
        add_global_options(child)
    return children


def add_command_argument(parser: argparse.ArgumentParser) -> None:
    """Store the words after `--` as `args.command`, or None without `--`."""
    parser.set_defaults(takes_command=True, command=None)


def parse_pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Parse repeated `K=V` options."""
    pairs = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f"{option} {text}: write it as NAME=VALUE")
        pairs[key] = value
    return pairs


def with_id_prefix(kind: str, text: str) -> str:
    """Return the ID for a number. Other texts are returned unchanged, so that an error quotes the argument."""
    return f"{kind}-{text}" if _POSITIVE_INTEGER.fullmatch(text) else text


def job_id(text: str) -> str:
    """Parse a job ID: `job-24`, or `24` for short."""
    from rota.ids import format_job_id, parse_job_id

    return format_job_id(parse_job_id(with_id_prefix("job", text)))


def reservation_id(text: str) -> str:
    """Parse a reservation ID: `reservation-3`, or `3` for short."""
    from rota.ids import format_reservation_id, parse_reservation_id

    return format_reservation_id(parse_reservation_id(with_id_prefix("reservation", text)))


def group_id(text: str) -> str:
    """Return the ID or name of a group; `3` is short for `group-3`."""
    return with_id_prefix("group", text)


def job_or_group(text: str) -> str:
    """Return the ID of a job, given with or without `job-`, or the ID or name of a group."""
    return job_id(text) if text.isdecimal() or is_job(text) else text


def is_job(name: str) -> bool:
    """Return whether the ID or name denotes a job and not a group."""
    return name.startswith("job-")


def group_not_found(name: str, error: NotFound) -> NotFound:
    """Return the error for an unknown group, with a hint if the name may mean a job."""
    is_id = is_job(name) or name.startswith("group-")
    return error if is_id else NotFound(f"{error.message}; to name a job, use its ID, for example job-24")


def parse_seconds(text: str | None) -> float | None:
    """Parse a duration option and return its seconds."""
    if text is None:
        return None
    from rota.duration import parse_duration

    return parse_duration(text).total_seconds()
