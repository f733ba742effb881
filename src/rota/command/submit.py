"""`submit`: check a job whole, then store it; what is refused leaves no trace."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from rota.core.after import AfterPolicy, Edge, EdgeState, state_of
from rota.core.job import Spec
from rota.core.lock import Lock, LockMode
from rota.core.pool import GLOBAL, KINDS
from rota.core.tick import is_free
from rota.duration import parse_duration
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, NotFound
from rota.ids import JobId, parse_job, show_job
from rota.store.submit import NewJob

_NAME = re.compile(r"[^\s*\x00-\x1f\x7f][^\s\x00-\x1f\x7f]{0,199}")
_MOST_PRIORITY = 1_000_000
_MOST_WEIGHT = 1_000_000


class AfterWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job: str
    policy: AfterPolicy = AfterPolicy.SUCCESS


class LockWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str
    mode: LockMode = LockMode.EXCLUSIVE


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as asked for."""

    command: list[str]
    name: str | None = None
    type: str | None = None
    params: dict[str, Any] = {}
    priority: int = 0
    after: list[AfterWanted] = []
    locks: list[LockWanted] = []
    pools: dict[str, int] = {}
    flow: str | None = None
    target: str | None = None
    delay: str | None = None
    timeout: str | None = None
    idle_timeout: str | None = None
    skip_if: str | None = None
    cwd: str | None = None
    env: dict[str, str] = {}
    inherit_env: bool = True
    """Whether `env` goes on top of the scheduler's own environment; the CLI sends the caller's whole."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a job gets that does not bring its own."""

    cwd: str
    variables: Mapping[str, str]


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    warnings: list[str]
    is_repeat: bool = False


def submit(
    work: Work, wanted: Submission, around: Surroundings, *, actor: str | None, key: str | None = None
) -> Submitted:
    """Store the job. With an idempotency key, a request that comes again is answered, not stored again."""
    digest = hashlib.sha256(msgspec.json.encode(wanted)).hexdigest() if key else ""
    if key and (told := _told_before(work, key, digest)) is not None:
        return told
    (job,) = work.session.next_job_ids(1)
    spec, warnings = _spec(work, wanted, around)
    edges = _edges(work, job, wanted.after)
    draws = work.settings.policy.draws(spec)
    not_before = _not_before(wanted.delay, work.now)
    unmet = sum(1 for _, state in edges if state is not EdgeState.MET)
    new = NewJob(
        id=job,
        spec=spec,
        priority=wanted.priority,
        not_before=not_before,
        edges=edges,
        draws=draws,
        is_ready=is_free(unmet=unmet, not_before=not_before, locks=spec.locks),
    )
    work.session.add([new], work.now, actor)
    told = Submitted(job=job, warnings=warnings + work.settings.limits.warnings(draws, spec.pools))
    if key:
        work.session.remember_answer(key, digest, msgspec.json.encode(told).decode(), work.now)
    return told


def _told_before(work: Work, key: str, digest: str) -> Submitted | None:
    answer = work.session.answer(key)
    if answer is None:
        return None
    if answer[0] != digest:
        raise Conflict("this Idempotency-Key came with another request before; use a new key for a new request")
    return msgspec.structs.replace(msgspec.json.decode(answer[1], type=Submitted), is_repeat=True)


def _spec(work: Work, wanted: Submission, around: Surroundings) -> tuple[Spec, list[str]]:
    _check_command(wanted.command)
    _check_priority(wanted.priority)
    _check_pools(wanted.pools)
    for field in ("type", "flow", "target"):
        _check_name(field, getattr(wanted, field))
    cwd = wanted.cwd if wanted.cwd is not None else around.cwd
    if not cwd.startswith("/") or "\x00" in cwd:
        raise InvalidInput(f"cwd must be an absolute path, not {cwd!r}")
    variables = {**around.variables, **wanted.env} if wanted.inherit_env else wanted.env
    _check_variables(variables)
    spec = Spec(
        command=tuple(wanted.command),
        cwd=cwd,
        surroundings=work.session.surroundings(variables),
        name=wanted.name,
        type=wanted.type,
        params=wanted.params,
        flow=wanted.flow,
        target=wanted.target,
        pools=wanted.pools,
        locks=_locks(wanted.locks),
        timeout=_limit("timeout", wanted.timeout),
        idle_timeout=_limit("idle_timeout", wanted.idle_timeout),
        skip_if=wanted.skip_if,
    )
    return spec, _missing_things(spec, variables)


def _check_command(command: Sequence[str]) -> None:
    if not command or not command[0].strip():
        raise InvalidInput("the command is empty; write it after --, as in: rota submit -- echo hello")
    if any("\x00" in word for word in command):
        raise InvalidInput("the command has a NUL character, which no program can be given; remove it")


def _check_priority(priority: int) -> None:
    if abs(priority) > _MOST_PRIORITY:
        raise InvalidInput(f"priority {priority} is out of range; it goes from -{_MOST_PRIORITY} to {_MOST_PRIORITY}")


def _check_name(field: str, name: str | None) -> None:
    if name is not None and not _NAME.fullmatch(name):
        raise InvalidInput(
            f"not a usable {field}: {name!r}; use 1 to 200 characters without spaces, not starting with *"
        )


def _check_pools(pools: Mapping[str, int]) -> None:
    for name, weight in pools.items():
        kind, _, rest = name.partition("/")
        if name != GLOBAL and (kind not in KINDS or not _NAME.fullmatch(rest)):
            kinds = ", ".join(f"{kind}/NAME" for kind in KINDS)
            raise InvalidInput(f"not a pool name: {name!r}; a pool is global or one of {kinds}")
        if not 1 <= weight <= _MOST_WEIGHT:
            raise InvalidInput(f"pool {name}: a job draws at least 1 and at most {_MOST_WEIGHT}, not {weight}")


def _check_variables(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        if not name or "=" in name or "\x00" in name or "\x00" in value:
            raise InvalidInput(f"not a usable environment variable: {name!r}")


def _limit(field: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    limit = parse_duration(text)
    if not limit:
        raise InvalidInput(f"{field} must be longer than nothing; leave it out for no limit")
    return limit


def _not_before(delay: str | None, now: datetime) -> datetime | None:
    wait = timedelta() if delay is None else parse_duration(delay)
    return now + wait if wait else None


def _locks(wanted: Sequence[LockWanted]) -> tuple[Lock, ...]:
    """By key; a key named twice is exclusive if either says so."""
    locks: dict[str, Lock] = {}
    for lock in wanted:
        if not lock.key or "\x00" in lock.key or len(lock.key) > 200:
            raise InvalidInput(f"not a usable lock key: {lock.key!r}; use 1 to 200 characters")
        known = locks.get(lock.key)
        mode = lock.mode if known is None else min(known.mode, lock.mode)
        locks[lock.key] = Lock(key=lock.key, mode=mode)
    return tuple(sorted(locks.values()))


def _edges(work: Work, job: JobId, wanted: Sequence[AfterWanted]) -> tuple[tuple[Edge, EdgeState], ...]:
    """Unknown ids and self reference are refused by name, repeats dropped, order kept."""
    named = list(dict.fromkeys((parse_job(after.job), after.policy) for after in wanted))
    chains = work.session.chains([predecessor for predecessor, _ in named]) if named else {}
    edges = []
    for predecessor, policy in named:
        if predecessor == job:
            raise InvalidInput(f"invalid --after self dependency: {show_job(job)}")
        if predecessor not in chains:
            raise NotFound(f"unknown --after job id: {show_job(predecessor)}")
        state = chains[predecessor]
        edge = Edge(predecessor=predecessor, chain=state.chain, policy=policy)
        edges.append((edge, state_of(policy, state.status)))
    return tuple(edges)


def _missing_things(spec: Spec, variables: Mapping[str, str]) -> list[str]:
    """What is not there now may be there when the job starts: a predecessor may build it. So it is only said."""
    if not Path(spec.cwd).is_dir():
        return [f"the working directory {spec.cwd} does not exist (yet)"]
    program = spec.command[0]
    if "/" in program:
        found = shutil.which(str(Path(spec.cwd) / program))
    else:
        found = shutil.which(program, path=variables.get("PATH", ""))
    return [] if found else [f"program not found (yet): {program}"]
