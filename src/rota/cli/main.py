"""`rota`: find the verb, load its module, and turn every failure into one message and one exit code."""

from __future__ import annotations

import argparse
import os
import sys

from rota.cli.parser import VERBS, UsageError, full_parser, verb_parser
from rota.cli.terminal import OutputError, flush
from rota.errors import RotaError, find_nearest, shorten

INTERRUPTED = 130
PIPE_CLOSED = 141
"""Exit code that a shell reports for a program ended by SIGPIPE, as in `yes | head -1`."""


_VERB_SYNONYMS = {
    "ls": "list",
    "ps": "list",
    "jobs": "list",
    "add": "submit",
    "log": "logs",
    "tail": "logs",
    "kill": "cancel",
    "rm": "cancel",
    "start": "up",
    "stop": "down",
    "info": "show",
    "dag": "graph",
    "tree": "graph",
    "rerun": "retry",
    "delete": "cancel",
    "remove": "cancel",
    "purge": "gc",
}
"""Verbs of other tools, with the verbs of Rota that match."""
_MIN_SIMILARITY = 0.65
"""Minimum similarity of a suggested verb: two letters of three."""
_DESTRUCTIVE_VERBS = frozenset({"cancel", "clear", "down", "gc", "restore", "rewind"})
"""Verbs that are never suggested: users often run a suggestion without reading it."""


def program() -> int:
    """Run `rota` as a process. After Ctrl-C it ends by SIGINT, so that a shell also ends the loop around it."""
    try:
        return _run_command(sys.argv[1:])
    except KeyboardInterrupt:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return INTERRUPTED


def main(argv: list[str]) -> int:
    try:
        return _run_command(argv)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run_command(argv: list[str]) -> int:
    _ensure_streams()
    try:
        code = _dispatch(argv)
        flush()
    except OutputError as error:
        _discard_output()
        return _print_error(error.message, error.exit_code)
    except RotaError as error:
        return _print_error(error.message, error.exit_code)
    except BrokenPipeError:
        _discard_output()
        return PIPE_CLOSED
    except SystemExit as exit_:  # argparse has printed the help or the version
        return exit_.code if isinstance(exit_.code, int) else 0
    except OSError as error:
        return _print_error(f"{error}", 1)
    return code


def _dispatch(argv: list[str]) -> int:
    verb, rest = split_verb(argv)
    if verb == "help":  # as in git and cargo: `rota help`, `rota help submit`
        return _dispatch([*rest, "--help"])
    if verb is None:
        return _run_without_verb(rest)
    if verb not in VERBS:
        raise _unknown_verb_error(verb)
    parser, run = verb_parser(verb)
    args = parser.parse_args(rest, argparse.Namespace(home=None, json=False))
    try:
        code = run(args)
    except RotaError as error:
        if error.response_status is not None:
            from rota.cli.option_names import as_option_names

            error.args = (as_option_names(error.message, parser),)
        raise
    return code


def split_verb(argv: list[str]) -> tuple[str | None, list[str]]:
    """Return the verb and all other words in order: the parser of a verb accepts global options at any position."""
    index = 0
    while index < len(argv) and argv[index].startswith("-"):
        index += 2 if argv[index] == "--home" else 1
    if index >= len(argv):
        return None, argv
    return argv[index], [*argv[:index], *argv[index + 1 :]]


def _run_without_verb(argv: list[str]) -> int:
    if argv == ["--version"]:  # the version alone needs no module of a verb
        from rota import __version__

        print(f"rota {__version__}")
        return 0
    parser = full_parser()
    if "--help" in argv or "-h" in argv or "--version" in argv:
        parser.parse_args(argv)  # prints and exits
    parser.print_help(sys.stderr)
    return UsageError.exit_code


def _unknown_verb_error(verb: str) -> UsageError:
    suggestion = _VERB_SYNONYMS.get(verb) or find_nearest(verb, VERBS, cutoff=_MIN_SIMILARITY)
    advice = (
        f"did you mean `rota {suggestion}`?"
        if suggestion and suggestion not in _DESTRUCTIVE_VERBS
        else "`rota --help` lists all commands"
    )
    return UsageError(f"unknown command {verb!r}; {advice}")


def _ensure_streams() -> None:
    """Replace closed standard streams by /dev/null, before a socket can take their descriptor numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _print_error(message: str, code: int) -> int:
    if "://" in message:  # argparse quotes arguments
        from rota.mask import mask_passwords

        message = mask_passwords(message)
    text = "\n".join(map(shorten, message.split("\n")))  # a workflow file has a line for each error
    try:
        print(f"rota: {text}", file=sys.stderr)
    except BrokenPipeError:
        _discard_output()
    return code


def _discard_output() -> None:
    """Redirect unwritable streams to /dev/null, so that the final flush of the interpreter does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(null, stream.fileno())
    os.close(null)
