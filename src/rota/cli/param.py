"""Params as commands take them: `K=TEXT`, `K:=JSON`, and either from a file."""

from __future__ import annotations

import json
import sys

from rota.cli.parser import Usage

PARAM_HELP = "a param: K=TEXT, K:=JSON for what is not text, K=@FILE or K:=@FILE to read it (@- is stdin, @@ an @)"


def params(texts: list[str] | None) -> dict[str, object]:
    if sum(text.partition("=")[2] == "@-" for text in texts or ()) > 1:
        raise Usage("--param: standard input can be read once; give the others by value or from a file")
    return dict(param(text) for text in texts or ())


def param(text: str) -> tuple[str, object]:
    """`k=v` is always text: a version of 1.10 must not become 1.1. `k:=v` is JSON."""
    key, equals, value = text.partition("=")
    if not equals or not key.removesuffix(":"):
        raise Usage(f"--param {text}: write it as NAME=TEXT, NAME:=JSON or NAME=@FILE")
    name, is_json = key.removesuffix(":"), key.endswith(":")
    if value.startswith("@@") and not is_json:
        return name, value[1:]
    content = _read(name, value[1:]) if value.startswith("@") else value
    if not is_json:
        return name, content
    try:
        return name, json.loads(content, parse_constant=_refuse_constant, parse_float=_number)
    except (ValueError, RecursionError) as error:
        what = f"{value[1:]}" if value.startswith("@") else "what follows :="
        raise Usage(f"--param {name}: {what} is not JSON ({error}); for text write {name}=TEXT") from None


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is no number of JSON")


def _number(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        raise ValueError(f"{text} is too large a number")
    return number


def _read(name: str, path: str) -> str:
    """As it is, to its last newline."""
    try:
        with sys.stdin.buffer if path == "-" else open(path, "rb") as file:  # noqa: PTH123 - pathlib costs a command more
            return file.read().decode()
    except OSError as error:
        raise Usage(
            f"--param {name}: {path or 'no file'} cannot be read ({error.strerror}); for a text that begins with @"
            f" write {name}=@@…"
        ) from None
    except UnicodeDecodeError:
        raise Usage(f"--param {name}: {path} is not UTF-8 text; give the file's name as the param instead") from None
