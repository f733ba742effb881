"""The fields of a submit, each by itself: what cannot be used is refused by name, with what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rota.duration import parse_duration
from rota.errors import InvalidInput

_MOST_PRIORITY = 1_000_000


def check_command(command: Sequence[str]) -> None:
    if not command or not command[0].strip():
        raise InvalidInput("the command is empty; write it after --, as in: rota submit -- echo hello")
    if any("\x00" in word for word in command):
        raise InvalidInput("the command has a NUL character, which no program can be given; remove it")


def check_text(field: str, text: str | None) -> None:
    if text is not None and "\x00" in text:
        raise InvalidInput(f"{field} has a NUL character; remove it")


def check_priority(priority: int) -> None:
    if abs(priority) > _MOST_PRIORITY:
        raise InvalidInput(f"priority {priority} is out of range; it goes from -{_MOST_PRIORITY} to {_MOST_PRIORITY}")


def limit_of(field: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    limit = parse_duration(text)
    if not limit:
        raise InvalidInput(f"{field} must be longer than nothing; leave it out for no limit")
    return limit


def not_before_of(delay: str | None, now: datetime) -> datetime | None:
    wait = timedelta() if delay is None else parse_duration(delay)
    return now + wait if wait else None
