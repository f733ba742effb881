"""`rewind`: queue a job and all jobs downstream of it again, in place.

    find        the set, by a reader           does not delay the engine, however large the set
    probe       git and files, in a thread     merges in progress, facts that the root depends on
    rewind      in the engine's transaction    if the set has not grown
    clean up    worktrees, in a thread         those without changes that could be lost

Edges and artifacts of a job are never removed, so a set can only grow in the meantime; then it is found again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from rota.db.chains import ChainTail
from rota.db.session import AnyReader
from rota.engine import rewind_files
from rota.engine.transaction import Transaction
from rota.errors import Conflict
from rota.ids import GroupId, JobId, format_group_id, format_job_id
from rota.jobs.dependencies import refuse_chain_cycles
from rota.kernel.artifacts import ArtifactPaths, Observations, facts_for_needs, sentinel_files
from rota.kernel.facts import Fact, FactValue, FileExists
from rota.kernel.holds import format_time
from rota.kernel.queue import refuse_held_keys
from rota.kernel.rewind import MERGE_IN_PROGRESS, find_downstream, find_stale_sentinels, refuse_running
from rota.kernel.status import TERMINAL, Status
from rota.probe.port import Probe
from rota.worktrees import record

_CLEANUP_TIMEOUT = 15.0
"""Seconds for the worktrees of the whole set; the start of a job cleans up a worktree that is left."""
_SUCCEEDED = frozenset({Status.COMPLETED, Status.SKIPPED})
_UNSUCCESSFUL = TERMINAL - _SUCCEEDED
_MAX_LISTED_JOBS = 5
_MAX_EXAMINED_ROOTS = 50
"""Maximum number of roots whose successful predecessors are reported."""


class RewindSet(msgspec.Struct, frozen=True, kw_only=True):
    """Rewind set as of its evaluation."""

    job: JobId
    """Requested job."""
    chains: tuple[JobId, ...]
    """Chains of the set, those of the roots first."""
    root_count: int = 1
    """Number of roots at the start of `chains`; the other chains are downstream of them."""
    group: GroupId | None = None
    """Requested group, if the request names a group instead of a job."""
    repositories: tuple[str, ...] = ()
    """Repositories with merge artifacts of the set."""
    facts: tuple[Fact, ...] = ()
    """Facts that the roots need before they may start."""
    with_workspace: tuple[JobId, ...] = ()
    """Ended jobs of the set that may have left a worktree."""


class StartFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the facts that decide its start."""

    is_mid_merge: bool = False
    observed: Mapping[Fact, FactValue] = {}
    probe_number: int = 0
    """Number of the probe."""


class RewindOutcome(msgspec.Struct, frozen=True, kw_only=True):
    requested_job: JobId
    root: JobId
    last_successful_point: list[JobId]
    reset: list[JobId]
    cancelled: list[JobId]
    """Jobs of the set that were cancelled before."""
    warnings: list[str] = []


def find_rewind_set(reader: AnyReader, job: JobId, observations: Observations) -> RewindSet:
    last = reader.chains.last_job(job)
    root = None if last is None else reader.jobs.find(last[0])
    if root is None:
        raise reader.jobs.not_found(job)
    return _make_rewind_set(reader, [root.chain], observations, job=job)


def find_group_rewind_set(reader: AnyReader, group: str, observations: Observations) -> RewindSet:
    """Return the members of a group that ended without success and all jobs downstream of them; the set is empty if
    there are none."""
    group_id = reader.groups.find(group).id
    roots = [
        member for member in reader.groups.members(group_id) if member.status in _UNSUCCESSFUL or member.is_dropped
    ]
    if not roots:
        return RewindSet(job=JobId(0), chains=(), group=group_id)
    rewind_set = _make_rewind_set(reader, [member.chain for member in roots], observations, job=roots[0].job)
    return msgspec.structs.replace(rewind_set, group=group_id)


def _make_rewind_set(reader: AnyReader, roots: Sequence[JobId], observations: Observations, *, job: JobId) -> RewindSet:
    chains = find_downstream(roots, reader.chains.downstream)
    merging = {use.chain for use in reader.chains.artifact_uses(chains) if use.is_merge_artifact}
    return RewindSet(
        job=job,
        chains=tuple(chains),
        root_count=len(roots),
        repositories=tuple(reader.chains.repositories_of(sorted(merging))),
        facts=find_start_facts(reader, roots, observations.paths),
        with_workspace=tuple(reader.jobs.ended_with_workspace([tail.job for tail in reader.chains.tails(chains)])),
    )


def find_start_facts(reader: AnyReader, chains: Sequence[JobId], paths: ArtifactPaths) -> tuple[Fact, ...]:
    """Return the facts that these chains need before they may start: their needed artifacts and pinned heads."""
    facts = facts_for_needs([need for needs in reader.artifacts.needs_of(chains).values() for need in needs], paths)
    pins = [pin.fact for pin in reader.artifacts.pins_of(chains).values()]
    return tuple(dict.fromkeys((*facts, *pins)))


def probe_rewind_facts(rewind_set: RewindSet, probe: Probe, probe_number: int) -> StartFacts:
    """Probe git and the file system, which may be slow."""
    return StartFacts(
        is_mid_merge=any(probe.has_merge_in_progress(repository) for repository in rewind_set.repositories),
        observed=probe.observe(set(rewind_set.facts)) if rewind_set.facts else {},
        probe_number=probe_number,
    )


def remove_worktrees(jobs: Sequence[JobId], directory: Path) -> list[str]:
    """Remove worktrees that these jobs have left if no changes can be lost; return a warning for each that stays. It
    runs after the rewind, so that a refused rewind changes nothing. A job that has started again cleans up its own."""
    deadline = time.monotonic() + _CLEANUP_TIMEOUT
    kept = []
    for job in jobs:
        with suppress(OSError):  # a worktree that cannot be read stays
            reason = record.remove_kept_worktree(str(directory / str(job)), deadline)
            if reason is not None:
                kept.append(f"the worktree of {format_job_id(job)} stays at {reason}")
    return kept


def rewind(tx: Transaction, rewind_set: RewindSet, facts: StartFacts, *, actor: str) -> RewindOutcome | None:
    """Rewind the jobs of the set; return None if the set has grown since it was found."""
    subject = rewind_set.job if rewind_set.group is None else format_group_id(rewind_set.group)
    if not rewind_set.chains:
        raise Conflict(f"nothing of {subject} has failed or was cancelled; `rota rewind JOB` runs a member again")
    if not set(tx.chains.downstream(rewind_set.chains)) <= set(rewind_set.chains):
        return None
    tails = tx.chains.tails(rewind_set.chains)
    if not tails or tails[0].chain != rewind_set.chains[0]:
        raise tx.jobs.not_found(rewind_set.job)
    refuse_running((tail.job, tail.status) for tail in tails)
    _refuse_used_keys(tx, tails)
    if facts.is_mid_merge:
        raise Conflict(MERGE_IN_PROGRESS)
    return _rewind_tails(tx, rewind_set, tails, facts, actor)


def _refuse_used_keys(tx: Transaction, tails: Sequence[ChainTail]) -> None:
    active = tx.jobs.key_holders([tail.unique for tail in tails if tail.unique is not None])
    keys = ((tail.job, tail.unique) for tail in tails)
    refuse_held_keys(keys, active, {tail.chain for tail in tails}, action="rewind")


def _rewind_tails(
    tx: Transaction, rewind_set: RewindSet, tails: Sequence[ChainTail], facts: StartFacts, actor: str
) -> RewindOutcome:
    chains = set(rewind_set.chains)
    predecessors = [
        predecessor
        for root in tails[: min(rewind_set.root_count, _MAX_EXAMINED_ROOTS)]
        for predecessor in tx.chains.predecessor_tails(root)
    ]
    outcome = RewindOutcome(
        requested_job=rewind_set.job,
        root=tails[0].job,
        last_successful_point=list(
            dict.fromkeys(
                tail.job
                for tail in predecessors
                if tail.status in _SUCCEEDED and not tail.is_dropped and tail.chain not in chains
            )
        ),
        reset=[tail.job for tail in tails],
        cancelled=[tail.job for tail in tails if tail.status is Status.CANCELLED],
        warnings=_warn_of_dropped_backoffs(tails, tx.now),
    )
    sentinels = _find_stale_sentinels(tx, rewind_set.chains, tx.settings.artifact_paths)
    runs = tx.chains.rewind(tails, now=tx.now, actor=actor)
    refuse_chain_cycles(tx, rewind_set.chains)
    for group in sorted({tail.group for tail in tails if tail.group is not None}):
        tx.groups.reopen(group, tx.now, cause="rewind", actor=actor)
        outcome.warnings.extend(_warn_of_dropped(tx, group))
    tx.invalidate_facts(sentinels)
    tx.record_observed(
        {fact: value for fact, value in facts.observed.items() if fact not in sentinels}, facts.probe_number
    )
    rewind_files.clean_up_after_commit(tx, runs, [sentinel.path for sentinel in sentinels], outcome.warnings)
    return outcome


def _warn_of_dropped_backoffs(tails: Sequence[ChainTail], now: datetime) -> list[str]:
    """Return a warning that names the jobs whose backoff the rewind ends."""
    waiting = [
        (tail.job, tail.backoff_until)
        for tail in tails
        if tail.status is Status.QUEUED and tail.backoff_until is not None and tail.backoff_until > now
    ]
    parts = [
        f"{format_job_id(job)} was to be retried at {format_time(until)}" for job, until in waiting[:_MAX_LISTED_JOBS]
    ]
    if len(waiting) > _MAX_LISTED_JOBS:
        parts.append(f"{len(waiting) - _MAX_LISTED_JOBS} more jobs waited for a retry")
    return [f"dropped delays: {'; '.join(parts)}"] if parts else []


def _warn_of_dropped(tx: Transaction, group: GroupId) -> list[str]:
    """Return a warning that names the members that the group's policy ended and that the rewind does not include."""
    dropped = tx.groups.dropped_members(group, _MAX_LISTED_JOBS + 1)
    if not dropped:
        return []
    names = ", ".join(format_job_id(job) for job in dropped[:_MAX_LISTED_JOBS]) + (
        " and more" if len(dropped) > _MAX_LISTED_JOBS else ""
    )
    stay, them = ("stays", "it") if len(dropped) == 1 else ("stay", "them")
    command = f"`rota group rewind {format_group_id(group)}` rewinds {them} too"
    return [f"{names} of {format_group_id(group)} {stay} as its policy left {them}; {command}"]


def _find_stale_sentinels(tx: Transaction, chains: Sequence[JobId], paths: ArtifactPaths) -> list[FileExists]:
    uses = [use for use in tx.chains.artifact_uses(chains) if use.is_merge_artifact]
    producers = tx.artifacts.producers_by_name(sorted({str(use.artifact) for use in uses}))
    return sentinel_files(find_stale_sentinels(uses, set(chains), producers), paths)


class RewindReport(msgspec.Struct, frozen=True, kw_only=True):
    requested_job: str
    root: str
    last_successful_point: list[str]
    rewind_set: list[str]
    reset: list[str]
    restarted: list[str]
    cancelled: list[str]
    warnings: list[str]
    """Warnings; the cleanup after the commit may add more."""


def render_reports(tx: Transaction, outcomes: Sequence[RewindOutcome | None]) -> list[RewindReport | None]:
    """Render the outcomes at the end of the turn of the rewind, with the jobs that start in this turn. That is the
    root, because all other jobs wait for it, unless the root turns out not to be needed."""
    return [None if outcome is None else _render_report(tx, outcome) for outcome in outcomes]


def _render_report(tx: Transaction, outcome: RewindOutcome) -> RewindReport:
    root = tx.jobs.find(outcome.root)
    has_started = root is not None and root.current_run is not None
    if root is not None and root.status in TERMINAL and not has_started:
        name = format_job_id(root.id)
        outcome.warnings.append(f"{name} is {root.status} again: {root.reason}; jobs upstream were not rewound")
    started = set() if tx.effects.plan is None else {claim.job for claim in tx.effects.plan.claims}
    started |= {outcome.root} if has_started else set()
    reset = [format_job_id(job) for job in outcome.reset]
    return RewindReport(
        requested_job=format_job_id(outcome.requested_job),
        root=format_job_id(outcome.root),
        last_successful_point=[format_job_id(job) for job in outcome.last_successful_point],
        rewind_set=reset,
        reset=reset,
        restarted=[format_job_id(job) for job in outcome.reset if job in started],
        cancelled=[format_job_id(job) for job in outcome.cancelled],
        warnings=outcome.warnings,
    )
