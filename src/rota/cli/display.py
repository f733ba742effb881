"""Options `--format` and `--fields`, with the configured `[display.…]` as their defaults."""

from __future__ import annotations

import argparse

from rota.cli.parser import UsageError
from rota.cli.rendering import derived_value, field_value
from rota.client.requests.control import get_display
from rota.client.session import SchedulerSession
from rota.columns import FORMATS, check_fields
from rota.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Any

    from rota.client.requests import Json


def add_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("--format", choices=FORMATS, help=f"Set the output format (default: display.{verb}.format).")
    parser.add_argument(
        "--fields",
        type=_parse_fields,
        metavar="A,B",
        help="Show only these fields, in this order: fields of the job's JSON, nested ones such as run.exit_code, or "
        f"mark, title, why, time (default: display.{verb}.fields).",
    )


def _parse_fields(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    check_fields(names)
    return names


def choose_display(
    args: argparse.Namespace, session: SchedulerSession | None, verb: str
) -> tuple[str, Sequence[str] | None]:
    """Return the format and the fields. The configured fields do not apply to JSON, which programs read. Without a
    session the defaults apply."""
    if args.json:
        return "json", args.fields
    if args.format and (args.fields or args.format == "json"):
        return args.format, args.fields
    configured = {} if session is None else _configured_display(session, verb)
    format_name = args.format or configured.get("format") or {"list": "table", "show": "block"}[verb]
    return format_name, args.fields or (None if format_name == "json" else configured.get("fields"))


def check_options(args: argparse.Namespace) -> None:
    if args.json and args.format not in (None, "json"):
        raise UsageError(f"--json and --format {args.format} exclude each other; remove one")


def _configured_display(session: SchedulerSession, verb: str) -> Json:
    try:
        display: Json = session.request_json(get_display()).get(verb) or {}
    except NotFound:  # a scheduler of an older version
        return {}
    return display


def select_fields(job: Json, fields: Sequence[str] | None, now: datetime) -> Json:
    """Return the JSON of a job, reduced to `fields` if given."""
    if fields is None:
        return job
    selected: dict[str, Any] = {}
    for field in fields:
        text = derived_value(job, field, now)
        selected[field] = field_value(job, field) if text is None else text
    return selected
