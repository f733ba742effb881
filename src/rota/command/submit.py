"""`submit`: check a job whole, then store it; what is refused leaves no trace.

    submitted          stored, with what there is to warn of
    already_active     another chain has its unique key: that job is the answer
    deferred           the queue is full

The last two are answers and not refusals: they come before anything is looked up that could be refused, and before
anything is written. What is wrong by itself is refused before them, so that nobody tries again in vain.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from rota.command.backpressure import Deferred, Delayed, deferred, delays
from rota.command.edge import edges_of, names_of, refuse_unknown_patches
from rota.command.field import check_cwd, check_fields, check_rest, check_variables, limit_of, locks_of, not_before_of
from rota.command.group import admit, check_group, enrol
from rota.command.ring import refuse_rings
from rota.command.submission import GroupWanted, Origin, Submission, Surroundings
from rota.command.survey import NOTHING, Found, Survey
from rota.command.webhook import hook_of
from rota.core.after import Edge, EdgeState
from rota.core.job import Spec
from rota.core.lock import Lock, phase_lock
from rota.core.pool import Draws
from rota.core.retry import DEFAULT
from rota.core.tick import is_free
from rota.core.trace import Trace, joined, taken_out
from rota.core.unique import keys_of
from rota.core.webhook import JobHook
from rota.core.workspace import Workspace
from rota.engine.work import Work
from rota.errors import RotaError, within
from rota.ids import GroupId, JobId
from rota.store.submit import NewJob

W = TypeVar("W")
C = TypeVar("C")

_NOTHING_FOUND = Found()
_BY_HAND = Origin()
_SHOWN = 80
"""Characters of a name that is too long."""
_Member = tuple[JobId, Submission, tuple[tuple[Edge, EdgeState], ...], Found, Workspace | None, Origin]
"""A job of a submit with all that was found out of it."""


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[JobId]
    warnings: list[str]
    new: Sequence[NewJob] = ()
    """What was stored just now."""
    flows: frozenset[str] = frozenset()
    """Of its jobs."""
    group: GroupId | None = None
    """The one that was made of them."""


class AlreadyActive(msgspec.Struct, frozen=True, kw_only=True):
    active: Mapping[str, JobId]
    """The jobs that have the unique keys, by key."""

    @property
    def jobs(self) -> list[JobId]:
        return list(dict.fromkeys(self.active.values()))


Answer = Submitted | AlreadyActive | Deferred


def submit(
    work: Work,
    wanted: Sequence[Submission],
    around: Surroundings,
    *,
    actor: str | None,
    warnings: Sequence[str] = (),
    survey: Survey = NOTHING,
    workspaces: Sequence[Workspace | None] = (),
    origins: Sequence[Origin] = (),
    group: GroupWanted | None = None,
) -> Answer:
    """Store the jobs, all or none. Where any of them asks for a workspace, `workspaces` has what git said to each;
    where any was not typed by hand, `origins` says where each comes from. With `group` they are the members of a new
    one."""
    _check_each(wanted, check_fields)
    if group is not None:
        check_group(group)
    with within(".jobs"):
        keys = keys_of([member.unique for member in wanted])
    if active := work.session.active_of(keys):
        _check_whole(work, wanted)
        return AlreadyActive(active={key: each.job for key, each in active.items()})
    if survey.refusal is not None:
        raise survey.refusal
    is_fire = any(origin.schedule is not None for origin in origins)
    if not is_fire and (put_off := deferred(work, flows_of(wanted))) is not None:
        _check_whole(work, wanted)
        return put_off
    work.learn(survey.seen, survey.began)
    ids = work.session.next_job_ids(len(wanted))
    checker = Checker(work, around)
    enrolment = enrol(work, ids, wanted, group, actor)
    edges = edges_of(work, ids, wanted, enrolment)
    found = survey.found or [_NOTHING_FOUND] * len(ids)
    given = workspaces or [None] * len(ids)
    sources = origins or [_BY_HAND] * len(ids)
    jobs = checker.check_all(zip(ids, wanted, edges.values(), found, given, sources, strict=True))
    if enrolment.places:
        jobs = admit(work, jobs, enrolment)
    if survey.found:
        refuse_unknown_patches(work, jobs, wanted)
        refuse_rings(work, jobs, names_of(ids, wanted))
    work.session.add(jobs, work.now, actor)
    work.has_stored = True
    return Submitted(
        jobs=ids, warnings=[*warnings, *checker.warnings], new=jobs, flows=flows_of(wanted), group=enrolment.made
    )


def _check_whole(work: Work, wanted: Sequence[Submission]) -> None:
    """Nobody is told to come again with what could not be taken."""

    def check(member: Submission) -> None:
        check_rest(member, work.settings.retry, work.now)
        hook_of(member, work.settings.webhooks)

    _check_each(wanted, check)


def _check_each(wanted: Iterable[W], check: Callable[[W], C]) -> list[C]:
    checked: list[C] = []
    try:
        for member in wanted:
            checked.append(check(member))  # noqa: PERF401 - those before it say which one is refused
    except RotaError:
        with within(f".jobs[{len(checked)}]"):
            raise
    return checked


def delays_of(work: Work, told: Sequence[Answer]) -> list[Delayed | None]:
    """What each is to be warned of, at the end of its turn."""
    return delays(work, [one.flows if isinstance(one, Submitted) else None for one in told])


class Checker:
    """Checks the jobs of one submit; what many of them share is looked up once."""

    def __init__(self, work: Work, around: Surroundings) -> None:
        self._work = work
        self._around = around
        self._draws: dict[tuple[object, ...], Draws] = {}
        self._last: tuple[bool, Mapping[str, str], int, Trace] | None = None
        """The environment of the job before, where it is stored and its trace: most often they are this one's too."""
        self.warnings: dict[str, None] = {}

    def check_all(self, members: Iterable[_Member]) -> list[NewJob]:
        return _check_each(members, lambda member: self.check(*member))

    def check(
        self, job: JobId, wanted: Submission, edges: tuple[tuple[Edge, EdgeState], ...], found: Found,
        workspace: Workspace | None, origin: Origin = _BY_HAND,
    ) -> NewJob:  # fmt: skip
        spec = self.spec(wanted, found, workspace, origin)
        draws = self.draws_of(spec)
        not_before = not_before_of(wanted.delay, self._work.now)
        unmet = sum(1 for _, state in edges if state is not EdgeState.MET)
        return NewJob(
            id=job,
            spec=spec,
            priority=wanted.priority or 0,
            not_before=not_before,
            edges=edges,
            draws=draws,
            unique=wanted.unique,
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

    def spec(
        self, wanted: Submission, found: Found = _NOTHING_FOUND, workspace: Workspace | None = None,
        origin: Origin = _BY_HAND,
    ) -> Spec:  # fmt: skip
        cwd = wanted.cwd if wanted.cwd is not None else self._around.cwd
        check_cwd(cwd)
        surroundings, trace = self._surroundings(wanted)
        return Spec(
            command=tuple(wanted.command),
            cwd=cwd,
            surroundings=surroundings,
            trace=trace,
            name=wanted.name,
            type=wanted.type,
            params=wanted.params,
            flow=wanted.flow,
            phase=wanted.phase,
            target=wanted.target,
            pools=wanted.pools,
            locks=locks_of(wanted.locks, phase_lock_of(wanted)),
            timeout=limit_of("timeout", wanted.timeout),
            idle_timeout=limit_of("idle_timeout", wanted.idle_timeout),
            skip_if=wanted.skip_if,
            retry=self._work.settings.retry.choose(
                name=wanted.retry,
                retries=wanted.retries,
                flow=wanted.flow,
                otherwise=None if origin.is_by_hand else DEFAULT,
            ),
            repository=found.repository,
            needs=tuple(map(str, found.needs)),
            produces=tuple(map(str, found.products)),
            pinned_head=found.pinned_head,
            workspace=workspace,
            template=origin.template,
            schedule=origin.schedule,
            recipe=origin.recipe,
            webhook=self._hook(wanted),
        )

    def _hook(self, wanted: Submission) -> JobHook | None:
        hook = hook_of(wanted, self._work.settings.webhooks)
        self._work.names_urls = self._work.names_urls or hook is not None
        return hook

    def _surroundings(self, wanted: Submission) -> tuple[int, Trace]:
        """Where the environment of this job is stored, and its trace, which is kept apart from it."""
        if self._last is not None and (self._last[0], self._last[1]) == (wanted.inherit_env, wanted.env):
            return self._last[2:]
        variables = variables_of(wanted, self._around)
        check_variables(variables)
        shared, own = taken_out(variables)
        stored, trace = self._work.session.surroundings(shared), joined(own, self._around.trace)
        self._last = wanted.inherit_env, wanted.env, stored, trace
        return stored, trace


def phase_lock_of(wanted: Submission) -> Lock | None:
    if wanted.phase is None or wanted.flow is None or wanted.parallelizable:
        return None
    return phase_lock(wanted.phase, wanted.flow)


def flows_of(wanted: Sequence[Submission]) -> frozenset[str]:
    return frozenset(member.flow for member in wanted if member.flow is not None)


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
    return sorted({missing for need in needs if (missing := _looked_for(*need)) is not None})


def _looked_for(cwd: str, program: str, search_path: str) -> str | None:
    try:
        return _missing_thing(cwd, program, search_path)
    except OSError as error:  # a name that is too long for any file system, as one
        return f"{program[:_SHOWN]} in {cwd[:_SHOWN]} cannot be looked for: {error.strerror}"


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
