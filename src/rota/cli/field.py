"""One field of a job as text for people. Pure: the time and the time zone are given."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, tzinfo

from rota.cli.table import printable
from rota.client.ask.job import TERMINAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rota.client.ask import Json

MARKS = {"*": "running", "+": "ready", "-": "not ready", ".": "ended"}

_LONGEST_LABEL = 100
_OID = 7
_USUAL = ("success", "exclusive")
"""What `after` and `locks` mean when they say nothing further."""


def mark(job: Json) -> str:
    """Ready is what `rota status` counts as ready: it may start as soon as its pools have room."""
    if job["status"] == "RUNNING":
        return "*"
    if job["status"] in TERMINAL:
        return "."
    kind = (job.get("wait") or {}).get("kind")
    return "+" if job["status"] == "QUEUED" and kind in (None, "capacity") else "-"


def title(job: Json) -> str:
    """What a person calls the job."""
    return str(job.get("name") or shlex.join(job.get("command") or ()))


def label(job: Json) -> str:
    """The same within a sentence: a prompt of many pages is told by its beginning."""
    text = printable(title(job))
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"


def excuse(job: Json) -> str:
    """Why it waits, or why it ended as it did; of a retry also which one it is."""
    detail, reason = (job.get("wait") or {}).get("detail"), job.get("reason")
    if job["status"] in TERMINAL:
        is_retried = job["status"] == "FAILED" and job.get("permanently_failed") is False
        return printable(f"{detail or reason or ''}" + "; retried" * is_retried)
    if not reason and (job.get("attempt") or 1) > 1:
        reason = f"attempt {job['attempt']}"
    return printable(", ".join(str(each) for each in (reason, detail) if each))


def time_of(job: Json, now: datetime) -> str:
    """How long it ran, has been running, or has been waiting."""
    started, finished = moment(job.get("started_at")), moment(job.get("finished_at"))
    if job["status"] in TERMINAL:
        return _took((finished - started).total_seconds()) if started and finished else ""
    since = started if job["status"] == "RUNNING" else None
    since = since or moment(job.get("queued_at")) or moment(job.get("created_at"))
    return elapsed((now - since).total_seconds()) if since else ""


def _took(seconds: float) -> str:
    return f"{max(0.0, seconds):.1f}s" if seconds < 10 else elapsed(seconds)


def moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def elapsed(seconds: float) -> str:
    """Two units are enough for a glance: `4s`, `2m05s`, `1h02m`, `3d04h`."""
    whole = max(0, int(seconds))
    for size, unit, below, lower in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // below:02d}{lower}"
    return f"{whole}s"


def is_time(field: str) -> bool:
    return field == "not_before" or field.endswith("_at")


def value_of(job: Json, field: str) -> Any:
    """As the job's JSON has it; of `run.exit_code` that part."""
    name, dot, part = field.partition(".")
    value = job.get(name)
    if not dot:
        return value
    return value.get(part) if isinstance(value, dict) else None


def made(job: Json, field: str, now: datetime) -> str | None:
    """A field that the job's JSON does not have; none where it is not one of these."""
    if field == "mark":
        return mark(job)
    if field == "title":
        return title(job)
    if field == "why":
        return excuse(job)
    return time_of(job, now) if field == "time" else None


def cell(job: Json, field: str, *, now: datetime, zone: tzinfo | None = None) -> str:
    """Short, for a column of a table. Without a zone times are the machine's own."""
    text = made(job, field, now)
    return short(field, value_of(job, field), zone) if text is None else text


def short(field: str, value: Any, zone: tzinfo | None) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if is_time(field):
        return f"{datetime.fromisoformat(value).astimezone(zone):%Y-%m-%d %H:%M:%S}"
    if isinstance(value, str | int | float):
        return str(value)
    return _nested(field, value) if value else ""


def _nested(field: str, value: Any) -> str:
    if field == "command":
        return shlex.join(value)
    if field in ("after", "locks"):
        return ", ".join(_with_suffix(*each.values()) for each in value)
    if field in ("pools", "run.log_paths"):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    if field == "wait":
        return str(value.get("detail"))
    if field == "pinned_head":
        return f"{value.get('branch')}@{str(value.get('oid'))[:_OID]}"
    if field == "run":
        return " ".join(str(each) for each in (value.get("id"), value.get("status")) if each)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


def _with_suffix(name: str, kind: str) -> str:
    return name if kind in _USUAL else f"{name}:{kind}"


def line(job: Json, field: str, *, now: datetime, zone: tzinfo | None = None) -> str:
    """With all there is to say, for a line of its own."""
    text, value = made(job, field, now), value_of(job, field)
    if field == "mark":
        text = f"{text} {MARKS[str(text)]}"
    elif text is None and value is not None and is_time(field):
        text = _long_time(datetime.fromisoformat(value), now, zone)
    elif text is None and value and field == "wait":
        text = _wait_text(value)
    return printable(short(field, value, zone) if text is None else text)


def _long_time(at: datetime, now: datetime, zone: tzinfo | None) -> str:
    seconds = (now - at).total_seconds()
    distance = f"{elapsed(seconds)} ago" if seconds >= 0 else f"in {elapsed(-seconds)}"
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S %z} ({distance})"


def _wait_text(wait: Json) -> str:
    text = f"{wait.get('kind')}: {wait.get('detail')}"
    topics = ", ".join(str(each) if isinstance(each, str) else json.dumps(each) for each in wait.get("on") or ())
    return f"{text} (on {topics})" if topics else text
