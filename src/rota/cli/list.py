"""`rota list`: jobs as a table, those that are not finished unless more is asked for."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

from rota.cli.parser import Usage
from rota.cli.render import job_table
from rota.cli.terminal import has_colour, say, say_json, talk, width_of
from rota.client import api
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.api import Json

_STATUSES = (*api.ACTIVE, *api.TERMINAL)
_PAGE = 500


def _status(text: str) -> str:
    return text.upper().replace("-", "_")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="finished jobs too")
    parser.add_argument(
        "--status", action="append", type=_status, choices=_STATUSES, metavar="S",
        help=f"only jobs with this status; may be repeated. One of {', '.join(_STATUSES)}",
    )  # fmt: skip
    parser.add_argument("--limit", type=int, metavar="N", help="at most N jobs")


def run(args: argparse.Namespace) -> int:
    if args.limit is not None and args.limit < 1:
        raise Usage("--limit takes the number of jobs to list, 1 or more")
    statuses = args.status or (() if args.all else api.ACTIVE)
    answer = collect(Session(find_home(args.home)), statuses, args.limit)
    if args.json:
        say_json(answer)
        return 0
    if answer["jobs"]:
        width, colour = width_of(sys.stdout), has_colour(sys.stdout)
        say("\n".join(job_table(answer["jobs"], now=datetime.now(UTC), width=width, colour=colour)))
    _footer(args, answer)
    return 0


def collect(session: Session, statuses: tuple[str, ...] | list[str], limit: int | None) -> Json:
    """All pages as one, up to `limit` jobs."""
    found: list[Json] = []
    cursor: str | None = None
    while True:
        size = _PAGE if limit is None else min(_PAGE, limit - len(found))
        page = api.jobs(session, statuses=statuses, limit=size, cursor=cursor)
        found += page["jobs"]
        cursor = page.get("next")
        if cursor is None or (limit is not None and len(found) >= limit):
            return {"jobs": found[:limit], "next": cursor, "counts": page.get("counts") or {}}


def _footer(args: argparse.Namespace, answer: Json) -> None:
    if answer["next"] is not None:
        talk(f"there are more; --limit {args.limit * 2} shows further ones")
    if args.all or args.status:
        if not answer["jobs"]:
            talk("no such jobs")
        return
    finished = sum(answer["counts"].get(status, 0) for status in api.TERMINAL)
    if not answer["jobs"]:
        talk("no active jobs")
    if finished:
        talk(f"{finished} finished job{'s' * (finished != 1)} hidden; --all shows them")
