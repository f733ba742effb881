"""Text of a single field of a job. Pure functions: callers pass the time and the time zone."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, tzinfo

from rota.client.requests.job import TERMINAL_STATUSES
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
