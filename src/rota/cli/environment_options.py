"""Options that `rota submit`, `rota run` and `rota schedule` share: command, environment, locks and pools."""

from __future__ import annotations

import argparse
import json
import os

from rota.cli.parser import UsageError, parse_pairs
from rota.cli.terminal import print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_MODES = ("exclusive", "shared")


def parse_lock(text: str) -> dict[str, str]:
    key, colon, mode = text.rpartition(":")
    # A key can contain colons; only a mode at the end is a suffix.
    if mode in _MODES and key:
        return {"key": key, "mode": mode}
    if colon and (not key or any(known.startswith(mode[:2]) for known in _MODES)):
        raise UsageError(f"--lock {text}: write it as KEY or KEY:shared; KEY alone means KEY:exclusive")
    return {"key": text, "mode": "exclusive"}


def parse_pool(text: str) -> tuple[str, int]:
    name, equals, weight = text.rpartition("=")
    if not equals:
        return text, 1
    if not name or not weight.isdecimal():
        raise UsageError(f"--pool {text}: write it as NAME or NAME=WEIGHT, with a whole number as WEIGHT")
    return name, int(weight)


def environment_request(args: argparse.Namespace, *, is_change: bool = False) -> Json:
    """Return the working directory and the environment: those of the caller, with `--cwd` and `--env` applied.
    `explicit_env` lists the variables of `--env`, because they take precedence over a template. A change has only the
    options that were explicit."""
    request: Json = {}
    if args.cwd is not None or not is_change:
        request["cwd"] = working_directory(args.cwd)
        require_utf8(request)
    if args.env is not None or not is_change:
        variables = caller_environment(args.env)
        explicit = [name for name in parse_pairs(args.env, "--env") if name in variables]
        request |= {"env": variables, "inherit_env": False, **({"explicit_env": explicit} if explicit else {})}
    return request


def working_directory(path: str | None) -> str:
    try:
        return os.path.abspath(path or ".")  # noqa: PTH100 - keeps the path as it is written, with its symlinks
    except FileNotFoundError:
        raise UsageError("the working directory no longer exists; change to another one, or set --cwd") from None


def caller_environment(overrides: list[str] | None) -> dict[str, str]:
    """Return the environment of the caller. A variable that is not UTF-8 is dropped, because JSON cannot hold it."""
    variables = {**os.environ, **parse_pairs(overrides, "--env")}
    dropped = sorted(name for name, value in variables.items() if not _is_text(name + value))
    for name in dropped:
        del variables[name]
    if dropped:
        shown = ", ".join(name.encode("utf-8", "backslashreplace").decode() for name in dropped)
        print_notice(f"warning: dropped from the environment because they are not UTF-8: {shown}")
    return variables


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # Python keeps bytes that are not UTF-8 as lone surrogates.
        return False
    return True


def require_utf8(request: Json) -> None:
    if not _is_text(json.dumps(request, ensure_ascii=False)):
        raise UsageError("the command, its directory or an option is not valid UTF-8; rename the file or directory")


def require_one_command(command: list[str], template: str | None, verb: str) -> None:
    """Raise unless there is either a command or a template, which has its own command."""
    if command and template is not None:
        raise UsageError(
            f"template {template} has its own command; remove {command[0]!r} and its arguments, and pass values with"
            " --param"
        )
    if not command and template is None:
        raise UsageError(f"there is no command to {verb}; add it after --, for example: rota {verb} -- make test")


def print_quoting_hint(command: list[str], verb: str) -> None:
    if len(command) != 1 or not any(character.isspace() for character in command[0]):
        return
    from shutil import which

    if which(command[0]) is None:
        print_notice(
            f"hint: {command[0]!r} is treated as the name of one program; for a shell command: rota {verb} -- sh -c '…'"
        )
