"""`rota`: find the verb, load its module, and turn every failure into one line and one exit code."""

from __future__ import annotations

import argparse
import os
import sys

from rota.cli.parser import VERBS, Usage, full_parser, verb_parser
from rota.errors import RotaError, shortened

INTERRUPTED = 130
PIPE_CLOSED = 141
"""What a shell reports for a program that SIGPIPE ended, as it ends `yes | head -1`."""


_ELSEWHERE = {
    "ls": "list", "ps": "list", "jobs": "list", "add": "submit", "log": "logs", "tail": "logs",
    "kill": "cancel", "rm": "cancel", "start": "up", "stop": "down", "info": "show", "dag": "graph",
    "tree": "graph",
}  # fmt: skip
"""What other tools call it."""


def program() -> int:
    """`rota` as a process. Interrupted, it ends by that signal: a shell says 130, and ends the loop around it too."""
    try:
        return _answer(sys.argv[1:])
    except KeyboardInterrupt:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return INTERRUPTED


def main(argv: list[str]) -> int:
    try:
        return _answer(argv)
    except KeyboardInterrupt:
        return INTERRUPTED


def _answer(words: list[str]) -> int:
    _have_streams()
    try:
        code = _dispatch(words)
        sys.stdout.flush()
    except RotaError as error:
        return _complain(error.message, error.exit_code)
    except BrokenPipeError:
        _drop_output()
        return PIPE_CLOSED
    except SystemExit as leaving:  # argparse has printed its help or the version.
        return leaving.code if isinstance(leaving.code, int) else 0
    except OSError as error:
        return _complain(f"{error}", 1)
    return code


def _dispatch(words: list[str]) -> int:
    verb, rest = split_verb(words)
    if verb is None:
        return _without_verb(rest)
    if verb not in VERBS:
        raise _unknown(verb)
    parser, module = verb_parser(verb)
    args = parser.parse_args(rest, argparse.Namespace(home=None, json=False))
    try:
        code: int = module.run(args)
    except RotaError as error:
        if error.came_with is not None:
            from rota.cli.option import in_options

            error.args = (in_options(error.message, parser),)
        raise
    return code


def split_verb(words: list[str]) -> tuple[str | None, list[str]]:
    """The verb, and all other words in order: a verb's parser takes the global options wherever they stand."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        index += 2 if words[index] == "--home" else 1
    if index >= len(words):
        return None, words
    return words[index], [*words[:index], *words[index + 1 :]]


def _without_verb(words: list[str]) -> int:
    if words == ["--version"]:  # alone it needs no verb's module
        from rota import __version__

        print(f"rota {__version__}")
        return 0
    parser = full_parser()
    if "--help" in words or "-h" in words or "--version" in words:
        parser.parse_args(words)  # Prints and leaves.
    parser.print_help(sys.stderr)
    return Usage.exit_code


def _unknown(verb: str) -> Usage:
    from difflib import get_close_matches

    near = [_ELSEWHERE[verb]] if verb in _ELSEWHERE else get_close_matches(verb, VERBS, n=1, cutoff=0.5)
    advice = f"did you mean `rota {near[0]}`?" if near else "`rota --help` lists them"
    return Usage(f"there is no verb {verb!r}; {advice}")


def _have_streams() -> None:
    """A stream that was closed becomes one that nobody reads, before a socket can take its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _complain(message: str, code: int) -> int:
    said = "\n".join(map(shortened, message.split("\n")))  # of a file, one line for each thing that is wrong
    try:
        print(f"rota: {said}", file=sys.stderr)
    except BrokenPipeError:
        _drop_output()
    return code


def _drop_output() -> None:
    """Nobody reads any more: without this the interpreter would complain about its last flush at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
