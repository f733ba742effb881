"""Options that `rota submit`, `rota schedule` and `rota run` share, and their conversion to fields of a request.

Params are written as `K=TEXT`, `K:=JSON`, or with the value from a file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from rota.cli.parser import UsageError, parse_pairs
from rota.cli.terminal import print_notice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_LOCK_MODES = ("exclusive", "shared")
PARAM_SYNTAX = (
    "K=TEXT, K:=JSON for other types, K=@FILE or K:=@FILE for the content of a file (@- is stdin, @@ is an @)"
)
_PLAIN_OPTIONS = (
    "template",
    "type",
    "priority",
    "needs",
    "produces",
    "missing_producer",
    "pin",
    "flow",
    "phase",
    "unique",
    "target",
    "timeout",
    "idle_timeout",
    "delay",
    "retries",
    "retry",
    "skip_if",
    "base",
)
_FLAG_OPTIONS = ("parallelizable", "worktree", "patch", "with_diff")


def add_job_options(
    parser: argparse.ArgumentParser, *, time_phrase: str, delay_phrase: str, on_conflict: str, retries: int
) -> None:
    """Add the job options. The phrases complete the help texts: `time_phrase` says when the job is submitted,
    `delay_phrase` when its delay starts, and `on_conflict` what happens if its unique key is in use."""
    add = parser.add_argument
    add(
        "--template",
        metavar="T",
        help="Use the command and the defaults of template T; `rota template list` lists templates.",
    )
    add("--param", action="append", metavar="K=V", help=f"Set a param: {PARAM_SYNTAX}.")
    add("--type", help="Set the job type; the job draws from the pool type/TYPE.")
    add("--priority", type=int, metavar="N", help="Set the priority; higher priorities start first (default: 0).")
    add(
        "--needs",
        action="append",
        metavar="ARTIFACT",
        help="Wait for this artifact, for example file:plan.md or plan_doc:NAME.",
    )
    add(
        "--produces",
        action="append",
        metavar="ARTIFACT",
        help="Declare an artifact that the job produces; jobs that need it wait.",
    )
    add(
        "--missing-producer",
        choices=("block", "wait"),
        help="Block or wait if no job produces a needed artifact (default: wait for file: and custom:, else block).",
    )
    add(
        "--pin", metavar="BRANCH[@OID]", help=f"Run only while BRANCH points to OID, or to its commit at {time_phrase}."
    )
    add("--lock", action="append", metavar="KEY[:shared]", help="Hold this lock while the job runs.")
    add("--pool", action="append", metavar="NAME[=W]", help="Draw W units (default: 1) from this pool.")
    add("--flow", help="Set the flow; the job draws from the pool flow/FLOW.")
    add("--phase", metavar="PHASE", help="Set the phase; one job of a flow and phase runs at a time.")
    add("--parallelizable", action="store_true", help="Allow the job to run next to others of its flow and phase.")
    add("--unique", metavar="KEY", help=f"Allow one active job with this key; if there is one, {on_conflict}.")
    add("--target", help="Set the target; the job draws from the pool target/TARGET.")
    add("--timeout", metavar="DURATION", help="Kill the job after DURATION, for example 90s or 1h30m.")
    add("--idle-timeout", metavar="DURATION", help="Kill the job after DURATION without output.")
    add("--delay", metavar="DURATION", help=f"Start the job no earlier than DURATION {delay_phrase}.")
    add("--retries", type=int, metavar="N", help=f"Retry the job up to N times if it fails (default: {retries}).")
    add("--retry", metavar="NAME", help="Set the retry policy: default, fleet, or a configured [retry.NAME].")
    add("--skip-if", metavar="CMD", help="Skip the job if this shell command exits with 0.")
    add("--worktree", action="store_true", help="Run the job in its own git worktree and branch.")
    add("--base", metavar="REF", help="Create the worktree from REF (default: HEAD).")
    add(
        "--patch", action="store_true", help="Save the changes that the job makes to the working tree as command.patch."
    )
    add(
        "--with-diff",
        action="store_true",
        help=f"Pass the uncommitted changes at {time_phrase} to the job as $ROTA_INPUT_PATCH.",
    )
    add("--webhook", action="append", metavar="URL", help="Notify this URL when the job ends.")
    add(
        "--webhook-event",
        action="append",
        metavar="EVENT",
        help="Notify of this event only (default: job.run.completed, .failed and .skipped).",
    )
    add(
        "--env",
        action="append",
        metavar="K=V",
        help="Set an environment variable, in addition to the environment of the caller.",
    )
    add("--cwd", metavar="DIR", help="Run the job in DIR (default: the current directory).")


def job_options(args: argparse.Namespace) -> Json:
    """Return the given options as fields of the request; the defaults of the server apply to the others."""
    request: Json = {name: getattr(args, name) for name in _PLAIN_OPTIONS}
    request |= {name: getattr(args, name) or None for name in _FLAG_OPTIONS}
    request |= {
        "params": parse_params(args.param) or None,
        "locks": [parse_lock(text) for text in args.lock or ()] or None,
        "pools": dict(parse_pool(text) for text in args.pool or ()) or None,
        "webhooks": args.webhook,
        "webhook_events": args.webhook_event,
    }
    return {name: value for name, value in request.items() if value is not None}


def parse_lock(text: str) -> dict[str, str]:
    key, colon, mode = text.rpartition(":")
    # A key can contain colons; only a mode at the end is a suffix.
    if mode in _LOCK_MODES and key:
        return {"key": key, "mode": mode}
    if colon and (not key or any(known.startswith(mode[:2]) for known in _LOCK_MODES)):
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
    content = _read_param_file(name, value[1:]) if value.startswith("@") else value
    if not is_json:
        return name, content
    from rota.workflows.document import unique_members

    try:
        return name, json.loads(
            content, object_pairs_hook=unique_members, parse_constant=_refuse_constant, parse_float=_parse_float
        )
    except (ValueError, RecursionError) as error:
        source = value[1:] if value.startswith("@") else "the value"
        raise UsageError(f"--param {name}: {source} is not valid JSON ({error}); for text write {name}=TEXT") from None


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is not a JSON number")


def _parse_float(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        raise ValueError(f"{text} is too large")
    return number


def _read_param_file(name: str, path: str) -> str:
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
