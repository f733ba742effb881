"""`--format` and `--fields`, and what the home's `[display.…]` says where they are not given."""

from __future__ import annotations

import argparse

from rota.cli.field import made, value_of
from rota.cli.parser import Usage
from rota.client.ask.scheduler import get_display
from rota.client.session import Session
from rota.display import FORMATS, check_fields
from rota.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Any

    from rota.client.ask import Json


def add_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("--format", choices=FORMATS, help=f"instead of display.{verb}.format of the configuration")
    parser.add_argument(
        "--fields", type=_fields, metavar="A,B",
        help="only these, in this order: any field of the job's JSON, part of one as run.exit_code, or mark, title, "
        f"why, time; instead of display.{verb}.fields",
    )  # fmt: skip


def _fields(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    check_fields(names)
    return names


def choose(args: argparse.Namespace, session: Session, verb: str) -> tuple[str, Sequence[str] | None]:
    """Format and fields. JSON is for programs: what a person has configured does not take fields from it."""
    if args.json:
        return "json", args.fields
    if args.format and (args.fields or args.format == "json"):
        return args.format, args.fields
    configured = _configured(session, verb)
    chosen = args.format or configured.get("format") or {"list": "table", "show": "block"}[verb]
    return chosen, args.fields or (None if chosen == "json" else configured.get("fields"))


def check(args: argparse.Namespace) -> None:
    if args.json and args.format not in (None, "json"):
        raise Usage(f"--json and --format {args.format} exclude each other; leave one out")


def _configured(session: Session, verb: str) -> Json:
    try:
        found: Json = session.ask(get_display()).get(verb) or {}
    except NotFound:  # A scheduler from before an upgrade does not know of it.
        return {}
    return found


def pick(job: Json, fields: Sequence[str] | None, now: datetime) -> Json:
    """The job's JSON, or of it what was asked for."""
    if fields is None:
        return job
    picked: dict[str, Any] = {}
    for field in fields:
        text = made(job, field, now)
        picked[field] = value_of(job, field) if text is None else text
    return picked
