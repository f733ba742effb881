"""`rota gc`: remove jobs that ended long ago, with their files."""

from __future__ import annotations

import argparse

from rota.cli.parser import Usage
from rota.cli.terminal import say_json, talk
from rota.client.ask.scheduler import collect, get_collection
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json
    from rota.home import Home

_QUIET = 2.0
"""Seconds without a word: what takes longer says how far it is."""
_MOST_SAID = 20
_KEPT = {"referenced": "that others refer to", "worktree": "with a worktree", "files": "whose files cannot be removed"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--days", metavar="N", help="what ended at least N days ago; 0 is all that has ended (default: gc.days, 7)"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be removed, and remove nothing")


def run(args: argparse.Namespace) -> int:
    answer = _collect(find_home(args.home), _days(args.days), dry_run=args.dry_run)
    if args.json:
        say_json(answer)
        return 0
    talk(summary(answer))
    for each in answer["stays"][:_MOST_SAID]:
        talk(f"kept {each['job']}: {each['detail']}")
    if len(answer["stays"]) > _MOST_SAID:
        talk(f"and {len(answer['stays']) - _MOST_SAID} more; --json has them")
    for text in answer["left"]:
        talk(f"left behind: {text}")
    return 0


def _days(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise Usage(f"--days {text}: write a whole number of days; 0 is all that has ended")
    return int(text)


def _collect(home: Home, days: int | None, *, dry_run: bool) -> Json:
    """Asked in a thread of its own, so that who waits can be told how far it is."""
    from threading import Event, Thread

    answers: list[Json] = []
    trouble: list[BaseException] = []
    done = Event()

    def ask() -> None:
        try:
            answers.append(Session(home).ask(collect(days=days, dry_run=dry_run)))
        except BaseException as error:  # noqa: BLE001 - it is raised again where somebody hears it
            trouble.append(error)
        done.set()

    Thread(target=ask, daemon=True).start()
    while not done.wait(_QUIET):
        _say_progress(home)
    if trouble:
        raise trouble[0]
    return answers[0]


def _say_progress(home: Home) -> None:
    """Whatever hinders this, the answer is still to come."""
    from rota.errors import RotaError

    try:
        under_way = Session(home, starts=False).ask(get_collection())["under_way"]
    except (RotaError, OSError):
        return
    if under_way:
        talk(f"removed {under_way['jobs']:,} jobs so far, {size(under_way['bytes'])} of files")


_OTHERS = {
    "slots": "direct execution", "groups": "group", "templates": "archived template", "fires": "schedule time",
    "deliveries": "webhook message",
}  # fmt: skip
"""What goes besides jobs, said where there is any."""


def summary(answer: Json) -> str:
    removed, kept = answer["removed"], answer["kept"]
    verb = "would remove" if answer["dry_run"] else "removed"
    files = f"{size(removed['bytes'])} of files"
    text = f"{verb} {_count(removed['jobs'], 'job')} ({_count(removed['runs'], 'run')}, "
    text += f"{_count(removed['events'], 'event')}, {files})"
    others = [_count(removed[name], noun) for name, noun in _OTHERS.items() if removed.get(name)]
    text = f"{text}, {', '.join(others)}" if others else text
    if answer["given_up"]:
        gave = "would give up" if answer["dry_run"] else "gave up"
        text += f"; {gave} {_count(answer['given_up'], 'message')} that nobody took"
    stays = [f"{kept[why]:,} {words}" for why, words in _KEPT.items() if kept.get(why)]
    return f"{text}; kept {', '.join(stays)}" if stays else text


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(count: int) -> str:
    """`0 bytes`, `3.4 MB`: as much as a glance takes in."""
    if count < 1000:
        return _count(count, "byte")
    amount, units = count / 1000, ["kB", "MB", "GB", "TB"]
    while amount >= 999.95 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.1f} {units[0]}"
