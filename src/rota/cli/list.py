"""`rota list`: jobs as a table, as blocks or as JSON, those that are not finished unless more is asked for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from rota.cli import by, display
from rota.cli.field import MARKS
from rota.cli.parser import Usage, group_id
from rota.cli.render import job_block, job_table
from rota.cli.terminal import has_colour, say, say_json, talk, width_of
from rota.client.ask.job import ACTIVE, TERMINAL, list_jobs
from rota.client.ask.scheduler import list_pools
from rota.client.session import Session
from rota.display import COLUMNS
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

_STATUSES = (*ACTIVE, *TERMINAL)
_FILTERS = ("name", "type", "flow", "phase", "target", "group")
_PAGE = 500


def _status(text: str) -> str:
    return text.upper().replace("-", "_")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="finished jobs too")
    parser.add_argument(
        "--status", action="append", type=_status, choices=_STATUSES, metavar="S",
        help=f"only jobs with this status; may be repeated. One of {', '.join(_STATUSES)}",
    )  # fmt: skip
    for name in _FILTERS:
        parser.add_argument(f"--{name}", metavar="X", help=f"only jobs of this {name}")
    parser.add_argument("--limit", type=int, metavar="N", help="at most N jobs")
    parser.add_argument(
        "--by", choices=by.KEYS,
        help="under a heading for each, with what is not ready marked; by pool, under each one that has a limit",
    )  # fmt: skip
    display.add_arguments(parser, "list")


def run(args: argparse.Namespace) -> int:
    if args.limit is not None and args.limit < 1:
        raise Usage("--limit takes the number of jobs to list, 1 or more")
    display.check(args)
    session = Session(find_home(args.home))
    args.group = None if args.group is None else group_id(args.group)
    only = [(name, getattr(args, name)) for name in _FILTERS if getattr(args, name) is not None]
    answer = collect(session, args.status or (() if args.all else ACTIVE), args.limit, only)
    chosen, fields = display.choose(args, session, "list")
    pools = session.ask(list_pools()) if args.by == "pool" else None
    groups: by.Groups = [(None, answer["jobs"])]
    groups = by.groups(answer["jobs"], args.by, pools) if args.by else groups
    if chosen == "json":
        _say_json(answer, groups, args.by, fields)
        return 0
    heads = [by.heading(args.by, key, jobs, pools) for key, jobs in groups] if args.by else []
    if answer["jobs"]:
        shape = _blocks if chosen == "block" else _table
        say("\n".join(shape([jobs for _, jobs in groups], heads, fields)))
    if answer["jobs"] and (args.by or "mark" in (fields or ())):
        talk(", ".join(f"{sign} {meaning}" for sign, meaning in MARKS.items()))
    _footer(args, answer, is_filtered=bool(only))
    return 0


def collect(session: Session, statuses: Sequence[str], limit: int | None, only: Sequence[tuple[str, str]] = ()) -> Json:
    """All pages as one, up to `limit` jobs."""
    found: list[Json] = []
    cursor: str | None = None
    while True:
        size = _PAGE if limit is None else min(_PAGE, limit - len(found))
        page = session.ask(list_jobs(status=statuses, limit=size, cursor=cursor, **dict(only)))
        known = {job["id"] for job in found}  # one that has ended meanwhile is on two pages
        found += [job for job in page["jobs"] if job["id"] not in known]
        cursor = page.get("next")
        if cursor is None or (limit is not None and len(found) >= limit):
            return {"jobs": found[:limit], "next": cursor, "counts": page.get("counts") or {}}


def _say_json(answer: Json, groups: by.Groups, key: str | None, fields: Sequence[str] | None) -> None:
    now = datetime.now(UTC)
    shown = [
        {"key": name, "counts": by.counts(jobs), "jobs": [display.pick(job, fields, now) for job in jobs]}
        for name, jobs in groups
    ]
    rest = {name: value for name, value in answer.items() if name != "jobs"}
    say_json({"by": key, "groups": shown, **rest} if key else {"jobs": shown[0]["jobs"], **rest})


def _table(groups: Sequence[Sequence[Json]], heads: Sequence[str], fields: Sequence[str] | None) -> list[str]:
    """One table, so that the columns of all groups stand below each other."""
    width, colour, now = width_of(sys.stdout), has_colour(sys.stdout), datetime.now(UTC)
    jobs = [job for group in groups for job in group]
    columns = _marked(fields or COLUMNS) if heads else fields or COLUMNS
    lines = job_table(jobs, columns, now=now, width=width, colour=colour)
    if not heads:
        return lines
    shown, place = lines[:1], 1
    for head, group in zip(heads, groups, strict=True):
        shown += ["", head, *lines[place : place + len(group)]]
        place += len(group)
    return shown


def _blocks(groups: Sequence[Sequence[Json]], heads: Sequence[str], fields: Sequence[str] | None) -> list[str]:
    colour, now = has_colour(sys.stdout), datetime.now(UTC)
    shown: list[str] = []
    for number, group in enumerate(groups):
        shown += ["", heads[number]] if heads else []
        for job in group:
            block = job_block(job, _marked(fields) if heads and fields else fields, now=now, colour=colour)
            mark = job_block(job, ("mark",), now=now) if heads and not fields else []
            shown += ["", *mark, *block]
    return shown[1:]


def _marked(fields: Sequence[str]) -> Sequence[str]:
    return fields if "mark" in fields else ("mark", *fields)


def _footer(args: argparse.Namespace, answer: Json, *, is_filtered: bool) -> None:
    if answer["next"] is not None:
        talk(f"there are more; --limit {args.limit * 2} shows further ones")
    if args.all or args.status:
        if not answer["jobs"]:
            talk("no such jobs")
        return
    if not answer["jobs"]:
        talk("no such active jobs" if is_filtered else "no active jobs")
    if is_filtered:  # Those the scheduler counts are all that there are, not these.
        talk("finished jobs are left out; --all lists them too")
        return
    ended = {status: count for status in TERMINAL if (count := answer["counts"].get(status, 0))}
    if ended:
        total, parts = sum(ended.values()), ", ".join(f"{count} {status}" for status, count in ended.items())
        talk(f"{total} finished job{'s' * (total != 1)} hidden ({parts}); --all shows them")
