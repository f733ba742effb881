"""`rota schedule`: jobs that are made by the clock."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from datetime import UTC, datetime

from rota.cli import table
from rota.cli.asked import hint_at_quoting, refuse_bytes, surroundings
from rota.cli.field import elapsed, moment
from rota.cli.job_option import add_job_options, job_asked
from rota.cli.param import PARAM_HELP, params
from rota.cli.parser import Usage, add_actions, take_command
from rota.cli.terminal import say, say_json, talk, width_of
from rota.client.ask.schedule import (
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
from rota.client.session import Session
from rota.errors import InvalidInput
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

_ACTIONS = {
    "list": "every schedule, with its next time and how the last one went",
    "show": "everything about one, with its latest times",
    "add": "make a job of a command or a template at the times of a cron expression",
    "change": "give it other times or another job; jobs that exist stay as they are",
    "enable": "let it fire again, from now on",
    "disable": "let it not fire; `trigger` still does",
    "remove": "remove it; its jobs stay",
    "trigger": "make its job now, whatever its times are",
    "next": "say when it fires next",
}
_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rota schedule ACTION [NAME] [options] [-- COMMAND [ARGUMENT …]]"
    actions = add_actions(parser, _ACTIONS)
    for action, child in actions.items():
        if action != "list":
            child.add_argument("name", metavar="NAME", help="its name; or, of one that is there, its id")
    actions["add"].usage = "rota schedule add NAME --cron EXPR [options] -- COMMAND [ARGUMENT …] | … --template T"
    actions["change"].usage = "rota schedule change NAME [options] [-- COMMAND [ARGUMENT …]]"
    for action in ("add", "change"):
        _add_options(actions[action], is_new=action == "add")
    actions["change"].add_argument("--unset-param", action="append", metavar="K", help="remove a parameter")
    actions["change"].add_argument("--rename", metavar="NAME", help="call it so from now on")
    actions["trigger"].add_argument("--param", action="append", metavar="K=V", help=f"over its own: {PARAM_HELP}")
    actions["next"].add_argument("--from", dest="start", metavar="TIME", help="after that instead of now, RFC 3339")
    actions["next"].add_argument("--count", type=int, metavar="N", help="so many; 10 unless given")
    take_command(parser)


def _add_options(parser: argparse.ArgumentParser, *, is_new: bool) -> None:
    add = parser.add_argument
    add("--cron", required=is_new, metavar="EXPR", help="minute hour day-of-month month day-of-week, or as @daily")
    add("--tz", metavar="ZONE", help="whose clock that is, as Europe/Berlin; UTC unless given")
    add("--catch-up", choices=("latest", "none", "all"), help="what fires of the times nobody was there for; latest")
    add("--overlap", choices=("allow", "skip", "queue_one"), help="if a job of it is still active; allow unless given")
    if is_new:
        add("--disabled", action="store_true", help="it fires only when it is enabled")
    add("--job-name", metavar="NAME", help="what to call its jobs in lists; the schedule's name unless given")
    add_job_options(parser, when="at its time", since="after its time", if_taken="the time is skipped", retries=3)


def run(args: argparse.Namespace) -> int:
    action = args.action or "list"
    if args.command is not None and action not in ("add", "change"):
        raise Usage(f"`rota schedule {action}` takes no command")
    session = Session(find_home(args.home))
    if action == "list":
        return _list(session, args)
    if action == "next":
        return _next(session, args)
    if action == "trigger":
        return _trigger(session, args)
    if action == "add":
        return _add(session, args)
    if action == "change":
        return _change(session, args)
    return _other(session, action, args)


def _list(session: Session, args: argparse.Namespace) -> int:
    found = list(session.pages(list_schedules, "schedules"))
    if args.json:
        say_json({"schedules": found})
    elif found:
        say("\n".join(schedule_table(found, now=datetime.now(UTC), width=width_of(sys.stdout))))
    else:
        talk("there is no schedule; `rota schedule add NAME --cron '0 3 * * *' -- COMMAND` makes one")
    return 0


def _add(session: Session, args: argparse.Namespace) -> int:
    if not args.command and args.template is None:
        raise Usage("there is no command to schedule; write it after --, or name a template with --template")
    job = {"name": args.name, **_job(args)}
    if args.command:
        job["command"] = args.command
        hint_at_quoting(args.command, f"schedule add {args.name}")
    wanted: Json = {"name": args.name, **_times(args), "job": job}
    if args.disabled:
        wanted["enabled"] = False
    refuse_bytes(wanted)
    wanted["job"] = {**job, **surroundings(args)}
    with _pointing(args.cron):
        answer = session.ask(add_schedule(**wanted))
    _warn(answer)
    if args.json:
        say_json(answer)
        return 0
    say(answer["id"])
    for line in _next_lines(answer):
        talk(line)
    return 0


def _change(session: Session, args: argparse.Namespace) -> int:
    if args.command == []:
        raise Usage("there is no command after --; leave the -- out, or write the new command")
    job = _job(args)
    params = job.pop("params", None)
    if args.command is not None:
        job["command"] = args.command
    refuse_bytes(job)
    job |= surroundings(args, is_change=True)
    asked = {
        "name": args.rename, **_times(args), "job": job or None, "set_params": params, "unset_params": args.unset_param,
    }  # fmt: skip
    changes: Json = {name: value for name, value in asked.items() if value is not None}
    if not changes:
        raise Usage("nothing is to be changed; `rota schedule change --help` says what can be")
    with _pointing(args.cron):
        answer = session.ask(change_schedule(args.name, **changes))
    _warn(answer)
    if args.json:
        say_json(answer)
        return 0
    if not answer["fields"]:
        talk(f"{args.name} was so already; nothing was changed")
        return 0
    say(f"{answer['schedule']['id']} {', '.join(answer['fields'])}")
    for line in _next_lines(answer["schedule"]):
        talk(line)
    return 0


def _warn(answer: Json) -> None:
    if answer.get("warning"):
        talk(f"warning: {answer['warning']}")


_OTHER = {
    "show": get_schedule, "remove": remove_schedule, "enable": enable_schedule, "disable": disable_schedule,
}  # fmt: skip


def _other(session: Session, action: str, args: argparse.Namespace) -> int:
    answer = session.ask(_OTHER[action](args.name))
    if args.json:
        say_json(answer)
    elif action == "show":
        say("\n".join(schedule_block(answer, now=datetime.now(UTC))))
    else:
        say(f"{answer['id']} {action}d")
        for line in _next_lines(answer) if action == "enable" else ():
            talk(line)
    return 0


def _trigger(session: Session, args: argparse.Namespace) -> int:
    answer = session.ask(trigger_schedule(args.name, params=params(args.param)))
    if args.json:
        say_json(answer)
        return 0
    job = answer["job"]["id"]
    if answer["result"] == "already_active":
        talk(f"already active as {job}; nothing was added")
    say(job)
    return 0


def _next(session: Session, args: argparse.Namespace) -> int:
    answer = session.ask(next_fires(args.name, start=args.start, count=args.count))
    if args.json:
        say_json(answer)
        return 0
    rows = [["LOCAL", "UTC"], *([_local(each), _utc(each)] for each in answer["fires"])]
    say("\n".join(table.render(rows)))
    return 0


def _times(args: argparse.Namespace) -> Json:
    asked = {"cron": args.cron, "tz": args.tz, "catch_up": args.catch_up, "overlap": args.overlap}
    return {name: value for name, value in asked.items() if value is not None}


def _job(args: argparse.Namespace) -> Json:
    return {**job_asked(args), **({} if args.job_name is None else {"name": args.job_name})}


class _pointing:  # noqa: N801 - used as a word: with _pointing(…)
    """Below a complaint about a cron expression, the expression itself with a mark at what is meant."""

    def __init__(self, cron: str | None) -> None:
        self._cron = cron

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._cron is not None and isinstance(error, InvalidInput):
            mark = caret(self._cron, error.message)
            if mark is not None:
                raise InvalidInput(f"{error.message}\n  {self._cron}\n  {mark}") from None


def caret(cron: str, message: str) -> str | None:
    """None where the complaint is about no field of it."""
    named = re.search(rf": ({'|'.join(_FIELDS)}) (\S+)", message)
    words = list(re.finditer(r"\S+", cron))
    if named is None or len(words) != len(_FIELDS):
        return None
    word = words[_FIELDS.index(named[1])]
    inside = word[0].find(named[2])
    start, length = (word.start(), len(word[0])) if inside < 0 else (word.start() + inside, len(named[2]))
    return " " * start + "^" * length


def _local(fire: Json) -> str:
    at = datetime.fromisoformat(fire["local"])
    return f"{at:%a %Y-%m-%d %H:%M %z}"


def _utc(fire: Json) -> str:
    return f"{datetime.fromisoformat(fire['utc']):%Y-%m-%d %H:%M}Z"


def _next_lines(schedule: Json) -> list[str]:
    if not schedule["enabled"]:
        return [f"it is disabled; `rota schedule enable {schedule['name']}` lets it fire"]
    if not schedule["next"]:
        return ["it has no further time"]
    return [f"next {_local(each)} {schedule['tz']} ({_utc(each)})" for each in schedule["next"]]


def schedule_table(schedules: list[Json], *, now: datetime, width: int | None) -> list[str]:
    rows = [["ID", "NAME", "CRON", "ZONE", "NEXT", "LAST", "ENABLED"]]
    rows += [
        [
            each["id"], each["name"], each["cron"], each["tz"], _distance(each["next_at"], now),
            "" if each["last_fire"] is None else _last(each["last_fire"], now), "yes" if each["enabled"] else "no",
        ]
        for each in schedules
    ]  # fmt: skip
    return table.render(rows, width=width, flexible=(((5, 1), 12), ((2, 3), 8)))


def _distance(text: str | None, now: datetime) -> str:
    at = moment(text)
    if at is None:
        return ""
    seconds = (at - now).total_seconds()
    return f"in {elapsed(seconds)}" if seconds >= 0 else "due"


def _last(fire: Json, now: datetime) -> str:
    at = datetime.fromisoformat(fire["at"])
    return f"{elapsed((now - at).total_seconds())} ago, {_outcome(fire)}"


def _outcome(fire: Json) -> str:
    if fire["state"] == "fired":
        return f"{fire['job']} {fire['status'] or 'collected'}"
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
        ("catch up", schedule["catch_up"]),
        ("overlap", schedule["overlap"]),
        ("template", schedule["template"]),
        ("command", shlex.join(schedule["command"])),
        *((name.replace("_", " "), _shown(job[name])) for name in job if name not in ("command", "template", "name")),
        ("created", schedule["created_at"]),
        ("changed", schedule["changed_at"] if schedule["changed_at"] != schedule["created_at"] else None),
    ]
    lines = [f"{name:<18} {table.printable(str(value))}" for name, value in pairs if value]
    lines += [
        f"{'next' if not n else '':<18} {_local(each)} ({_utc(each)}), {_distance(each['utc'], now)}"
        for n, each in enumerate(schedule["next"])
    ]
    return lines + [
        f"{'fires' if not n else '':<18} {table.printable(_fire_line(each))}"
        for n, each in enumerate(schedule["fires"])
    ]


def _fire_line(fire: Json) -> str:
    late = f", {elapsed(fire['late'])} late" if fire["late"] >= 1 and fire["state"] == "fired" else ""
    return f"{_utc({'utc': fire['at']})} {_outcome(fire)}{late}{', triggered' if fire['trigger'] else ''}"


def _shown(value: object) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
