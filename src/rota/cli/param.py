"""Syntax of params: `K=TEXT`, `K:=JSON`, and both from a file."""

from __future__ import annotations

import json
import sys

from rota.cli.parser import UsageError

PARAM_SYNTAX = (
    "K=TEXT, K:=JSON for other types, K=@FILE or K:=@FILE for the content of a file (@- is stdin, @@ is an @)"
)


def parse_params(texts: list[str] | None) -> dict[str, object]:
    if sum(text.partition("=")[2] == "@-" for text in texts or ()) > 1:
        raise UsageError("--param: standard input can be read only once; pass the other params by value or from a file")
    return dict(parse_param(text) for text in texts or ())


def parse_param(text: str) -> tuple[str, object]:
    """Parse a param. `k=v` is always text, so that the version 1.10 does not become 1.1. `k:=v` is JSON."""
    key, equals, value = text.partition("=")
    if not equals or not key.removesuffix(":"):
        raise UsageError(f"--param {text}: write it as NAME=TEXT, NAME:=JSON or NAME=@FILE")
    name, is_json = key.removesuffix(":"), key.endswith(":")
    if value.startswith("@@") and not is_json:
        return name, value[1:]
    content = _read_file(name, value[1:]) if value.startswith("@") else value
    if not is_json:
        return name, content
    from rota.workflow.document import unique_members

    try:
        return name, json.loads(
            content, object_pairs_hook=unique_members, parse_constant=_refuse_constant, parse_float=_parse_number
        )
    except (ValueError, RecursionError) as error:
        source = value[1:] if value.startswith("@") else "the value"
        raise UsageError(f"--param {name}: {source} is not valid JSON ({error}); for text write {name}=TEXT") from None


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is not a JSON number")


def _parse_number(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        raise ValueError(f"{text} is too large")
    return number


def _read_file(name: str, path: str) -> str:
    """Read a file as UTF-8 text, including its last newline."""
    try:
        with sys.stdin.buffer if path == "-" else open(path, "rb") as file:  # noqa: PTH123 - importing pathlib slows down every command
            return file.read().decode()
    except OSError as error:
        raise UsageError(
            f"--param {name}: {path or 'no file'} cannot be read ({error.strerror}); for a text that starts with @"
            f" write {name}=@@…"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"--param {name}: {path} is not UTF-8 text; pass the file name as the param instead") from None
