"""`rota list`: list jobs as a table, as blocks or as JSON; by default only unfinished jobs.

Jobs are read and printed page by page, so that a list of any length starts immediately and needs only the memory of a
page. Only `--by` must read the whole list before anything is printed: a heading counts its jobs, and the last job of a
list can belong under the first heading. The rendered jobs are stored in a temporary file; memory holds the counts of
the groups and a file offset for each job.
"""

from __future__ import annotations

import argparse
import json
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain

from rota.cli import display
from rota.cli.parser import UsageError, group_id
from rota.cli.rendering import MARKS, JobTable, job_block, mark
from rota.cli.terminal import (
    Canvas,
    JsonObject,
    OutputError,
    can_redraw,
    flush,
    has_color,
    print_json_parts,
    print_notice,
    print_text,
    terminal_height,
    terminal_width,
)
from rota.client.requests import MAX_PAGE_SIZE
from rota.client.requests.control import list_pools
from rota.client.requests.jobs import ACTIVE_STATUSES, TERMINAL_STATUSES, list_jobs
from rota.client.session import SchedulerSession
from rota.columns import DEFAULT_COLUMNS
from rota.errors import escape_unprintable
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any

    from rota.client.requests import Json

_GROUPINGS = ("target", "flow", "pool", "group")
_STATUSES = (*ACTIVE_STATUSES, *TERMINAL_STATUSES)
_FILTERS = ("name", "type", "flow", "phase", "target", "group")
_FIRST_PAGE_SIZE = 100
"""Jobs on the first page: few, so that the first line is printed immediately."""
_MIN_ROWS = 50
"""Minimum number of jobs listed on a terminal of any size."""
_RESERVED_ROWS = 3
"""Terminal lines for the header, the footer and the prompt."""
_MAX_MEMORY_BYTES = 1 << 20
"""Maximum bytes of grouped jobs in memory; beyond that they are stored in a file."""
_BITS_PER_WORD = 4096


def _parse_status(text: str) -> str:
    return text.upper().replace("-", "_")


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="Include ended jobs.")
    parser.add_argument(
        "--status",
        action="append",
        type=_parse_status,
        choices=_STATUSES,
        metavar="S",
        help=f"List only jobs with this status: {', '.join(_STATUSES)}. Can be repeated.",
    )
    for name in _FILTERS:
        parser.add_argument(f"--{name}", metavar="X", help=f"List only jobs of this {name}.")
    parser.add_argument("--limit", type=int, metavar="N", help="List at most N jobs.")
    parser.add_argument(
        "--by",
        choices=_GROUPINGS,
        help="Group the jobs under headings and mark jobs that are not ready; pool groups by each limited pool.",
    )
    display.add_arguments(parser, "list")


def run_list(args: argparse.Namespace) -> int:
    if args.limit is not None and args.limit < 1:
        raise UsageError("--limit takes the number of jobs to list, 1 or more")
    display.check_options(args)
    session = SchedulerSession(find_home(args.home), is_read_only=True)
    args.group = None if args.group is None else group_id(args.group)
    filters = [(name, getattr(args, name)) for name in _FILTERS if getattr(args, name) is not None]
    format_name, fields = display.choose_display(args, session, "list")
    limit = args.limit
    if limit is None and format_name != "json" and sys.stdout.isatty():
        limit = max(_MIN_ROWS, terminal_height(sys.stdout) - _RESERVED_ROWS)
    listing = JobListing(session, args.status or (() if args.all else ACTIVE_STATUSES), limit, dict(filters))
    if args.by:
        from tempfile import SpooledTemporaryFile

        pools = session.request_json(list_pools()) if args.by == "pool" else None
        with SpooledTemporaryFile(_MAX_MEMORY_BYTES) as file:
            _print_grouped(listing, JobGrouping(args.by, pools, file), format_name, fields)
    elif format_name == "json":
        _print_json(listing, fields)
    else:
        _print_pages(listing, format_name, fields)
    if format_name == "json":
        return 0
    if listing.count and (args.by or "mark" in (fields or ())):
        print_notice(", ".join(f"{sign} {meaning}" for sign, meaning in MARKS.items()))
    _print_footer(args, listing, is_filtered=bool(filters))
    return 0


class JobListing:
    """Listing of the requested jobs, with one page in memory at a time."""

    def __init__(
        self, session: SchedulerSession, statuses: Sequence[str], limit: int | None, filters: dict[str, str]
    ) -> None:
        self._session = session
        self._statuses = statuses
        self._limit = limit
        self._filters: dict[str, Any] = dict(filters)
        self.count = 0
        """Number of jobs listed so far."""
        self.next: str | None = None
        """Cursor of the next page, or None after the last one."""
        self.counts: Json = {}
        """Number of jobs of each status, among all jobs."""

    def pages(self) -> Iterator[list[Json]]:
        listed = _ListedJobs()
        size = _FIRST_PAGE_SIZE
        while True:
            size = size if self._limit is None else min(size, self._limit - self.count)
            page = self._session.request_json(
                list_jobs(status=self._statuses, limit=size, cursor=self.next, **self._filters)
            )
            if self.next is None:
                self.counts = page.get("counts") or {}
            jobs = [job for job in page["jobs"] if listed.add(job["id"])]
            self.count += len(jobs)
            self.next = page.get("next")
            yield jobs
            if self.next is None or self.count == self._limit:
                return
            size = MAX_PAGE_SIZE

    def count_remaining(self) -> int:
        """Request the number of jobs that are not listed."""
        page = self._session.request_json(list_jobs(status=self._statuses, limit=1, total=True, **self._filters))
        total: int = page["total"]
        return max(1, total - self.count)


class _ListedJobs:
    """Bit set of the listed job numbers: a job that moves or ends between two pages appears on both."""

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}

    def add(self, job: str) -> bool:
        """Add a job. Return whether it is new."""
        word, bit = divmod(int(job.removeprefix("job-")), _BITS_PER_WORD)
        before = self._bits.get(word, 0)
        self._bits[word] = before | 1 << bit
        return not before >> bit & 1


def _print_pages(listing: JobListing, format_name: str, fields: Sequence[str] | None) -> None:
    color, now = has_color(sys.stdout), datetime.now(UTC)
    table = JobTable(fields or DEFAULT_COLUMNS, now=now, width=terminal_width(sys.stdout), color=color)
    is_first = True
    for jobs in listing.pages():
        if format_name == "block":
            for job in jobs:
                print_text("\n".join([*([] if is_first else [""]), *job_block(job, fields, now=now, color=color)]))
                is_first = False
        elif jobs:
            print_text("\n".join(table.lines(jobs)))
        flush()


def _print_json(listing: JobListing, fields: Sequence[str] | None) -> None:
    now, pages = datetime.now(UTC), listing.pages()
    first = next(pages)  # raise an error before any output

    def jobs() -> Iterator[Json]:
        for page in chain([first], pages):
            yield from (display.select_fields(job, fields, now) for job in page)
            flush()

    def parts() -> Iterator[tuple[str, Any]]:
        yield "jobs", jobs()
        yield "next", listing.next
        yield "counts", listing.counts

    print_json_parts(JsonObject(parts()))


def _print_grouped(listing: JobListing, grouping: JobGrouping, format_name: str, fields: Sequence[str] | None) -> None:
    color, now = has_color(sys.stdout), datetime.now(UTC)
    if format_name == "json":
        _read_grouped(listing, grouping, lambda job: display.select_fields(job, fields, now))
        groups = (
            JsonObject([("key", group.key), ("counts", group.counts()), ("jobs", grouping.rendered_jobs(group))])
            for group in grouping.groups()
        )
        parts = [("by", grouping.key_name), ("groups", groups), ("next", listing.next), ("counts", listing.counts)]
        print_json_parts(JsonObject(parts))
    elif format_name == "block":
        names = _with_mark(fields) if fields else None
        _read_grouped(listing, grouping, lambda job: _block_with_mark(job, names, now=now, color=color))
        for number, group in enumerate(grouping.groups()):
            print_text(("\n" if number else "") + grouping.heading(group))
            for lines in grouping.rendered_jobs(group):
                print_text("\n".join(["", *lines]))
    else:  # one table, so that the columns of all groups are aligned
        table = JobTable(_with_mark(fields or DEFAULT_COLUMNS), now=now, width=terminal_width(sys.stdout), color=color)
        _read_grouped(listing, grouping, table.row)
        if listing.count:
            print_text("\n".join(table.lines_from_cells([])))
        for group in grouping.groups():
            print_text(f"\n{grouping.heading(group)}")
            for row in grouping.rendered_jobs(group):
                print_text("\n".join(table.lines_from_cells([row])))


def _read_grouped(listing: JobListing, grouping: JobGrouping, render: Callable[[Json], Any]) -> None:
    """Read all jobs. On a terminal, a line on stderr counts them meanwhile."""
    canvas = Canvas(sys.stderr)
    for jobs in listing.pages():
        for job in jobs:
            grouping.add(job, render(job))
        if listing.next is not None and can_redraw(sys.stderr):
            canvas.draw([f"rota: {listing.count:,} jobs read"])
    canvas.clear()


def _block_with_mark(job: Json, fields: Sequence[str] | None, *, now: datetime, color: bool) -> list[str]:
    mark = [] if fields else job_block(job, ("mark",), now=now)
    return [*mark, *job_block(job, fields, now=now, color=color)]


def _with_mark(fields: Sequence[str]) -> Sequence[str]:
    return fields if "mark" in fields else ("mark", *fields)


def _print_footer(args: argparse.Namespace, listing: JobListing, *, is_filtered: bool) -> None:
    if listing.next is not None:
        rest = listing.count_remaining()
        print_notice(f"{rest:,} more job{'s' * (rest != 1)}; --limit N lists more, output to a pipe lists all")
    if args.all or args.status:
        if not listing.count:
            print_notice("no matching jobs")
        return
    if not listing.count:
        print_notice("no matching active jobs" if is_filtered else "no active jobs")
    if is_filtered:  # the counts are those of all jobs, not of the matching ones
        print_notice("ended jobs are not listed; --all includes them")
        return
    ended = {status: count for status in TERMINAL_STATUSES if (count := listing.counts.get(status, 0))}
    if ended:
        total, parts = sum(ended.values()), ", ".join(f"{count} {status}" for status, count in ended.items())
        print_notice(f"{total} ended job{'s' * (total != 1)} hidden ({parts}); --all lists them")


class ListGroup:
    """Jobs under one heading: the number of jobs with each mark, and the file offsets of the rendered jobs."""

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.marks = dict.fromkeys(MARKS, 0)
        self.offsets = array("q")

    def counts(self) -> dict[str, int]:
        """Return the numbers of `running`, `ready`, `not_ready` and `ended` jobs."""
        return {meaning.replace(" ", "_"): self.marks[sign] for sign, meaning in MARKS.items()}


class JobGrouping:
    """Jobs under headings: by target, by flow, by group, or by each limited pool that they draw from.

    The groups are in the queue order of their first jobs; the jobs without a group come last.
    """

    def __init__(self, key_name: str, pools: Json | None, file: IO[bytes]) -> None:
        self.key_name = key_name
        self._pools = pools or {}
        self._groups: dict[str | None, ListGroup] = {}
        self._file = file
        self._end = 0

    def add(self, job: Json, rendered: Any) -> None:
        """Add a job with its rendered form, any JSON value."""
        sign = mark(job)
        for key in _group_keys(job, self.key_name, self._pools):
            group = self._groups.setdefault(key, ListGroup(key))
            group.marks[sign] += 1
            group.offsets.append(self._end)
        try:
            self._end += self._file.write(json.dumps(rendered).encode() + b"\n")
        except OSError as error:
            text = f"--by cannot write its temporary file: {error.strerror}; set TMPDIR to a directory with free space"
            raise OutputError(text) from None

    def groups(self) -> list[ListGroup]:
        return sorted(self._groups.values(), key=lambda group: group.key is None)

    def rendered_jobs(self, group: ListGroup) -> Iterator[Any]:
        """Read the rendered jobs of a group in the order in which they were added."""
        for offset in group.offsets:
            self._file.seek(offset)
            yield json.loads(self._file.readline())

    def heading(self, group: ListGroup) -> str:
        counts = group.counts()
        parts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)
        number = sum(counts.values())
        jobs = f"{number} job{'s' * (number != 1)}"
        return f"{_group_title(self.key_name, group.key, self._pools)}: {jobs} ({parts})"


def _group_keys(job: Json, by: str, pools: Json) -> Sequence[str | None]:
    if by != "pool":
        return [job.get(by)]
    return [name for name in job.get("pools") or () if _pool_size(name, pools) >= 0] or [None]


def _pool_size(pool: str, pools: Json) -> int:
    """Return the size of a pool. The response lists only pools in use; the others have the default of their kind."""
    if pool in pools["pools"]:
        size: int = pools["pools"][pool]["size"]
    else:
        size = pools.get("defaults", {}).get(pool.partition("/")[0], -1)
    return size


def _group_title(by: str, key: str | None, pools: Json) -> str:
    if by != "pool":
        return f"(no {by})" if key is None else f"{by} {escape_unprintable(key)}"
    if key is None:
        return "(no pool with a limit)"
    used = pools["pools"].get(key, {}).get("used", 0)
    return f"pool {escape_unprintable(key)} {used}/{_pool_size(key, pools)}"
