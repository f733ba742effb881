"""The fields of a submit, each by itself: what cannot be used is refused by name, with what to write instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rota.command.schema import check_params
from rota.command.submission import LockWanted, Submission
from rota.core.lock import Lock
from rota.core.pool import MOST_WEIGHT
from rota.core.retry import RetryPolicies
from rota.core.template import MOST_ARGUMENT
from rota.duration import parse_duration
from rota.errors import InvalidInput, within
from rota.names import MOST_SCRIPT, MOST_TITLE, NAME_RULE, POOL_KINDS, is_name, is_pool_name

_MOST_PRIORITY = 1_000_000


def check_fields(wanted: Submission) -> None:
    """All that can be said of a job without knowing anything else."""
    check_command(wanted.command)
    check_text("name", wanted.name, MOST_TITLE)
    check_text("skip_if", wanted.skip_if, MOST_SCRIPT)
    if wanted.skip_if is not None and not wanted.skip_if.strip():
        raise InvalidInput("skip_if is empty, which a shell takes for success: leave it out instead").under(".skip_if")
    check_priority(wanted.priority or 0)
    check_own_params(wanted.params)
    _check_pools(wanted.pools)
    for field in ("type", "flow", "target"):
        _check_name(field, getattr(wanted, field))
    _check_phase(wanted.phase, wanted.flow)


def check_rest(wanted: Submission, retry: RetryPolicies, now: datetime) -> None:
    """What else is wrong by itself, and is otherwise found on the way: before somebody is told to try it again."""
    limit_of("timeout", wanted.timeout)
    limit_of("idle_timeout", wanted.idle_timeout)
    not_before_of(wanted.delay, now)
    locks_of(wanted.locks)
    check_cwd(wanted.cwd)
    check_variables(wanted.env)
    retry.choose(name=wanted.retry, retries=wanted.retries, flow=wanted.flow)


def check_cwd(cwd: str | None) -> None:
    if cwd is not None and (not cwd.startswith("/") or "\x00" in cwd):
        raise InvalidInput(f"cwd must be an absolute path, not {cwd!r}").under(".cwd")


def check_command(command: Sequence[str]) -> None:
    if not command or not command[0].strip():
        raise InvalidInput("the command is empty; name a program, and then its arguments").under(".command")
    for n, word in enumerate(command):
        if len(word) > MOST_ARGUMENT // 4 and len(word.encode(errors="surrogateescape")) > MOST_ARGUMENT:
            said = f"an argument is longer than {MOST_ARGUMENT} bytes, which no program can be given"
            raise InvalidInput(f"{said}; put the text in a file and give its path").under(f".command[{n}]")
    if "\x00" in "".join(command):
        said = "the command has a NUL character, which no program can be given; remove it"
        raise InvalidInput(said).under(".command")


def check_own_params(params: Mapping[str, Any], field: str = "params") -> None:
    """Whatever a schema may say of them: they are stored, shown, and reach the child in one variable."""
    if not params:
        return
    with within(f".{field}"):
        check_params(None, params)


def check_text(field: str, text: str | None, most: int) -> None:
    if text is not None and "\x00" in text:
        raise InvalidInput(f"{field} has a NUL character; remove it").under(f".{field}")
    if text is not None and len(text) > most:
        said = f"{field} has {len(text):,} characters, and may have {most:,}"
        raise InvalidInput(f"{said}; put what is long in params, or in a file").under(f".{field}")


def check_priority(priority: int) -> None:
    if abs(priority) > _MOST_PRIORITY:
        span = f"it goes from -{_MOST_PRIORITY} to {_MOST_PRIORITY}"
        raise InvalidInput(f"priority {priority} is out of range; {span}").under(".priority")


def _check_name(field: str, name: str | None) -> None:
    if name is not None and not is_name(name):
        raise InvalidInput(f"not a usable {field}: {name!r}; use {NAME_RULE}").under(f".{field}")


def _check_pools(pools: Mapping[str, int]) -> None:
    for name, weight in pools.items():
        if not is_pool_name(name):
            kinds = ", ".join(f"{kind}/NAME" for kind in POOL_KINDS)
            said = f"not a pool name: {name!r}; a pool is global or one of {kinds}"
            raise InvalidInput(said).under(".pools")
        if not 1 <= weight <= MOST_WEIGHT:
            said = f"pool {name}: a job draws at least 1 and at most {MOST_WEIGHT}, not {weight}"
            raise InvalidInput(said).under(".pools")


def check_variables(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        if not name or "=" in name or "\x00" in name or "\x00" in value:
            raise InvalidInput(f"not a usable environment variable: {name!r}").under(".env")


def limit_of(field: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    with within(f".{field}"):
        limit = parse_duration(text)
        if not limit:
            raise InvalidInput(f"{field} must be longer than nothing; leave it out for no limit")
    return limit


def not_before_of(delay: str | None, now: datetime) -> datetime | None:
    if delay is None:
        return None
    with within(".delay"):
        wait = parse_duration(delay)
    return now + wait if wait else None


def _check_phase(phase: str | None, flow: str | None) -> None:
    if phase is None:
        return
    if not is_name(phase) or "/" in phase:  # so that a lock's key tells phase and flow apart
        raise InvalidInput(f"not a usable phase: {phase!r}; use {NAME_RULE}, and no / at all").under(".phase")
    if flow is None:
        raise InvalidInput(f"phase {phase} is one of a flow: name the `flow` too").under(".phase")


def locks_of(wanted: Sequence[LockWanted], phase: Lock | None = None) -> tuple[Lock, ...]:
    """By key; a key named twice is exclusive if either says so."""
    if not wanted and phase is None:
        return ()
    locks: dict[str, Lock] = {} if phase is None else {phase.key: phase}
    for n, lock in enumerate(wanted):
        if not lock.key or "\x00" in lock.key or len(lock.key) > 200:
            raise InvalidInput(f"not a usable lock key: {lock.key!r}; use 1 to 200 characters").under(f".locks[{n}]")
        known = locks.get(lock.key)
        mode = lock.mode if known is None else min(known.mode, lock.mode)
        locks[lock.key] = Lock(key=lock.key, mode=mode)
    return tuple(sorted(locks.values()))
