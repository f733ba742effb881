"""Jobs and the scheduler's status as text for people. Pure: the time and the width are given."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo

from rota.cli import table
from rota.cli.field import cell, elapsed, is_time, line, moment, value_of
from rota.cli.terminal import paint
from rota.display import COLUMNS, FIELDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rota.client.ask import Json

_IDS = ("id", "retry_of", "chain", "run.id", "run.job")
_STATUSES = ("status", "run.status")
_NUMBERS = ("mark", "time", "priority", "position", "exit_code", "sequence", "attempt", "dispatch_failures", "pid")
_MANY_MESSAGES = 100
_HEADS = {"mark": "", "title": "NAME/COMMAND", "priority": "PRIO", "why": "WAIT/REASON"}


def job_table(
    jobs: Sequence[Json],
    fields: Sequence[str] = COLUMNS,
    *,
    now: datetime,
    width: int | None,
    zone: tzinfo | None = None,
    colour: bool = False,
) -> list[str]:
    """Where there is not enough room texts give way, and statuses too; ids, numbers and times are never cut."""
    rows = [[_HEADS.get(field, field.upper()) for field in fields]]
    rows += [[cell(job, field, now=now, zone=zone) for field in fields] for job in jobs]
    firm = (*_IDS, *_STATUSES, *_NUMBERS, "run.exit_code")
    texts = [index for index, field in enumerate(fields) if field not in firm and not is_time(field)]
    statuses = [index for index, field in enumerate(fields) if field in _STATUSES]

    def colourful(column: int, text: str, padded: str) -> str:
        return paint(padded, text, colour=colour and column in statuses)

    ways = ((texts, 16), (statuses, len("WAITING_ON_DEPS")), (texts, 8), (statuses, 8))
    return table.render(rows, width=width, flexible=ways, paint=colourful)


def job_block(
    job: Json,
    fields: Sequence[str] | None = None,
    *,
    now: datetime,
    zone: tzinfo | None = None,
    colour: bool = False,
) -> list[str]:
    """One field a line. Unless some are named: all that is known and not empty, those of a newer server last."""

    def texts(name: str) -> list[str]:
        if name == "run.error":
            return [table.printable(each) for each in str(value_of(job, name) or "").splitlines()]
        text = line(job, name, now=now, zone=zone)
        return [paint(text, text, colour=colour and name in _STATUSES)]

    lines = []
    for name in _worth_saying(job) if fields is None else fields:
        if name == "run" and job.get("run"):
            parts = [part for part, each in job["run"].items() if not is_empty(each)]
            lines += ["run", *(f"  {each}" for part in parts for each in _labelled(part, texts(f"run.{part}")))]
        else:
            lines += _labelled(name, texts(name))
    return lines


def _worth_saying(job: Json) -> list[str]:
    names = [name for name in FIELDS if name in job] + [name for name in job if name not in FIELDS]
    return [name for name in names if not is_empty(job[name]) and (name, job[name]) != ("dispatch_failures", 0)]


def _labelled(name: str, texts: Sequence[str]) -> list[str]:
    """A field that is asked for by name and has nothing to say says so."""
    first, *rest = texts or ("",)
    return [f"{name:<18} {first or '-'}", *(f"{'':<18} {each}" for each in rest)]


def earlier_runs(runs: Sequence[Json], current: Json | None) -> list[str]:
    """A line for each that a rewind has left behind."""
    past = [run for run in runs if current is None or run["id"] != current["id"]]
    lines = [f"{run['id']} {run['status']}, exit code {run['exit_code']}, {run['finished_at']}" for run in past]
    return [f"{'earlier runs' if not n else '':<18} {table.printable(line)}" for n, line in enumerate(lines)]


def is_empty(value: Any) -> bool:
    """Nothing to say. Zero is something: an exit code of 0 is the best news there is."""
    return value is None or value is False or (isinstance(value, str | list | dict) and not value)


def status_block(status: Json, *, now: datetime) -> list[str]:
    waiting = ", ".join(f"{kind} {count}" for kind, count in (status.get("waiting") or {}).items() if count)
    counts = [f"{status.get('running', 0)} running, {status.get('queued', 0)} queued ({status.get('ready', 0)} ready)"]
    counts = counts if "mode" in status else []  # a store that cannot be read was not counted
    counts += [f"{status['finished']} finished"] if status.get("finished") else []
    pairs = [
        ("mode", status.get("mode")),
        *(("paused", text) for text in _paused_texts(status)),
        ("held", status.get("held")),
        ("jobs", ", ".join(counts)),
        ("waiting", waiting),
        ("direct", _slots_text(status.get("slots") or {})),
        ("webhooks", _webhooks_text(status.get("webhooks") or {})),
        ("depth", _depth_text(status.get("depth") or {})),
        ("idle because", status.get("idle_because")),
        ("last dispatch", _ago(status.get("last_dispatch_at"), now)),
        ("last gc", _gc_text(status.get("last_gc"), now)),
        ("schedules", _schedules_text(status.get("schedules") or {}, now)),
        ("up since", _ago(status.get("started_at"), now)),
        ("home", status.get("home")),
        ("socket", status.get("socket")),
        ("tcp", tcp_text(status.get("tcp") or {})),
        ("pid", _pids(status)),
        ("version", status.get("version")),
    ]
    lines = [f"{name:<14} {value}" for name, value in pairs if value]
    lines += [f"{'pool':<14} {line}" for line in pool_lines(status.get("pools") or {})]
    lines += [f"{'breaker':<14} {breaker_text(breaker)}" for breaker in status.get("breakers") or ()]
    lines += [f"{'trouble':<14} {text}" for text in status.get("trouble") or ()]
    return lines + [f"{'recovered':<14} {line}" for line in recovery_lines(status.get("recovery") or {})]


def _paused_texts(status: Json) -> list[str]:
    """One for each scope; everything needs no name."""
    return [
        f"{'' if each['scope'] == 'global' else each['scope'] + ' '}by {each['by']} since {each['at']}"
        for each in status.get("pauses") or ()
    ]


def tcp_text(tcp: Json) -> str:
    return str(tcp.get("url") or (f"off: {tcp['off']}" if tcp.get("off") else ""))


def _slots_text(slots: Json) -> str:
    return ", ".join(f"{count} {state}" for state, count in slots.items() if count)


def _webhooks_text(webhooks: Json) -> str:
    """What somebody may have to see to; a few that are pending are on their way."""
    parts = [f"{', '.join(webhooks[what])} {what}" for what in ("held", "disabled") if webhooks.get(what)]
    parts += [f"{webhooks['pending']} messages pending"] if webhooks.get("pending", 0) >= _MANY_MESSAGES else []
    return ", ".join(parts)


def _depth_text(depth: Json) -> str:
    """Only where back-pressure or flows make it more than the number of jobs that are ready."""
    parts = [f"{name} {depth[name]}" for name in ("soft", "hard") if depth.get(name)]
    parts += [f"flow {flow} {count}" for flow, count in (depth.get("by_flow") or {}).items()]
    return f"{depth.get('total', 0)} ({', '.join(parts)})" if parts else ""


def _ago(text: str | None, now: datetime) -> str:
    at = moment(text)
    return f"{text} ({elapsed((now - at).total_seconds())} ago)" if at else ""


def _gc_text(last: Json | None, now: datetime) -> str:
    return f"{_ago(last.get('at'), now)}, {last.get('jobs', 0):,} jobs removed" if last else ""


def _schedules_text(schedules: Json, now: datetime) -> str:
    """What went wrong within a day, only where something did."""
    if not schedules.get("total"):
        return ""
    off = schedules["total"] - schedules["enabled"]
    parts = [f"{schedules['total']}" + (f" ({off} disabled)" if off else "")]
    following = schedules.get("next")
    at = moment(following["at"]) if following else None
    if following and at:
        parts.append(f"next {following['name']} in {elapsed((at - now).total_seconds())}")
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


def pool_table(pools: Json, each: Json | None = None, *, width: int | None) -> list[str]:
    """`each` has the sizes of all pools of a kind that have no line of their own."""
    rows = [["POOL", "USED", "SIZE"]]
    rows += [[name, str(pool.get("used", 0)), size_text(pool.get("size"))] for name, pool in pools.items()]
    rows += [[f"{kind}/*", "", f"{size_text(size)} each"] for kind, size in (each or {}).items()]
    return table.render(rows, width=width, flexible=(((0,), 8),))


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
    return table.render(rows, width=width, flexible=(((0,), 8),))


def recovery_lines(recovery: Json) -> list[str]:
    """What the last start found, without the zeros."""
    return [f"{name.replace('_', ' ')}: {count}" for name, count in recovery.items() if count]
