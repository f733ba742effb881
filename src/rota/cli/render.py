"""Jobs and the scheduler's status as text for people. Pure: the time and the width are given."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rota.cli import table
from rota.cli.terminal import paint
from rota.client.api import TERMINAL

if TYPE_CHECKING:
    from rota.client.api import Json

JOB_FIELDS = (
    "id", "name", "type", "status", "exit_code", "reason", "wait", "waited_on", "command", "params", "priority",
    "position", "created_at", "queued_at", "started_at", "finished_at", "not_before", "after", "needs",
    "produces", "locks", "pools", "pinned_head", "flow", "phase", "target", "unique", "group", "sequence",
    "template", "schedule", "work", "retry_of", "chain", "attempt", "permanently_failed", "dispatch_failures",
    "last_failure", "timeout", "idle_timeout", "skip_if", "cwd", "worktree", "pid", "session_path",
    "outcome_path", "run",
)  # fmt: skip

_LONGEST_LABEL = 100
_STATUS_COLUMN = 1


def job_table(jobs: Sequence[Json], *, now: datetime, width: int | None, colour: bool = False) -> list[str]:
    rows = [["ID", "STATUS", "NAME/COMMAND", "PRIO", "WAIT/REASON", "TIME"]]
    rows += [
        [job["id"], job["status"], label(job), str(job.get("priority", 0)), excuse(job), time_of(job, now)]
        for job in jobs
    ]

    def colourful(column: int, cell: str, padded: str) -> str:
        return paint(padded, cell, colour=colour and column == _STATUS_COLUMN)

    return table.render(rows, width=width, flexible=(2, 4), paint=colourful)


def label(job: Json) -> str:
    """What a person calls the job: a prompt of many pages is told by its beginning."""
    text = table.printable(str(job.get("name") or shlex.join(job.get("command") or ())))
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"


def excuse(job: Json) -> str:
    """Why it waits, or why it ended as it did; of a retry also which one it is."""
    detail, reason = (job.get("wait") or {}).get("detail"), job.get("reason")
    if job["status"] in TERMINAL:
        is_retried = job["status"] == "FAILED" and job.get("permanently_failed") is False
        return table.printable(f"{detail or reason or ''}" + "; retried" * is_retried)
    if not reason and (job.get("attempt") or 1) > 1:
        reason = f"attempt {job['attempt']}"
    return table.printable(", ".join(str(each) for each in (reason, detail) if each))


def time_of(job: Json, now: datetime) -> str:
    """How long it ran, has been running, or has been waiting."""
    started, finished = _time(job.get("started_at")), _time(job.get("finished_at"))
    if job["status"] in TERMINAL:
        return _took((finished - started).total_seconds()) if started and finished else ""
    since = started if job["status"] == "RUNNING" else None
    since = since or _time(job.get("queued_at")) or _time(job.get("created_at"))
    return elapsed((now - since).total_seconds()) if since else ""


def _took(seconds: float) -> str:
    return f"{max(0.0, seconds):.1f}s" if seconds < 10 else elapsed(seconds)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def elapsed(seconds: float) -> str:
    """Two units are enough for a glance: `4s`, `2m05s`, `1h02m`, `3d04h`."""
    whole = max(0, int(seconds))
    for size, unit, below, lower in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // below:02d}{lower}"
    return f"{whole}s"


def job_block(job: Json, *, colour: bool = False) -> list[str]:
    """All that is known and not empty, one field a line; fields of a newer server come last."""
    names = [name for name in JOB_FIELDS if name in job] + [name for name in job if name not in JOB_FIELDS]
    lines = []
    for name in names:
        value = job[name]
        if not is_empty(value) and (name, value) != ("dispatch_failures", 0):
            lines += _field(name, value, colour=colour)
    return lines


def earlier_runs(runs: Sequence[Json], current: Json | None) -> list[str]:
    """A line for each that a rewind has left behind."""
    past = [run for run in runs if current is None or run["id"] != current["id"]]
    lines = [f"{run['id']} {run['status']}, exit code {run['exit_code']}, {run['finished_at']}" for run in past]
    return [f"{'earlier runs' if not n else '':<18} {table.printable(line)}" for n, line in enumerate(lines)]


def _field(name: str, value: Any, *, colour: bool) -> list[str]:
    if name == "run":
        inner = [line for key, each in value.items() if not is_empty(each) for line in _field(key, each, colour=colour)]
        return ["run", *("  " + line for line in inner)]
    if name == "error":
        first, *rest = (table.printable(line) for line in str(value).splitlines())
        return [f"{name:<18} {first}", *(f"{'':<18} {line}" for line in rest)]
    text = field_text(name, value)
    return [f"{name:<18} {paint(text, text, colour=colour and name == 'status')}"]


def is_empty(value: Any) -> bool:
    """Nothing to say. Zero is something: an exit code of 0 is the best news there is."""
    return value is None or value is False or (isinstance(value, str | list | dict) and not value)


def field_text(name: str, value: Any) -> str:
    if name == "command":
        return table.printable(shlex.join(value))
    if name in ("after", "locks"):
        named = (f"{each.get('job') or each.get('key')}:{each.get('policy') or each.get('mode')}" for each in value)
        return table.printable(", ".join(named))
    if name in ("pools", "log_paths"):
        return table.printable(", ".join(f"{key}={each}" for key, each in value.items()))
    if name == "wait":
        return _wait_text(value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return table.printable(", ".join(value))
    if isinstance(value, dict | list):
        return table.printable(json.dumps(value, ensure_ascii=False))
    return "yes" if value is True else table.printable(str(value))


def _wait_text(wait: Json) -> str:
    text = f"{wait.get('kind')}: {wait.get('detail')}"
    topics = ", ".join(str(each) if isinstance(each, str) else json.dumps(each) for each in wait.get("on") or ())
    return table.printable(f"{text} (on {topics})" if topics else text)


def status_block(status: Json, *, now: datetime) -> list[str]:
    waiting = ", ".join(f"{kind} {count}" for kind, count in (status.get("waiting") or {}).items() if count)
    counts = [f"{status.get('running', 0)} running, {status.get('queued', 0)} queued ({status.get('ready', 0)} ready)"]
    counts = counts if "mode" in status else []  # a store that cannot be read was not counted
    counts += [f"{status['finished']} finished"] if status.get("finished") else []
    pairs = [
        ("mode", status.get("mode")),
        ("paused", _paused_text(status)),
        ("jobs", ", ".join(counts)),
        ("waiting", waiting),
        ("depth", _depth_text(status.get("depth") or {})),
        ("idle because", status.get("idle_because")),
        ("last dispatch", _ago(status.get("last_dispatch_at"), now)),
        ("up since", _ago(status.get("started_at"), now)),
        ("home", status.get("home")),
        ("socket", status.get("socket")),
        ("pid", _pids(status)),
        ("version", status.get("version")),
    ]
    lines = [f"{name:<14} {value}" for name, value in pairs if value]
    lines += [f"{'pool':<14} {line}" for line in pool_lines(status.get("pools") or {})]
    lines += [f"{'breaker':<14} {breaker_text(breaker)}" for breaker in status.get("breakers") or ()]
    lines += [f"{'trouble':<14} {text}" for text in status.get("trouble") or ()]
    return lines + [f"{'recovered':<14} {line}" for line in recovery_lines(status.get("recovery") or {})]


def _paused_text(status: Json) -> str:
    if not status.get("paused"):
        return ""
    return f"by {status.get('paused_by') or 'somebody'} since {status.get('paused_at') or 'an unknown time'}"


def _depth_text(depth: Json) -> str:
    """Only where back-pressure or flows make it more than the number of jobs that are ready."""
    parts = [f"{name} {depth[name]}" for name in ("soft", "hard") if depth.get(name)]
    parts += [f"flow {flow} {count}" for flow, count in (depth.get("by_flow") or {}).items()]
    return f"{depth.get('total', 0)} ({', '.join(parts)})" if parts else ""


def _ago(text: str | None, now: datetime) -> str:
    moment = _time(text)
    return f"{text} ({elapsed((now - moment).total_seconds())} ago)" if moment else ""


def _pids(status: Json) -> str:
    if not status.get("pid"):
        return ""
    supervisor = status.get("supervisor_pid")
    return f"{status['pid']}" + (f" (supervisor {supervisor})" if supervisor else "")


def pool_lines(pools: Json) -> list[str]:
    return [f"{name} {pool.get('used', 0)}/{size_text(pool.get('size'))}" for name, pool in pools.items()]


def size_text(size: int | None) -> str:
    return "no limit" if size is None or size < 0 else str(size)


def pool_table(pools: Json, *, width: int | None) -> list[str]:
    rows = [["POOL", "USED", "SIZE"]]
    rows += [[name, str(pool.get("used", 0)), size_text(pool.get("size"))] for name, pool in pools.items()]
    return table.render(rows, width=width, flexible=(0,))


def breaker_text(breaker: Json) -> str:
    if breaker["state"] == "open":
        return f"{breaker['key']} open until {breaker['until']}"
    return f"{breaker['key']} {breaker['state']}, {breaker.get('probe') or 'the next job'} tries"


def breaker_table(breakers: Sequence[Json], *, width: int | None) -> list[str]:
    rows = [["BREAKER", "STATE", "FAILURES", "UNTIL/PROBE"]]
    rows += [
        [each["key"], each["state"], str(each["failures"]), each.get("until") or each.get("probe") or ""]
        for each in breakers
    ]
    return table.render(rows, width=width, flexible=(0,))


def recovery_lines(recovery: Json) -> list[str]:
    """What the last start found, without the zeros."""
    return [f"{name.replace('_', ' ')}: {count}" for name, count in recovery.items() if count]
