"""`submit`: check a job whole, then store it; what is refused leaves no trace."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence, Set
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from rota.command.ring import refuse_rings
from rota.command.submission import LockWanted, Submission, Surroundings
from rota.command.survey import NOTHING, Found, Survey
from rota.core.after import AfterPolicy, Edge, EdgeState, find_cycle, state_of
from rota.core.job import Spec
from rota.core.lock import Lock
from rota.core.pool import Draws
from rota.core.tick import is_free
from rota.core.workspace import Workspace
from rota.duration import parse_duration
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, NotFound
from rota.ids import JobId, parse_job, show_job
from rota.names import NAME_RULE, POOL_KINDS, is_name, is_pool_name
from rota.store.submit import ChainState, NewJob

_MOST_PRIORITY = 1_000_000
_MOST_WEIGHT = 1_000_000
_NOTHING_FOUND = Found()


class Submitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    jobs: list[JobId]
    warnings: list[str]
    is_repeat: bool = False
    new: Sequence[NewJob] = ()
    """What was stored just now."""


def submit(
    work: Work,
    wanted: Sequence[Submission],
    around: Surroundings,
    *,
    actor: str | None,
    key: str | None = None,
    warnings: Sequence[str] = (),
    survey: Survey = NOTHING,
    workspaces: Sequence[Workspace | None] = (),
) -> Submitted:
    """Store the jobs, all or none. A request that comes again with its key is answered, not stored again. Where any of
    them asks for a workspace, `workspaces` has what git said to each."""
    digest = hashlib.sha256(msgspec.json.encode(wanted)).hexdigest() if key else ""
    if key and (told := _told_before(work, key, digest)) is not None:
        return told
    if survey.refusal is not None:
        raise survey.refusal
    work.learn(survey.seen, survey.began)
    ids = work.session.next_job_ids(len(wanted))
    checker = Checker(work, around)
    edges = _edges(work, ids, wanted)
    found = survey.found or [_NOTHING_FOUND] * len(ids)
    given = workspaces or [None] * len(ids)
    jobs = [
        checker.check(job, member, edges[job], each, workspace)
        for job, member, each, workspace in zip(ids, wanted, found, given, strict=True)
    ]
    if survey.found:
        _refuse_unknown_patches(work, jobs)
        refuse_rings(work, jobs)
    work.session.add(jobs, work.now, actor)
    told = Submitted(jobs=ids, warnings=[*warnings, *checker.warnings])
    if key:
        work.session.remember_answer(key, digest, msgspec.json.encode(told).decode(), work.now)
    return msgspec.structs.replace(told, new=jobs)


class Checker:
    """Checks the jobs of one submit; what many of them share is looked up once."""

    def __init__(self, work: Work, around: Surroundings) -> None:
        self._work = work
        self._around = around
        self._draws: dict[tuple[object, ...], Draws] = {}
        self._last: tuple[bool, Mapping[str, str], int] | None = None
        """The environment of the job before and where it is stored: most often it is this one's too."""
        self.warnings: dict[str, None] = {}

    def check(
        self, job: JobId, wanted: Submission, edges: tuple[tuple[Edge, EdgeState], ...], found: Found,
        workspace: Workspace | None,
    ) -> NewJob:  # fmt: skip
        spec = self.spec(wanted, found, workspace)
        draws = self.draws_of(spec)
        not_before = _not_before(wanted.delay, self._work.now)
        unmet = sum(1 for _, state in edges if state is not EdgeState.MET)
        return NewJob(
            id=job,
            spec=spec,
            priority=wanted.priority,
            not_before=not_before,
            edges=edges,
            draws=draws,
            is_ready=is_free(
                unmet=unmet, not_before=not_before, locks=spec.locks, asks=bool(found.needs or found.pinned_head)
            ),
            needs=found.needs,
            products=found.products,
            missing_producer=wanted.missing_producer or self._work.settings.missing_producer,
        )

    def draws_of(self, spec: Spec) -> Draws:
        alike = (spec.type, spec.flow, spec.target, *spec.pools.items())
        draws = self._draws.get(alike)
        if draws is None:
            settings = self._work.settings
            draws = self._draws[alike] = settings.policy.draws(spec)
            self.warnings.update(dict.fromkeys(settings.limits.warnings(draws, spec.pools)))
        return draws

    def spec(self, wanted: Submission, found: Found = _NOTHING_FOUND, workspace: Workspace | None = None) -> Spec:
        _check_command(wanted.command)
        _check_text("name", wanted.name)
        _check_text("skip_if", wanted.skip_if)
        if wanted.skip_if is not None and not wanted.skip_if.strip():
            raise InvalidInput("skip_if is empty, which a shell takes for success: leave it out instead")
        _check_priority(wanted.priority)
        _check_pools(wanted.pools)
        for field in ("type", "flow", "target"):
            _check_name(field, getattr(wanted, field))
        cwd = wanted.cwd if wanted.cwd is not None else self._around.cwd
        if not cwd.startswith("/") or "\x00" in cwd:
            raise InvalidInput(f"cwd must be an absolute path, not {cwd!r}")
        return Spec(
            command=tuple(wanted.command),
            cwd=cwd,
            surroundings=self._surroundings(wanted),
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
            retry=self._work.settings.retry.choose(name=wanted.retry, retries=wanted.retries, flow=wanted.flow),
            repository=found.repository,
            needs=tuple(str(artifact) for artifact in found.needs),
            produces=tuple(str(artifact) for artifact in found.products),
            pinned_head=found.pinned_head,
            workspace=workspace,
        )

    def _surroundings(self, wanted: Submission) -> int:
        """The stored environment of this job."""
        if self._last is not None and (self._last[0], self._last[1]) == (wanted.inherit_env, wanted.env):
            return self._last[2]
        variables = variables_of(wanted, self._around)
        _check_variables(variables)
        stored = self._work.session.surroundings(variables)
        self._last = wanted.inherit_env, wanted.env, stored
        return stored


def variables_of(wanted: Submission, around: Surroundings) -> Mapping[str, str]:
    return {**around.variables, **wanted.env} if wanted.inherit_env else wanted.env


Needs = frozenset[tuple[str, str, str]]
"""Working directory, program and search path of each job, without repeats."""


def needs_of(wanted: Sequence[Submission], around: Surroundings) -> Needs:
    return frozenset(
        (member.cwd or around.cwd, member.command[0], _search_path(member, around))
        for member in wanted
        if member.command
    )


def _search_path(wanted: Submission, around: Surroundings) -> str:
    return wanted.env.get("PATH", around.variables.get("PATH", "") if wanted.inherit_env else "")


def missing_things(needs: Needs) -> list[str]:
    """What is not there now. It may be there when the jobs start, for a predecessor may build it, so it is only said.
    This asks the file system, which may take its time: not inside a transaction."""
    return sorted({missing for need in needs if (missing := _missing_thing(*need)) is not None})


def _told_before(work: Work, key: str, digest: str) -> Submitted | None:
    answer = work.session.answer(key)
    if answer is None:
        return None
    if answer[0] != digest:
        raise Conflict("this Idempotency-Key came with another request before; use a new key for a new request")
    told = msgspec.json.decode(answer[1], type=Submitted)
    if not work.session.has_jobs(told.jobs[:1]):
        raise work.session.no_such_job(told.jobs[0])
    return msgspec.structs.replace(told, is_repeat=True)


def _check_command(command: Sequence[str]) -> None:
    if not command or not command[0].strip():
        raise InvalidInput("the command is empty; write it after --, as in: rota submit -- echo hello")
    if any("\x00" in word for word in command):
        raise InvalidInput("the command has a NUL character, which no program can be given; remove it")


def _check_text(field: str, text: str | None) -> None:
    if text is not None and "\x00" in text:
        raise InvalidInput(f"{field} has a NUL character; remove it")


def _check_priority(priority: int) -> None:
    if abs(priority) > _MOST_PRIORITY:
        raise InvalidInput(f"priority {priority} is out of range; it goes from -{_MOST_PRIORITY} to {_MOST_PRIORITY}")


def _check_name(field: str, name: str | None) -> None:
    if name is not None and not is_name(name):
        raise InvalidInput(f"not a usable {field}: {name!r}; use {NAME_RULE}")


def _check_pools(pools: Mapping[str, int]) -> None:
    for name, weight in pools.items():
        if not is_pool_name(name):
            kinds = ", ".join(f"{kind}/NAME" for kind in POOL_KINDS)
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


def _edges(
    work: Work, ids: Sequence[JobId], wanted: Sequence[Submission]
) -> dict[JobId, tuple[tuple[Edge, EdgeState], ...]]:
    """Unknown ids, self reference and cycles are refused by name, repeats dropped, order kept."""
    if not any(member.after or member.local is not None for member in wanted):
        return dict.fromkeys(ids, ())
    local = _local_names(ids, wanted)
    named = {
        job: list(dict.fromkeys((local.get(after.job) or parse_job(after.job), after.policy) for after in member.after))
        for job, member in zip(ids, wanted, strict=True)
    }
    new = set(ids)
    older = {predecessor for edges in named.values() for predecessor, _ in edges if predecessor not in new}
    chains = work.session.chains(sorted(older)) if older else {}
    resolved = {}
    for job, edges in named.items():
        resolved[job] = tuple(_edge(job, predecessor, policy, new, chains) for predecessor, policy in edges)
    within = {
        job: [edge.predecessor for edge, _ in edges if edge.predecessor in new] for job, edges in resolved.items()
    }
    if any(within.values()) and (cycle := find_cycle(within)) is not None:
        raise InvalidInput(f"invalid --after cycle: {' -> '.join(show_job(job) for job in cycle)}")
    return resolved


def _refuse_unknown_patches(work: Work, jobs: Sequence[NewJob]) -> None:
    """A patch is of a job that exists, or of one that comes along."""
    named = {artifact.job: artifact for job in jobs for artifact in job.needs if artifact.job is not None}
    known = {job.id for job in jobs} | work.session.chains(sorted(named.keys())).keys() if named else set()
    for new in jobs:
        if any(artifact.job == new.id for artifact in new.needs):
            raise InvalidInput(f"invalid --needs self dependency: command_patch:{show_job(new.id)}")
    for job, artifact in named.items():
        if job not in known:
            raise NotFound(f"unknown job in --needs {artifact}; `rota list --all` shows what there is")


def _local_names(ids: Sequence[JobId], wanted: Sequence[Submission]) -> dict[str, JobId]:
    names: dict[str, JobId] = {}
    for job, member in zip(ids, wanted, strict=True):
        if member.local is None:
            continue
        if not is_name(member.local) or _looks_like_an_id(member.local):
            raise InvalidInput(f"not a usable local name: {member.local!r}; use a word that is not a job id")
        if member.local in names:
            raise InvalidInput(f"two jobs are called {member.local!r}; give each its own local name")
        names[member.local] = job
    return names


def _looks_like_an_id(name: str) -> bool:
    return name.startswith("job-")


def _edge(
    job: JobId, predecessor: JobId, policy: AfterPolicy, new: Set[JobId], chains: Mapping[JobId, ChainState]
) -> tuple[Edge, EdgeState]:
    if predecessor == job:
        raise InvalidInput(f"invalid --after self dependency: {show_job(job)}")
    if predecessor in new:
        return Edge(predecessor=predecessor, chain=predecessor, policy=policy), EdgeState.OPEN
    if predecessor not in chains:
        raise NotFound(f"unknown --after job id: {show_job(predecessor)}")
    state = chains[predecessor]
    edge = Edge(predecessor=predecessor, chain=state.chain, policy=policy)
    return edge, state_of(policy, state.status)


def _missing_thing(cwd: str, program: str, search_path: str) -> str | None:
    if "\x00" in cwd + program:
        return None
    if not Path(cwd).is_dir():
        return f"the working directory {cwd} does not exist (yet)"
    found = shutil.which(str(Path(cwd) / program)) if "/" in program else shutil.which(program, path=search_path)
    if found:
        return None
    if "/" in program and (Path(cwd) / program).is_file():
        return f"program not executable (yet): {program}"
    return f"program not found (yet): {program}"
