"""Validation of the single fields of a submit. An unusable value is refused by name, with advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rota.command.schema import check_params
from rota.command.submission import LockRequest, Submission
from rota.core.lock import Lock
from rota.core.pool import MAX_WEIGHT
from rota.core.retry import RetryPolicies
from rota.core.template import MAX_ARGUMENT_BYTES
from rota.duration import parse_duration
from rota.errors import InvalidInput, error_path
from rota.naming import (
    KEY_RULE,
    MAX_SCRIPT_LENGTH,
    MAX_TITLE_LENGTH,
    NAME_RULE,
    POOL_KINDS,
    has_line_break,
    is_key,
    is_name,
    is_pool_name,
)

_MAX_PRIORITY = 1_000_000


def check_fields(submission: Submission) -> None:
    """Check the fields that need no other knowledge than the submission."""
    check_command(submission.command)
    check_title("name", submission.name)
    check_text("skip_if", submission.skip_if, MAX_SCRIPT_LENGTH)
    if submission.skip_if is not None and not submission.skip_if.strip():
        raise InvalidInput("skip_if is empty, and an empty script always succeeds; leave it out").at_path(".skip_if")
    check_priority(submission.priority or 0)
    check_own_params(submission.params)
    _check_pools(submission.pools)
    for field in ("type", "flow", "target"):
        _check_name(field, getattr(submission, field))
    _check_phase(submission.phase, submission.flow)


def check_limits(submission: Submission, retry: RetryPolicies, now: datetime) -> None:
    """Check the fields that a full submit checks on its way. A client must not be told to retry an invalid submit."""
    parse_limit("timeout", submission.timeout)
    parse_limit("idle_timeout", submission.idle_timeout)
    parse_delay(submission.delay, now)
    merge_locks(submission.locks)
    check_cwd(submission.cwd)
    check_variables(submission.env)
    retry.choose(name=submission.retry, retries=submission.retries, flow=submission.flow)


def check_cwd(cwd: str | None) -> None:
    if cwd is not None and (not cwd.startswith("/") or "\x00" in cwd):
        raise InvalidInput(f"cwd must be an absolute path, not {cwd!r}").at_path(".cwd")


def check_command(command: Sequence[str]) -> None:
    if not command or not command[0].strip():
        raise InvalidInput("the command is empty; name a program and its arguments").at_path(".command")
    for n, word in enumerate(command):
        if len(word) > MAX_ARGUMENT_BYTES // 4 and len(word.encode(errors="surrogateescape")) > MAX_ARGUMENT_BYTES:
            message = f"an argument is longer than {MAX_ARGUMENT_BYTES} bytes, the maximum of the system"
            raise InvalidInput(f"{message}; put the text in a file and pass its path").at_path(f".command[{n}]")
    if "\x00" in "".join(command):
        raise InvalidInput("the command contains a NUL character; remove it").at_path(".command")


def check_own_params(params: Mapping[str, Any], field: str = "params") -> None:
    """Check params apart from a schema: they are stored, shown, and passed to the child process in one variable."""
    if not params:
        return
    with error_path(f".{field}"):
        for name in params:
            if has_line_break(name):
                raise InvalidInput(f"the name of param {name!r} has a line break; write it on one line")
        check_params(None, params)


def check_text(field: str, text: str | None, max_length: int) -> None:
    if text is not None and "\x00" in text:
        raise InvalidInput(f"{field} has a NUL character; remove it").at_path(f".{field}")
    if text is not None and len(text) > max_length:
        message = f"{field} has {len(text):,} characters; the maximum is {max_length:,}"
        raise InvalidInput(f"{message}; put long text in params, or in a file").at_path(f".{field}")


def check_title(field: str, text: str | None) -> None:
    """Refuse a name that does not fit on one line of a list."""
    check_text(field, text, MAX_TITLE_LENGTH)
    if text is not None and has_line_break(text):
        raise InvalidInput(f"{field} {text!r} has a line break; write it on one line").at_path(f".{field}")


def check_priority(priority: int) -> None:
    if abs(priority) > _MAX_PRIORITY:
        advice = f"use -{_MAX_PRIORITY} to {_MAX_PRIORITY}"
        raise InvalidInput(f"priority {priority} is out of range; {advice}").at_path(".priority")


def _check_name(field: str, name: str | None) -> None:
    if name is not None and not is_name(name):
        raise InvalidInput(f"not a usable {field}: {name!r}; use {NAME_RULE}").at_path(f".{field}")


def _check_pools(pools: Mapping[str, int]) -> None:
    for name, weight in pools.items():
        if not is_pool_name(name):
            kinds = ", ".join(f"{kind}/NAME" for kind in POOL_KINDS)
            message = f"not a pool name: {name!r}; a pool is global or one of {kinds}"
            raise InvalidInput(message).at_path(".pools")
        if not 1 <= weight <= MAX_WEIGHT:
            message = f"pool {name}: weight {weight} is out of range; use 1 to {MAX_WEIGHT}"
            raise InvalidInput(message).at_path(".pools")


def check_variables(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        if not name or "=" in name or "\x00" in name or "\x00" in value:
            raise InvalidInput(f"not a usable environment variable: {name!r}").at_path(".env")
        if has_line_break(name):
            message = f"the name of environment variable {name!r} has a line break; write it on one line"
            raise InvalidInput(message).at_path(".env")


def parse_limit(field: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    with error_path(f".{field}"):
        limit = parse_duration(text)
        if not limit:
            raise InvalidInput(f"{field} must be longer than zero; leave it out for no limit")
    return limit


def parse_delay(delay: str | None, now: datetime) -> datetime | None:
    if delay is None:
        return None
    with error_path(".delay"):
        wait = parse_duration(delay)
    return now + wait if wait else None


def _check_phase(phase: str | None, flow: str | None) -> None:
    if phase is None:
        return
    if not is_name(phase) or "/" in phase:  # the key of a phase lock separates phase and flow by a slash
        raise InvalidInput(f"not a usable phase: {phase!r}; use {NAME_RULE}, and no / at all").at_path(".phase")
    if flow is None:
        raise InvalidInput(f"phase {phase} needs a flow; name the `flow` too").at_path(".phase")


def merge_locks(requests: Sequence[LockRequest], phase_lock: Lock | None = None) -> tuple[Lock, ...]:
    """Merge locks by key. A key that is named twice is exclusive if either lock is."""
    if not requests and phase_lock is None:
        return ()
    locks: dict[str, Lock] = {} if phase_lock is None else {phase_lock.key: phase_lock}
    for n, lock in enumerate(requests):
        if not is_key(lock.key):
            raise InvalidInput(f"not a usable lock key: {lock.key!r}; use {KEY_RULE}").at_path(f".locks[{n}]")
        known = locks.get(lock.key)
        mode = lock.mode if known is None else min(known.mode, lock.mode)
        locks[lock.key] = Lock(key=lock.key, mode=mode)
    return tuple(sorted(locks.values()))
