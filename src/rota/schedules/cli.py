"""`rota schedule`: submit jobs at the times of a cron expression."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from datetime import UTC, datetime

from rota.cli import table
from rota.cli.parser import UsageError, add_actions, add_command_argument
from rota.cli.rendering import format_elapsed, parse_time
from rota.cli.terminal import print_json, print_notice, print_text, terminal_width
from rota.client.requests.definitions import (
    add_schedule,
    change_schedule,
    disable_schedule,
    enable_schedule,
    get_schedule,
    list_schedules,
    next_fires,
    remove_schedule,
    trigger_schedule,
)
from rota.client.session import SchedulerSession
from rota.errors import InvalidInput, escape_unprintable
from rota.home import find_home
from rota.jobs.cli.options import (
    PARAM_SYNTAX,
    add_job_options,
    environment_request,
    job_options,
    parse_params,
    print_quoting_hint,
    require_utf8,
)
from rota.jobs.cli.submit import policy_lines
from rota.jobs.cli.wait import warn_if_ended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_ACTIONS = {
    "list": "List every schedule with its next fire time and the outcome of the last one.",
    "show": "Show all details of a schedule, with its latest fires.",
    "add": "Add a schedule that submits a command or a template at the times of a cron expression.",
    "change": "Change the times or the job of a schedule. Existing jobs do not change.",
    "enable": "Enable a schedule, starting from now.",
    "disable": "Disable a schedule. `trigger` still works.",
    "remove": "Remove a schedule and keep its jobs.",
    "trigger": "Submit the job of a schedule now.",
    "next": "Print the next fire times of a schedule.",
}
_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")


def add_schedule_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota schedule ACTION [NAME] [options] [-- COMMAND [ARGUMENT …]]"
    actions = add_actions(parser, _ACTIONS)
    for action, child in actions.items():
        if action != "list":
            text = "The name of the schedule." if action == "add" else "The schedule, by name or ID."
            child.add_argument("name", metavar="NAME", help=text)
    actions["add"].usage = "rota schedule add NAME --cron EXPR [options] -- COMMAND [ARGUMENT …] | … --template T"
    actions["change"].usage = "rota schedule change NAME [options] [-- COMMAND [ARGUMENT …]]"
    for action in ("add", "change"):
        _add_options(actions[action], is_add=action == "add")
    actions["change"].add_argument("--unset-param", action="append", metavar="K", help="Remove a param.")
    actions["change"].add_argument("--rename", metavar="NAME", help="Rename the schedule.")
    actions["trigger"].add_argument(
        "--param", action="append", metavar="K=V", help=f"Override a param of the job: {PARAM_SYNTAX}."
    )
    actions["next"].add_argument(
        "--from", dest="start", metavar="TIME", help="Start after TIME, in RFC 3339 format (default: now)."
    )
    actions["next"].add_argument("--count", type=int, metavar="N", help="Print N fire times (default: 10).")
    add_command_argument(parser)


def _add_options(parser: argparse.ArgumentParser, *, is_add: bool) -> None:
    add = parser.add_argument
    add(
        "--cron",
        required=is_add,
        metavar="EXPR",
        help="Set the times: minute hour day-of-month month day-of-week, or a macro such as @daily.",
    )
    add("--tz", metavar="ZONE", help="Set the time zone, for example Europe/Berlin (default: UTC).")
    add("--catch-up", choices=("latest", "none", "all"), help="Choose the missed times that fire (default: latest).")
    add(
        "--overlap",
        choices=("allow", "skip", "queue_one"),
        help="Choose what to do if a job of the schedule is still active (default: allow).",
    )
    if is_add:
        add("--disabled", action="store_true", help="Add the schedule in disabled state.")
    add("--job-name", metavar="NAME", help="Set the name of the jobs (default: the name of the schedule).")
    add_job_options(
        parser, time_phrase="fire time", delay_phrase="after the fire time", on_conflict="skip the fire", retries=3
    )


def run_schedule(args: argparse.Namespace) -> int:
    action = args.action or "list"
    if args.command is not None and action not in ("add", "change"):
        raise UsageError(f"`rota schedule {action}` takes no command")
    session = SchedulerSession(find_home(args.home), is_read_only=action in ("list", "show", "next"))
    if action == "list":
        return _list(session, args)
    if action == "next":
        return _print_next(session, args)
    if action == "trigger":
        return _trigger(session, args)
    if action == "add":
        return _add(session, args)
    if action == "change":
        return _change(session, args)
    return _run_simple_action(session, action, args)


def _list(session: SchedulerSession, args: argparse.Namespace) -> int:
    schedules = list(session.pages(list_schedules, "schedules"))
    if args.json:
        print_json({"schedules": schedules})
    elif schedules:
        print_text("\n".join(schedule_table(schedules, now=datetime.now(UTC), width=terminal_width(sys.stdout))))
    else:
        print_notice("there are no schedules; `rota schedule add NAME --cron '0 3 * * *' -- COMMAND` adds one")
    return 0


def _add(session: SchedulerSession, args: argparse.Namespace) -> int:
    if not args.command and args.template is None:
        raise UsageError("there is no command to schedule; add it after --, or set --template")
    job = {"name": args.name, **_job_options(args)}
    if args.command:
        job["command"] = args.command
        print_quoting_hint(args.command, f"schedule add {args.name}")
    request: Json = {"name": args.name, **_time_options(args), "job": job}
    if args.disabled:
        request["enabled"] = False
    require_utf8(request)
    request["job"] = {**job, **environment_request(args)}
    with _CronErrorContext(args.cron):
        response = session.request_json(add_schedule(**request))
    _print_warning(response)
    if args.json:
        print_json(response)
        return 0
    print_text(response["id"])
    for line in _next_lines(response):
        print_notice(line)
    return 0


def _change(session: SchedulerSession, args: argparse.Namespace) -> int:
    if args.command == []:
        raise UsageError("there is no command after --; remove the --, or add the new command")
    job = _job_options(args)
    params = job.pop("params", None)
    if args.command is not None:
        job["command"] = args.command
    require_utf8(job)
    job |= environment_request(args, is_change=True)
    request = {
        "name": args.rename,
        **_time_options(args),
        "job": job or None,
        "set_params": params,
        "unset_params": args.unset_param,
    }
    changes: Json = {name: value for name, value in request.items() if value is not None}
    if not changes:
        raise UsageError("no change given; `rota schedule change --help` lists the options")
    with _CronErrorContext(args.cron):
        response = session.request_json(change_schedule(args.name, **changes))
    _print_warning(response)
    if args.json:
        print_json(response)
        return 0
    if not response["fields"]:
        print_notice(f"nothing changed: {args.name} already has these values")
        return 0
    print_text(f"{response['schedule']['id']} {', '.join(response['fields'])}")
    for line in _next_lines(response["schedule"]):
        print_notice(line)
    return 0


def _print_warning(result: Json) -> None:
    if result.get("warning"):
        print_notice(f"warning: {result['warning']}")


_SIMPLE_ACTIONS = {
    "show": get_schedule,
    "remove": remove_schedule,
    "enable": enable_schedule,
    "disable": disable_schedule,
}


def _run_simple_action(session: SchedulerSession, action: str, args: argparse.Namespace) -> int:
    response = session.request_json(_SIMPLE_ACTIONS[action](args.name))
    if args.json:
        print_json(response)
    elif action == "show":
        print_text("\n".join(schedule_block(response, now=datetime.now(UTC))))
    else:
        print_text(f"{response['id']} {action}d")
        for line in _next_lines(response) if action == "enable" else ():
            print_notice(line)
    return 0


def _trigger(session: SchedulerSession, args: argparse.Namespace) -> int:
    response = session.request_json(trigger_schedule(args.name, params=parse_params(args.param)))
    if response["result"] == "submitted":
        warn_if_ended(response["job"])
    if args.json:
        print_json(response)
        return 0
    job = response["job"]["id"]
    if response["result"] == "already_active":
        print_notice(f"already active as {job}; no job was added")
    print_text(job)
    return 0


def _print_next(session: SchedulerSession, args: argparse.Namespace) -> int:
    response = session.request_json(next_fires(args.name, start=args.start, count=args.count))
    if args.json:
        print_json(response)
        return 0
    rows = [["LOCAL", "UTC"], *([_format_local(fire), _format_utc(fire)] for fire in response["fires"])]
    print_text("\n".join(table.render(rows)))
    return 0


def _time_options(args: argparse.Namespace) -> Json:
    request = {"cron": args.cron, "tz": args.tz, "catch_up": args.catch_up, "overlap": args.overlap}
    return {name: value for name, value in request.items() if value is not None}


def _job_options(args: argparse.Namespace) -> Json:
    return {**job_options(args), **({} if args.job_name is None else {"name": args.job_name})}


class _CronErrorContext:
    """Context that adds the cron expression to an error about it, with carets below the wrong field."""

    def __init__(self, cron: str | None) -> None:
        self._cron = cron

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._cron is not None and isinstance(error, InvalidInput):
            mark = caret(self._cron, error.message)
            if mark is not None:
                raise InvalidInput(f"{error.message}\n  {self._cron}\n  {mark}") from None


def caret(cron: str, message: str) -> str | None:
    """Return a line of carets below the wrong field, or None if the error is about no field."""
    match = re.search(rf": ({'|'.join(_FIELDS)}) (\S+)", message)
    words = list(re.finditer(r"\S+", cron))
    if match is None or len(words) != len(_FIELDS):
        return None
    word = words[_FIELDS.index(match[1])]
    inside = word[0].find(match[2])
    start, length = (word.start(), len(word[0])) if inside < 0 else (word.start() + inside, len(match[2]))
    return " " * start + "^" * length


def _format_local(fire: Json) -> str:
    at = datetime.fromisoformat(fire["local"])
    return f"{at:%a %Y-%m-%d %H:%M %z}"


def _format_utc(fire: Json) -> str:
    return f"{datetime.fromisoformat(fire['utc']):%Y-%m-%d %H:%M}Z"


def _next_lines(schedule: Json) -> list[str]:
    if not schedule["enabled"]:
        return [f"the schedule is disabled; `rota schedule enable {schedule['name']}` enables it"]
    if not schedule["next"]:
        return ["the schedule has no further fire times"]
    return [f"next {_format_local(fire)} {schedule['tz']} ({_format_utc(fire)})" for fire in schedule["next"]]


def schedule_table(schedules: list[Json], *, now: datetime, width: int | None) -> list[str]:
    rows = [["ID", "NAME", "CRON", "ZONE", "NEXT", "LAST", "ENABLED"]]
    rows += [
        [
            schedule["id"],
            schedule["name"],
            schedule["cron"],
            schedule["tz"],
            _format_distance(schedule["next_at"], now),
            _last_fire_or_error(schedule, now),
            "yes" if schedule["enabled"] else "no",
        ]
        for schedule in schedules
    ]
    return table.render(rows, width=width, flexible=(((5, 1), 12), ((2, 3), 8)))


def _format_distance(text: str | None, now: datetime) -> str:
    at = parse_time(text)
    if at is None:
        return ""
    seconds = (at - now).total_seconds()
    return f"in {format_elapsed(seconds)}" if seconds >= 0 else "due"


def _last_fire_or_error(schedule: Json, now: datetime) -> str:
    if schedule["unreadable"]:
        return f"unreadable: {schedule['unreadable']}"
    return "" if schedule["last_fire"] is None else _format_last_fire(schedule["last_fire"], now)


def _format_last_fire(fire: Json, now: datetime) -> str:
    at = datetime.fromisoformat(fire["at"])
    return f"{format_elapsed((now - at).total_seconds())} ago, {_format_outcome(fire)}"


def _format_outcome(fire: Json) -> str:
    if fire["state"] == "fired":
        return f"{fire['job']} {fire['status'] or 'removed'}"
    times = f" ({fire['count']} times)" if fire["count"] > 1 else ""
    return f"{fire['state']}{times}: {fire['reason']}"


def schedule_block(schedule: Json, *, now: datetime) -> list[str]:
    job = schedule["job"]
    pairs = [
        ("id", schedule["id"]),
        ("name", schedule["name"]),
        ("cron", schedule["cron"]),
        ("zone", schedule["tz"]),
        ("enabled", "yes" if schedule["enabled"] else "no"),
        ("unreadable", schedule["unreadable"]),
        ("catch up", schedule["catch_up"]),
        ("overlap", schedule["overlap"]),
        ("template", schedule["template"]),
        ("command", shlex.join(schedule["command"])),
        *(
            (name.replace("_", " "), _format_value(job[name]))
            for name in job
            if name not in ("command", "template", "name")
        ),
        ("created", schedule["created_at"]),
        ("changed", schedule["changed_at"] if schedule["changed_at"] != schedule["created_at"] else None),
    ]
    lines = [f"{name:<18} {escape_unprintable(str(value))}" for name, value in pairs if value]
    lines += [
        f"{'next' if not n else '':<18} {_format_local(fire)} ({_format_utc(fire)}),"
        f" {_format_distance(fire['utc'], now)}"
        for n, fire in enumerate(schedule["next"])
    ]
    lines += [
        f"{'fires' if not n else '':<18} {escape_unprintable(_fire_line(fire))}"
        for n, fire in enumerate(schedule["fires"])
    ]
    return lines + policy_lines(schedule["policies"] or [])


def _fire_line(fire: Json) -> str:
    late = (
        f", {format_elapsed(fire['delay_seconds'])} late"
        if fire["delay_seconds"] >= 1 and fire["state"] == "fired"
        else ""
    )
    return f"{_format_utc({'utc': fire['at']})} {_format_outcome(fire)}{late}{', triggered' if fire['trigger'] else ''}"


def _format_value(value: object) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
