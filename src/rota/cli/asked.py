"""What `rota submit`, `rota run` and `rota schedule` ask for alike: a command in its surroundings, locks, pools."""

from __future__ import annotations

import argparse
import json
import os

from rota.cli.parser import Usage, pairs
from rota.cli.terminal import talk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

_MODES = ("exclusive", "shared")


def lock(text: str) -> dict[str, str]:
    key, colon, mode = text.rpartition(":")
    # A key may hold colons of its own; only a mode at the end is one.
    if mode in _MODES and key:
        return {"key": key, "mode": mode}
    if colon and (not key or any(known.startswith(mode[:2]) for known in _MODES)):
        raise Usage(f"--lock {text}: write it as KEY or KEY:shared (or KEY:exclusive, which is what KEY alone means)")
    return {"key": text, "mode": "exclusive"}


def draw(text: str) -> tuple[str, int]:
    name, equals, weight = text.rpartition("=")
    if not equals:
        return text, 1
    if not name or not weight.isdecimal():
        raise Usage(f"--pool {text}: write it as NAME or NAME=WEIGHT, the weight a whole number")
    return name, int(weight)


def surroundings(args: argparse.Namespace, *, is_change: bool = False) -> Json:
    """Where it is to run and in what environment: the caller's, unless `--cwd` and `--env` say otherwise. What is asked
    for by name is said too, since it goes before what a template says. A change is of what was named alone."""
    around: Json = {}
    if args.cwd is not None or not is_change:
        around["cwd"] = directory(args.cwd)
        refuse_bytes(around)
    if args.env is not None or not is_change:
        variables = environment(args.env)
        given = [name for name in pairs(args.env, "--env") if name in variables]
        around |= {"env": variables, "inherit_env": False, **({"env_given": given} if given else {})}
    return around


def directory(asked: str | None) -> str:
    try:
        return os.path.abspath(asked or ".")  # noqa: PTH100 - keeps the path as it is named, links and all
    except FileNotFoundError:
        raise Usage("the working directory no longer exists; go to another, or name one with --cwd") from None


def environment(extra: list[str] | None) -> dict[str, str]:
    """The caller's environment, whole. JSON is text, so a variable that is not UTF-8 cannot be carried."""
    variables = {**os.environ, **pairs(extra, "--env")}
    lost = sorted(name for name, value in variables.items() if not _is_text(name + value))
    for name in lost:
        del variables[name]
    if lost:
        shown = ", ".join(name.encode("utf-8", "backslashreplace").decode() for name in lost)
        talk(f"warning: not UTF-8, left out of the environment: {shown}")
    return variables


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # Python keeps bytes that are not UTF-8 as lone surrogates.
        return False
    return True


def refuse_bytes(request: Json) -> None:
    if not _is_text(json.dumps(request, ensure_ascii=False)):
        raise Usage("the command, its directory or an option is not valid UTF-8; rename what it names")


def refuse_both(command: list[str], template: str | None, verb: str) -> None:
    """A command or a template, which brings its own."""
    if command and template is not None:
        raise Usage(
            f"template {template} brings its own command, so leave out {command[0]!r} and what follows; what varies"
            " from job to job is a --param"
        )
    if not command and template is None:
        raise Usage(f"there is no command to {verb}; write it after --, as in: rota {verb} -- make test")


def hint_at_quoting(command: list[str], verb: str) -> None:
    if len(command) != 1 or not any(each.isspace() for each in command[0]):
        return
    from shutil import which

    if which(command[0]) is None:
        talk(f"hint: {command[0]!r} is taken as one program's name; for a shell line: rota {verb} -- sh -c '…'")
