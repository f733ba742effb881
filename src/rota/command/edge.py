"""The jobs that those of a submit name: `after` edges, by id or by local name, and patches of other jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import msgspec

from rota.command.group import NOWHERE, Enrolment
from rota.command.submission import Submission
from rota.core.after import AfterPolicy, Edge, EdgeState, find_cycle, state_of
from rota.core.artifact import parse_artifact
from rota.engine.work import Work
from rota.errors import InvalidInput, NotFound, RotaError, within
from rota.ids import GroupId, JobId, parse_job, show_job
from rota.names import is_name
from rota.store.submit import ChainState, NewJob

FINISHED = AfterPolicy.FINISHED


def edges_of(
    work: Work, ids: Sequence[JobId], wanted: Sequence[Submission], enrolment: Enrolment = NOWHERE
) -> dict[JobId, tuple[tuple[Edge, EdgeState], ...]]:
    """Unknown ids, self reference and cycles are refused by name, repeats dropped, order kept. What follows from the
    order of a group comes last."""
    implied = enrolment.before
    if not implied and not any(member.after or member.local is not None for member in wanted):
        return dict.fromkeys(ids, ())
    local = _local_names(ids, wanted)
    named = {job: _named(n, wanted[n], local) for n, job in enumerate(ids)}
    names = names_of(ids, wanted)
    new = set(ids)
    older = {predecessor for edges in named.values() for predecessor, _ in edges if predecessor not in new}
    older.update(predecessor for predecessor in implied.values() if predecessor not in new)
    chains = work.session.chains(sorted(older)) if older else {}
    resolved = {}
    for n, (job, edges) in enumerate(named.items()):
        group = enrolment.group_of(job)
        try:
            resolved[job] = tuple(_edge(job, predecessor, policy, new, chains, group) for predecessor, policy in edges)
        except RotaError as error:
            raise _said_where(error, n, wanted[n], job, names.get(job)) from None
        if job in implied:
            resolved[job] += _implied(resolved[job], _edge(job, implied[job], FINISHED, new, chains, group))
    within = {
        job: [edge.predecessor for edge, _ in edges if edge.predecessor in new] for job, edges in resolved.items()
    }
    if any(within.values()) and (cycle := find_cycle(within)) is not None:
        said = " -> ".join(names.get(job) or show_job(job) for job in cycle)
        raise InvalidInput(f"invalid --after cycle: {said}").under(f".jobs[{ids.index(cycle[0])}].after")
    return resolved


def names_of(ids: Sequence[JobId], wanted: Sequence[Submission]) -> Mapping[JobId, str]:
    """What those are called that have no id yet as far as anyone knows."""
    return {job: member.local for job, member in zip(ids, wanted, strict=True) if member.local is not None}


def _named(n: int, member: Submission, local: Mapping[str, JobId]) -> list[tuple[JobId, AfterPolicy]]:
    found: dict[tuple[JobId, AfterPolicy], None] = {}
    for m, after in enumerate(member.after):
        with within(f".jobs[{n}].after[{m}]"):
            found[local.get(after.job) or parse_job(after.job), after.policy] = None
    return list(found)


def _said_where(error: RotaError, n: int, member: Submission, job: JobId, name: str | None) -> RotaError:
    """With the edge that it speaks of, and by the name that its writer knows."""
    said = error.message.rpartition(" ")[2]
    called = (show_job(job), name) if said == show_job(job) else (said,)
    place = next((m for m, after in enumerate(member.after) if after.job in called), None)
    if name is not None and said == show_job(job):
        error = type(error)(error.message.removesuffix(said) + name)
    return error.under(f".jobs[{n}].after" + ("" if place is None else f"[{place}]"))


def _local_names(ids: Sequence[JobId], wanted: Sequence[Submission]) -> dict[str, JobId]:
    names: dict[str, JobId] = {}
    for n, (job, member) in enumerate(zip(ids, wanted, strict=True)):
        if member.local is None:
            continue
        with within(f".jobs[{n}].local"):
            if not is_name(member.local) or _looks_like_an_id(member.local):
                raise InvalidInput(f"not a usable local name: {member.local!r}; use a word that is not a job id")
            if member.local in names:
                raise InvalidInput(f"two jobs are called {member.local!r}; give each its own local name")
        names[member.local] = job
    return names


def _looks_like_an_id(name: str) -> bool:
    return name.startswith("job-")


def _implied(
    named: Sequence[tuple[Edge, EdgeState]], other: tuple[Edge, EdgeState]
) -> tuple[tuple[Edge, EdgeState], ...]:
    """Who was named to come after the member before waits for its end already, whatever the policy."""
    edge, state = other
    if any(each.chain == edge.chain for each, _ in named):
        return ()
    return ((msgspec.structs.replace(edge, is_implied=True), state),)


def _edge(
    job: JobId, predecessor: JobId, policy: AfterPolicy, new: Set[JobId], chains: Mapping[JobId, ChainState],
    group: GroupId | None,
) -> tuple[Edge, EdgeState]:  # fmt: skip
    if predecessor == job:
        raise InvalidInput(f"invalid --after self dependency: {show_job(job)}")
    if predecessor in new:
        return Edge(predecessor=predecessor, chain=predecessor, policy=policy), EdgeState.OPEN
    if predecessor not in chains:
        raise NotFound(f"unknown --after job id: {show_job(predecessor)}")
    state = chains[predecessor]
    edge = Edge(predecessor=predecessor, chain=state.chain, policy=policy)
    return edge, state_of(policy, state.status, is_dropped=state.is_dropped_for(group))


def refuse_unknown_patches(work: Work, jobs: Sequence[NewJob], wanted: Sequence[Submission]) -> None:
    """A patch is of a job that exists, or of one that comes along."""
    named = {artifact.job for job in jobs for artifact in job.needs if artifact.job is not None}
    if not named:
        return
    known = {job.id for job in jobs} | work.session.chains(sorted(named)).keys()
    for n, (new, member) in enumerate(zip(jobs, wanted, strict=True)):
        for m, artifact in enumerate(map(parse_artifact, member.needs)):
            with within(f".jobs[{n}].needs[{m}]"):
                if artifact.job == new.id:
                    raise InvalidInput(f"invalid `needs` self dependency: command_patch:{show_job(new.id)}")
                if artifact.job is not None and artifact.job not in known:
                    raise NotFound(f"unknown job in `needs` {artifact}; `rota list --all` shows what there is")
