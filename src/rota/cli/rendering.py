"""Text of jobs, of their fields, and of the scheduler status. Pure functions: callers pass the time, the time zone and
the width."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo

from rota.cli import table
from rota.cli.terminal import paint
from rota.client.requests.jobs import TERMINAL_STATUSES
from rota.columns import DEFAULT_COLUMNS, FIELDS
from rota.errors import escape_unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rota.client.requests import Json

MARKS = {"*": "running", "+": "ready", "-": "not ready", ".": "ended"}
_MAX_LABEL_LENGTH = 100
_OID_LENGTH = 7
_DEFAULT_KINDS = ("success", "exclusive")
"""Default kinds in `after` and `locks`, which are not shown."""
_ID_FIELDS = ("id", "retry_of", "chain", "run.id", "run.job")
_STATUS_FIELDS = ("status", "run.status")
_NUMBER_FIELDS = (
    "mark",
    "time",
    "priority",
    "position",
    "exit_code",
    "sequence",
    "attempt",
    "dispatch_failures",
    "pid",
)
_MIN_PENDING_SHOWN = 100
_HEADERS = {"mark": "", "title": "NAME/COMMAND", "priority": "PRIO", "why": "WAIT/REASON"}


def mark(job: Json) -> str:
    """Return the mark of a job. Ready means, as in `rota status`, that only pool capacity can hold the job."""
    if job["status"] == "RUNNING":
        return "*"
    if job["status"] in TERMINAL_STATUSES:
        return "."
    kind = (job.get("wait") or {}).get("kind")
    return "+" if job["status"] == "QUEUED" and kind in (None, "capacity") else "-"


def title(job: Json) -> str:
    """Return the name of the job, or its command line."""
    return str(job.get("name") or shlex.join(job.get("command") or ()))


def label(job: Json) -> str:
    """Return the title for use within a sentence: printable, and cut to a maximum length."""
    text = escape_unprintable(title(job))
    return text if len(text) <= _MAX_LABEL_LENGTH else f"{text[: _MAX_LABEL_LENGTH - 1]}…"


def reason_text(job: Json) -> str:
    """Return the reason that the job waits or ended, with the attempt number of a retry."""
    detail, reason = (job.get("wait") or {}).get("detail"), job.get("reason")
    if job.get("unreadable"):
        reason = ", ".join(str(part) for part in (reason, f"unreadable: {job['unreadable']}") if part)
    if job["status"] in TERMINAL_STATUSES:
        is_retried = job["status"] == "FAILED" and job.get("permanently_failed") is False
        return escape_unprintable(f"{detail or reason or ''}" + "; retried" * is_retried)
    if not reason and (job.get("attempt") or 1) > 1:
        reason = f"attempt {job['attempt']}"
    return escape_unprintable(", ".join(str(part) for part in (reason, detail) if part))


def duration_text(job: Json, now: datetime) -> str:
    """Return the time that the job ran, has been running, or has been waiting. For a group that has ended, return the
    time from its creation to its end."""
    started, finished = parse_time(job.get("started_at")), parse_time(job.get("finished_at"))
    if str(job.get("id")).startswith("group-"):
        started = parse_time(job.get("created_at"))
    if job["status"] in (*TERMINAL_STATUSES, "PARTIAL"):
        return _format_duration((finished - started).total_seconds()) if started and finished else ""
    since = started if job["status"] == "RUNNING" else None
    since = since or parse_time(job.get("queued_at")) or parse_time(job.get("created_at"))
    return format_elapsed((now - since).total_seconds()) if since else ""


def _format_duration(seconds: float) -> str:
    return f"{max(0.0, seconds):.1f}s" if seconds < 10 else format_elapsed(seconds)


def parse_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def format_elapsed(seconds: float) -> str:
    """Format a duration with at most two units: `4s`, `2m05s`, `1h02m`, `3d04h`."""
    whole = max(0, int(seconds))
    for size, unit, small_size, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // small_size:02d}{small_unit}"
    return f"{whole}s"


def is_time_field(field: str) -> bool:
    return field == "not_before" or field.endswith("_at")


def field_value(job: Json, field: str) -> Any:
    """Return a field from the JSON of the job, or a nested field such as `run.exit_code`."""
    name, dot, part = field.partition(".")
    value = job.get(name)
    if not dot:
        return value
    return value.get(part) if isinstance(value, dict) else None


def derived_value(job: Json, field: str, now: datetime) -> str | None:
    """Return a field that is derived from the JSON of the job, or None if `field` is not derived."""
    if field == "mark":
        return mark(job)
    if field == "title":
        return title(job)
    if field == "why":
        return reason_text(job)
    return duration_text(job, now) if field == "time" else None


def format_cell(job: Json, field: str, *, now: datetime, zone: tzinfo | None = None) -> str:
    """Return the short text for a table cell. Without a zone, times are in the local time zone."""
    text = derived_value(job, field, now)
    return format_short(field, field_value(job, field), zone) if text is None else text


def format_short(field: str, value: Any, zone: tzinfo | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if is_time_field(field):
        return f"{datetime.fromisoformat(value).astimezone(zone):%Y-%m-%d %H:%M:%S}"
    if isinstance(value, str | int | float):
        return str(value)
    return _format_nested(field, value) if value else ""


def _format_nested(field: str, value: Any) -> str:
    if field == "command":
        return shlex.join(value)
    if field in ("after", "locks"):
        return ", ".join(_with_suffix(*entry.values()) for entry in value)
    if field in ("pools", "run.log_paths"):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    if field == "wait":
        return str(value.get("detail"))
    if field == "pinned_head":
        return f"{value.get('branch')}@{str(value.get('oid'))[:_OID_LENGTH]}"
    if field == "run":
        return " ".join(str(part) for part in (value.get("id"), value.get("status")) if part)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


def _with_suffix(name: str, kind: str) -> str:
    return name if kind in _DEFAULT_KINDS else f"{name}:{kind}"


def format_line(job: Json, field: str, *, now: datetime, zone: tzinfo | None = None) -> str:
    """Return the full text of a field for a line of its own."""
    text, value = derived_value(job, field, now), field_value(job, field)
    if field == "mark":
        text = f"{text} {MARKS[str(text)]}"
    elif text is None and value is not None and is_time_field(field):
        text = _format_time(datetime.fromisoformat(value), now, zone)
    elif text is None and value and field == "wait":
        text = _format_wait(value)
    return escape_unprintable(format_short(field, value, zone) if text is None else text)


def _format_time(at: datetime, now: datetime, zone: tzinfo | None) -> str:
    seconds = (now - at).total_seconds()
    distance = f"{format_elapsed(seconds)} ago" if seconds >= 0 else f"in {format_elapsed(-seconds)}"
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S %z} ({distance})"


def _format_wait(wait: Json) -> str:
    text = f"{wait.get('kind')}: {wait.get('detail')}"
    topics = ", ".join(
        str(topic) if isinstance(topic, str) else json.dumps(topic) for topic in wait.get("topics") or ()
    )
    return f"{text} (on {topics})" if topics else text


class JobTable:
    """Table of jobs that is printed part by part. If it is too wide, texts are cut first and then statuses. IDs,
    numbers and times are never cut."""

    def __init__(
        self,
        fields: Sequence[str] = DEFAULT_COLUMNS,
        *,
        now: datetime,
        width: int | None,
        zone: tzinfo | None = None,
        color: bool = False,
    ) -> None:
        self._fields = fields
        self._now = now
        self._zone = zone
        fixed = (*_ID_FIELDS, *_STATUS_FIELDS, *_NUMBER_FIELDS, "run.exit_code")
        texts = [index for index, field in enumerate(fields) if field not in fixed and not is_time_field(field)]
        statuses = [index for index, field in enumerate(fields) if field in _STATUS_FIELDS]

        def paint_status(column: int, text: str, padded: str) -> str:
            return paint(padded, text, color=color and column in statuses)

        flexible = ((texts, 16), (statuses, len("WAITING_ON_DEPS")), (texts, 8), (statuses, 8))
        head = [_HEADERS.get(field, field.upper()) for field in fields]
        self._table = table.Table(head, width=width, flexible=flexible, paint=paint_status)

    def lines(self, jobs: Sequence[Json]) -> list[str]:
        """Return the next lines; the first call also returns the header."""
        return self.lines_from_cells([self._row(job) for job in jobs])

    def row(self, job: Json) -> list[str]:
        """Return the cells of a job that is printed later, and widen the columns for them."""
        row = self._row(job)
        self._table.reserve_width([row])
        return row

    def lines_from_cells(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Return the next lines from cells."""
        return self._table.lines(rows)

    def _row(self, job: Json) -> list[str]:
        return [format_cell(job, field, now=self._now, zone=self._zone) for field in self._fields]


def job_table(
    jobs: Sequence[Json],
    fields: Sequence[str] = DEFAULT_COLUMNS,
    *,
    now: datetime,
    width: int | None,
    zone: tzinfo | None = None,
    color: bool = False,
) -> list[str]:
    """Return the lines of a whole table."""
    return JobTable(fields, now=now, width=width, zone=zone, color=color).lines(jobs)


def job_block(
    job: Json,
    fields: Sequence[str] | None = None,
    *,
    now: datetime,
    zone: tzinfo | None = None,
    color: bool = False,
    notes: Mapping[str, str] | None = None,
) -> list[str]:
    """Return one line for each field. Without `fields`, return all fields that are not empty, with unknown fields of a
    newer server last. `notes` are appended to the values of their fields."""

    def texts(name: str) -> list[str]:
        if name == "run.error":
            return [escape_unprintable(line) for line in str(field_value(job, name) or "").splitlines()]
        text = format_line(job, name, now=now, zone=zone)
        shown = paint(text, text, color=color and name in _STATUS_FIELDS)
        return [f"{shown} ({notes[name]})" if notes and name in notes else shown]

    lines = []
    for name in _shown_fields(job) if fields is None else fields:
        if name == "run" and job.get("run"):
            parts = [part for part, value in job["run"].items() if not is_empty(value)]
            lines += ["run", *(f"  {line}" for part in parts for line in _labeled_lines(part, texts(f"run.{part}")))]
        else:
            lines += _labeled_lines(name, texts(name))
    return lines


def _shown_fields(job: Json) -> list[str]:
    names = [name for name in FIELDS if name in job] + [name for name in job if name not in FIELDS]
    return [name for name in names if not is_empty(job[name]) and (name, job[name]) != ("dispatch_failures", 0)]


def _labeled_lines(name: str, texts: Sequence[str]) -> list[str]:
    """Return the lines of a field, with its name on the first line. An empty field is shown as `-`."""
    first, *rest = texts or ("",)
    return [f"{name:<18} {first or '-'}", *(f"{'':<18} {text}" for text in rest)]


def _exit_code_text(run: Json) -> str:
    return "unknown" if run["exit_code"] is None else str(run["exit_code"])


def earlier_run_lines(runs: Sequence[Json], current: Json | None) -> list[str]:
    """Return a line for each earlier run, which a rewind has replaced."""
    past = [run for run in runs if current is None or run["id"] != current["id"]]
    lines = [f"{run['id']} {run['status']}, exit code {_exit_code_text(run)}, {run['finished_at']}" for run in past]
    return [f"{'earlier runs' if not n else '':<18} {escape_unprintable(line)}" for n, line in enumerate(lines)]


def is_empty(value: Any) -> bool:
    """Return whether a value is not worth a line. Zero is not empty: an exit code of 0 is shown."""
    return value is None or value is False or (isinstance(value, str | list | dict) and not value)


def status_block(status: Json, *, now: datetime) -> list[str]:
    waiting = ", ".join(f"{kind} {count}" for kind, count in (status.get("waiting") or {}).items() if count)
    counts = [f"{status.get('running', 0)} running, {status.get('queued', 0)} queued ({status.get('ready', 0)} ready)"]
    counts = counts if "mode" in status else []  # there are no counts if the store cannot be read
    counts += [f"{status['finished']} finished"] if status.get("finished") else []
    pairs = [
        ("mode", status.get("mode")),
        *(("paused", text) for text in _paused_texts(status)),
        ("held", status.get("hold_reason")),
        ("jobs", ", ".join(counts)),
        ("waiting", waiting),
        ("direct", _reservations_text(status.get("reservations") or {})),
        ("webhooks", _webhooks_text(status.get("webhooks") or {})),
        ("depth", _depth_text(status.get("depth") or {})),
        ("idle because", status.get("idle_reason")),
        ("last dispatch", _format_time_ago(status.get("last_dispatch_at"), now)),
        ("last gc", _gc_text(status.get("last_gc"), now)),
        ("schedules", _schedules_text(status.get("schedules") or {}, now)),
        ("up since", _format_time_ago(status.get("started_at"), now)),
        ("home", status.get("home")),
        ("socket", status.get("socket")),
        ("tcp", tcp_text(status.get("tcp") or {})),
        ("pid", _pids(status)),
        ("version", status.get("version")),
    ]
    lines = [f"{name:<14} {value}" for name, value in pairs if value]
    lines += [f"{'pool':<14} {line}" for line in pool_lines(status.get("pools") or {})]
    lines += [f"{'breaker':<14} {breaker_text(breaker)}" for breaker in status.get("breakers") or ()]
    lines += [f"{'error':<14} {text}" for text in status.get("errors") or ()]
    return lines + [f"{'recovered':<14} {line}" for line in recovery_lines(status.get("recovery") or {})]


def _paused_texts(status: Json) -> list[str]:
    """Return a text for each paused scope. The global scope is not named."""
    return [
        f"{'' if pause['scope'] == 'global' else pause['scope'] + ' '}by {pause['by']} since {pause['at']}"
        for pause in status.get("pauses") or ()
    ]


def tcp_text(tcp: Json) -> str:
    return str(tcp.get("url") or (f"off: {tcp['disabled_reason']}" if tcp.get("disabled_reason") else ""))


def _reservations_text(reservations: Json) -> str:
    return ", ".join(f"{count} {state}" for state, count in reservations.items() if count)


def _webhooks_text(webhooks: Json) -> str:
    """Return the webhooks that need attention. A small number of pending messages is normal and not shown."""
    parts = [f"{', '.join(webhooks[state])} {state}" for state in ("held", "disabled") if webhooks.get(state)]
    parts += [f"{webhooks['pending']} messages pending"] if webhooks.get("pending", 0) >= _MIN_PENDING_SHOWN else []
    return ", ".join(parts)


def _depth_text(depth: Json) -> str:
    """Return the queue depth, only if there are depth limits or flows: otherwise it equals the ready jobs."""
    parts = [f"{name} {depth[name]}" for name in ("soft", "hard") if depth.get(name)]
    parts += [f"flow {flow} {count}" for flow, count in (depth.get("by_flow") or {}).items()]
    return f"{depth.get('total', 0)} ({', '.join(parts)})" if parts else ""


def _format_time_ago(text: str | None, now: datetime) -> str:
    at = parse_time(text)
    return f"{text} ({format_elapsed((now - at).total_seconds())} ago)" if at else ""


def _gc_text(collection: Json | None, now: datetime) -> str:
    return (
        f"{_format_time_ago(collection.get('at'), now)}, {collection.get('jobs', 0):,} jobs removed"
        if collection
        else ""
    )


def _schedules_text(schedules: Json, now: datetime) -> str:
    """Return the number of schedules, the next fire and the missed and failed fires of the last day."""
    if not schedules.get("total"):
        return ""
    disabled = schedules["total"] - schedules["enabled"]
    parts = [f"{schedules['total']}" + (f" ({disabled} disabled)" if disabled else "")]
    following = schedules.get("next")
    at = parse_time(following["at"]) if following else None
    if following and at:
        parts.append(f"next {following['name']} in {format_elapsed((at - now).total_seconds())}")
    parts += [f"{schedules[kind]} {kind} since yesterday" for kind in ("missed", "failed") if schedules.get(kind)]
    return ", ".join(parts)


def _pids(status: Json) -> str:
    if not status.get("pid"):
        return ""
    supervisor = status.get("supervisor_pid")
    return f"{status['pid']}" + (f" (supervisor {supervisor})" if supervisor else "")


def pool_lines(pools: Json) -> list[str]:
    return [f"{name} {pool.get('used', 0)}/{size_text(pool.get('size'))}" for name, pool in pools.items()]


def size_text(size: int | None) -> str:
    return "no limit" if size is None or size < 0 else str(size)


def pool_table(pools: Json, defaults: Json | None = None, *, width: int | None) -> list[str]:
    """Return the lines of the pool table. `defaults` has the sizes of pools without a line of their own, by kind."""
    rows = [["POOL", "USED", "SIZE"]]
    rows += [[name, str(pool.get("used", 0)), size_text(pool.get("size"))] for name, pool in pools.items()]
    rows += [[f"{kind}/*", "", f"{size_text(size)} each"] for kind, size in (defaults or {}).items()]
    return table.render(rows, width=width, flexible=(((0,), 8),))


def breaker_text(breaker: Json) -> str:
    if breaker["state"] == "open":
        return f"{breaker['key']} open until {breaker['probe_at']}"
    return f"{breaker['key']} {breaker['state']}, {breaker.get('probe_job') or 'the next job'} is the probe"


def breaker_table(breakers: Sequence[Json], *, width: int | None) -> list[str]:
    rows = [["BREAKER", "STATE", "FAILURES", "UNTIL/PROBE"]]
    rows += [
        [item["key"], item["state"], str(item["failures"]), item.get("probe_at") or item.get("probe_job") or ""]
        for item in breakers
    ]
    return table.render(rows, width=width, flexible=(((0,), 8),))


def recovery_lines(recovery: Json) -> list[str]:
    """Return the nonzero recovery counts of the last start."""
    return [f"{name.replace('_', ' ')}: {count}" for name, count in recovery.items() if count]
