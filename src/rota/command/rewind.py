"""`rewind`: a job and all that is downstream of it are put back in the queue, in place.

    survey     the set, by a reader           nobody waits for it, however large
    look       git and files, in a thread     whether a merge is under way, what the first job hangs on
    rewind     in the engine's transaction    if the set is still the one that was looked at
    clear      worktrees, in a thread         those that hold nothing

Edges and artifacts of a job never go away, so a set can only grow meanwhile: then it is looked at again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from rota.command.ring import refuse_rings_of
from rota.core.artifact import Outside, Places, facts_of, sentinels_of
from rota.core.fact import Fact, File, Seen
from rota.core.rewind import MID_MERGE, downstream, refuse_running, stale_sentinels
from rota.core.status import TERMINAL, Status
from rota.core.unique import refuse_taken
from rota.engine import rewind as files
from rota.engine.work import Work
from rota.errors import Conflict
from rota.executor.workspace import record
from rota.ids import GroupId, JobId, show_group, show_job
from rota.probe.port import Probe
from rota.store.rewind import Last
from rota.store.session import Looking

_CLEARING = 15.0
"""Seconds for the worktrees of the whole set; what is left then is seen to when its job starts."""
_SUCCEEDED = frozenset({Status.COMPLETED, Status.SKIPPED})
_NOT_DONE = TERMINAL - _SUCCEEDED
_MOST_NAMED = 5
_MOST_ROOTS = 50
"""Of so many at most it is said what succeeded right before them."""


class Area(msgspec.Struct, frozen=True, kw_only=True):
    """A rewind set as it was looked at."""

    job: JobId
    """As it was asked for."""
    chains: tuple[JobId, ...]
    """The job's own first."""
    roots: int = 1
    """So many of them were asked for; the others come after these."""
    group: GroupId | None = None
    """The group that was asked for instead."""
    repositories: tuple[str, ...] = ()
    """Where there is merge work in it."""
    facts: tuple[Fact, ...] = ()
    """What has to be looked at before its first job may start."""
    with_workspace: tuple[JobId, ...] = ()
    """Jobs of it that have ended and may have a worktree left."""


class Sighted(msgspec.Struct, frozen=True, kw_only=True):
    is_mid_merge: bool = False
    seen: Mapping[Fact, Seen] = {}
    began: int = 0
    """The number of the look."""


class Rewound(msgspec.Struct, frozen=True, kw_only=True):
    requested_job: JobId
    root: JobId
    last_successful_point: list[JobId]
    reset: list[JobId]
    cancelled: list[JobId]
    """Those of them that somebody had cancelled."""
    warnings: list[str] = []


def survey(reader: Looking, job: JobId, outside: Outside) -> Area:
    state = reader.last_of_chain(job)
    found = None if state is None else reader.job(state[0])
    if found is None:
        raise reader.no_such_job(job)
    return _area(reader, [found.chain], outside, job=job)


def survey_group(reader: Looking, group: str, outside: Outside) -> Area:
    """What has not succeeded of a group, with all that is downstream of it; nothing, where there is none."""
    found = reader.group_called(group)
    members = reader.members(found.id)
    roots = [member for member in members if member.status in _NOT_DONE or member.is_dropped]
    if not roots:
        return Area(job=JobId(0), chains=(), group=found.id)
    area = _area(reader, [member.chain for member in roots], outside, job=roots[0].job)
    return msgspec.structs.replace(area, group=found.id)


def _area(reader: Looking, roots: Sequence[JobId], outside: Outside, *, job: JobId) -> Area:
    chains = downstream(roots, reader.following)
    merging = {craft.chain for craft in reader.crafts_of(chains) if craft.is_merge_work}
    facts = facts_of([need for needs in reader.needs_of(roots).values() for need in needs], outside.places)
    pins = [pin.fact for pin in reader.pins_of(roots).values()]
    return Area(
        job=job,
        chains=tuple(chains),
        roots=len(roots),
        repositories=tuple(reader.repositories_of(sorted(merging))),
        facts=tuple(dict.fromkeys((*facts, *pins))),
        with_workspace=tuple(reader.with_workspace([each.job for each in reader.last_jobs(chains)])),
    )


def look(area: Area, probe: Probe, began: int) -> Sighted:
    """Asks git and the file system, which may take their time."""
    return Sighted(
        is_mid_merge=any(probe.has_merge_in_progress(repository) for repository in area.repositories),
        seen=probe.look(set(area.facts)) if area.facts else {},
        began=began,
    )


def clear(jobs: Sequence[JobId], directory: Path) -> list[str]:
    """Remove the worktrees that these have left and that nothing can be lost by; of the others, why they stay. Done
    after the rewind: one that is refused changes nothing. What has started again meanwhile sees to its own."""
    deadline = time.monotonic() + _CLEARING
    kept = []
    for job in jobs:
        with suppress(OSError):  # what cannot be looked at stays
            reason = record.clear(str(directory / str(job)), deadline)
            if reason is not None:
                kept.append(f"the worktree of {show_job(job)} stays at {reason}")
    return kept


def rewind(work: Work, area: Area, sighted: Sighted, *, actor: str) -> Rewound | None:
    """None when the set has grown since it was looked at."""
    asked = area.job if area.group is None else show_group(area.group)
    if not area.chains:
        raise Conflict(f"nothing of {asked} has failed or was cancelled; `rota rewind JOB` runs a member again")
    if not set(work.session.following(area.chains)) <= set(area.chains):
        return None
    jobs = work.session.last_jobs(area.chains)
    if not jobs or jobs[0].chain != area.chains[0]:
        raise work.session.no_such_job(area.job)
    refuse_running((each.job, each.status) for each in jobs)
    _refuse_taken_keys(work, jobs)
    if sighted.is_mid_merge:
        raise Conflict(MID_MERGE)
    return _rewind(work, area, jobs, sighted, actor)


def _refuse_taken_keys(work: Work, jobs: Sequence[Last]) -> None:
    active = work.session.active_of([each.unique for each in jobs if each.unique is not None])
    keys = ((each.job, each.unique) for each in jobs)
    refuse_taken(keys, active, {each.chain for each in jobs}, verb="rewind")


def _rewind(work: Work, area: Area, jobs: Sequence[Last], sighted: Sighted, actor: str) -> Rewound:
    root, chains = jobs[0], set(area.chains)
    before = [each for first in jobs[: min(area.roots, _MOST_ROOTS)] for each in work.session.before(first)]
    rewound = Rewound(
        requested_job=area.job,
        root=root.job,
        last_successful_point=list(
            dict.fromkeys(
                each.job
                for each in before
                if each.status in _SUCCEEDED and not each.is_dropped and each.chain not in chains
            )
        ),
        reset=[each.job for each in jobs],
        cancelled=[each.job for each in jobs if each.status is Status.CANCELLED],
    )
    sentinels = _sentinels(work, area.chains, work.settings.places)
    runs = work.session.rewind(jobs, now=work.now, actor=actor)
    refuse_rings_of(work, area.chains)
    for group in sorted({each.group for each in jobs if each.group is not None}):
        work.session.reopen_group(group, work.now, cause="rewind", actor=actor)
        rewound.warnings.extend(_left_out(work, group))
    work.overlook(sentinels)
    work.learn({fact: value for fact, value in sighted.seen.items() if fact not in sentinels}, sighted.began)
    files.tidy(work, runs, [sentinel.path for sentinel in sentinels], rewound.warnings)
    return rewound


def _left_out(work: Work, group: GroupId) -> list[str]:
    """The members that its policy ended and that are not put back with the others."""
    left = work.session.dropped_members(group, _MOST_NAMED + 1)
    if not left:
        return []
    names = ", ".join(show_job(job) for job in left[:_MOST_NAMED]) + (" and more" if len(left) > _MOST_NAMED else "")
    stay, them = ("stays", "it") if len(left) == 1 else ("stay", "them")
    command = f"`rota group rewind {show_group(group)}` puts {them} back too"
    return [f"{names} of {show_group(group)} {stay} as its policy left {them}; {command}"]


def _sentinels(work: Work, chains: Sequence[JobId], places: Places) -> list[File]:
    crafts = [craft for craft in work.session.crafts_of(chains) if craft.is_merge_work]
    makers = work.session.chains_making(sorted({str(craft.artifact) for craft in crafts}))
    return sentinels_of(stale_sentinels(crafts, set(chains), makers), places)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    requested_job: str
    root: str
    last_successful_point: list[str]
    rewind_set: list[str]
    reset: list[str]
    restarted: list[str]
    cancelled: list[str]
    warnings: list[str]
    """Added to until the answer leaves."""


def reports(work: Work, told: Sequence[Rewound | None]) -> list[Report | None]:
    """At the end of the turn that rewound: what was chosen to start in it. That is the root, for all else waits for it,
    unless it was found not to be needed."""
    return [None if rewound is None else _report(work, rewound) for rewound in told]


def _report(work: Work, rewound: Rewound) -> Report:
    root = work.session.job(rewound.root)
    has_started = root is not None and root.current_run is not None
    if root is not None and root.status in TERMINAL and not has_started:
        name = show_job(root.id)
        rewound.warnings.append(f"{name} is {root.status} again: {root.reason}; what is upstream was left as it is")
    chosen = set() if work.plan is None else {claim.job for claim in work.plan.claims}
    chosen |= {rewound.root} if has_started else set()
    reset = [show_job(job) for job in rewound.reset]
    return Report(
        requested_job=show_job(rewound.requested_job),
        root=show_job(rewound.root),
        last_successful_point=[show_job(job) for job in rewound.last_successful_point],
        rewind_set=reset,
        reset=reset,
        restarted=[show_job(job) for job in rewound.reset if job in chosen],
        cancelled=[show_job(job) for job in rewound.cancelled],
        warnings=rewound.warnings,
    )
