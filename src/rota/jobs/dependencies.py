"""Dependencies of the jobs of a submit: `after` edges by id or local name, patches of other jobs, and cycles.

Jobs that would wait for each other forever are refused, over `after` and over needed and produced artifacts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

from rota.db.artifacts import artifact_scope
from rota.db.chains import ChainState
from rota.db.jobs import NewJob
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, NotFound, RotaError, error_path
from rota.groups.commands import NO_ENROLLMENT, Enrollment
from rota.ids import GroupId, JobId, format_job_id, parse_job_id
from rota.jobs.submission import Submission
from rota.kernel.artifacts import Artifact, parse_artifact
from rota.kernel.edges import DependencyPolicy, Edge, EdgeState, edge_state, find_cycle
from rota.kernel.status import WAITING
from rota.naming import is_name, quote_unusable

FINISHED = DependencyPolicy.FINISHED
ArtifactKey = tuple[str, str]
"""Scope and name of an artifact."""


def resolve_edges(
    tx: Transaction, ids: Sequence[JobId], submissions: Sequence[Submission], enrollment: Enrollment = NO_ENROLLMENT
) -> dict[JobId, tuple[tuple[Edge, EdgeState], ...]]:
    """Resolve the `after` edges of each job, without repeats and in order; edges that follow from the order of a group
    come last. Unknown ids, self references and cycles are refused by name."""
    implied = enrollment.predecessors
    if not implied and not any(member.after or member.local is not None for member in submissions):
        return dict.fromkeys(ids, ())
    local = _parse_local_names(ids, submissions)
    named = {job: _parse_dependencies(n, submissions[n], local) for n, job in enumerate(ids)}
    names = local_names_by_job(ids, submissions)
    new = set(ids)
    older = {predecessor for edges in named.values() for predecessor, _ in edges if predecessor not in new}
    older.update(predecessor for predecessor in implied.values() if predecessor not in new)
    chains = tx.chains.states(sorted(older)) if older else {}
    resolved = {}
    for n, (job, edges) in enumerate(named.items()):
        group = enrollment.group_of(job)
        try:
            resolved[job] = tuple(
                _resolve_edge(job, predecessor, policy, new, chains, group) for predecessor, policy in edges
            )
        except RotaError as error:
            raise _locate_error(error, n, submissions[n], job, names.get(job)) from None
        if job in implied:
            resolved[job] += _implied_edges(
                resolved[job], _resolve_edge(job, implied[job], FINISHED, new, chains, group)
            )
    within = {
        job: [edge.predecessor for edge, _ in edges if edge.predecessor in new] for job, edges in resolved.items()
    }
    if any(within.values()) and (cycle := find_cycle(within)) is not None:
        path = " -> ".join(names.get(job) or format_job_id(job) for job in cycle)
        raise InvalidInput(f"invalid --after cycle: {path}").at_path(f".jobs[{ids.index(cycle[0])}].after")
    return resolved


def local_names_by_job(ids: Sequence[JobId], submissions: Sequence[Submission]) -> Mapping[JobId, str]:
    """Return the local names of new jobs, whose ids their client does not know yet."""
    return {job: member.local for job, member in zip(ids, submissions, strict=True) if member.local is not None}


def _parse_dependencies(
    index: int, submission: Submission, local_names: Mapping[str, JobId]
) -> list[tuple[JobId, DependencyPolicy]]:
    dependencies: dict[tuple[JobId, DependencyPolicy], None] = {}
    for m, after in enumerate(submission.after):
        with error_path(f".jobs[{index}].after[{m}]"):
            dependencies[local_names.get(after.job) or parse_job_id(after.job), after.policy] = None
    return list(dependencies)


def _locate_error(error: RotaError, index: int, submission: Submission, job: JobId, name: str | None) -> RotaError:
    """Return the error with the path of the edge that it names, and with the local name in place of a new id."""
    subject = error.message.partition(": ")[2].partition(" ")[0]
    references = (format_job_id(job), name) if subject == format_job_id(job) else (subject,)
    position = next((m for m, after in enumerate(submission.after) if after.job in references), None)
    if name is not None and subject == format_job_id(job):
        error = type(error)(error.message.removesuffix(subject) + name)
    return error.at_path(f".jobs[{index}].after" + ("" if position is None else f"[{position}]"))


def _parse_local_names(ids: Sequence[JobId], submissions: Sequence[Submission]) -> dict[str, JobId]:
    names: dict[str, JobId] = {}
    for n, (job, member) in enumerate(zip(ids, submissions, strict=True)):
        if member.local is None:
            continue
        with error_path(f".jobs[{n}].local"):
            if not is_name(member.local) or _is_id_like(member.local):
                quoted = quote_unusable(member.local)
                raise InvalidInput(f"not a usable local name: {quoted}; use a word that is not a job id")
            if member.local in names:
                raise InvalidInput(f"two jobs have the local name {member.local!r}; give each its own local name")
        names[member.local] = job
    return names


def _is_id_like(name: str) -> bool:
    return name.startswith("job-")


def _implied_edges(
    explicit: Sequence[tuple[Edge, EdgeState]], implied: tuple[Edge, EdgeState]
) -> tuple[tuple[Edge, EdgeState], ...]:
    """Return the edge that group order implies, or nothing if the job has an explicit edge to that chain: any policy
    waits for the end of the chain."""
    implied_edge, state = implied
    if any(edge.chain == implied_edge.chain for edge, _ in explicit):
        return ()
    return ((msgspec.structs.replace(implied_edge, is_implied=True), state),)


def _resolve_edge(
    job: JobId,
    predecessor: JobId,
    policy: DependencyPolicy,
    new: Set[JobId],
    chains: Mapping[JobId, ChainState],
    group: GroupId | None,
) -> tuple[Edge, EdgeState]:
    if predecessor == job:
        raise InvalidInput(f"invalid --after self dependency: {format_job_id(job)}")
    if predecessor in new:
        return Edge(predecessor=predecessor, chain=predecessor, policy=policy), EdgeState.OPEN
    if predecessor not in chains:
        raise NotFound(f"no such job: {format_job_id(predecessor)} (--after); `rota list --all` lists all jobs")
    state = chains[predecessor]
    edge = Edge(predecessor=predecessor, chain=state.chain, policy=policy)
    return edge, edge_state(policy, state.status, is_skipped_by_group=state.is_dropped_for(group))


def refuse_unknown_patches(tx: Transaction, jobs: Sequence[NewJob], submissions: Sequence[Submission]) -> None:
    """Refuse a patch of a job that neither exists nor is part of the submit."""
    named = {artifact.job for job in jobs for artifact in job.needs if artifact.job is not None}
    if not named:
        return
    known = {job.id for job in jobs} | tx.chains.states(sorted(named)).keys()
    for n, (new, member) in enumerate(zip(jobs, submissions, strict=True)):
        for m, artifact in enumerate(map(parse_artifact, member.needs)):
            with error_path(f".jobs[{n}].needs[{m}]"):
                if artifact.job == new.id:
                    raise InvalidInput(f"invalid `needs` self dependency: command_patch:{format_job_id(new.id)}")
                if artifact.job is not None and artifact.job not in known:
                    raise NotFound(f"unknown job in `needs` {artifact}; `rota list --all` shows all jobs")


def refuse_cycles(tx: Transaction, jobs: Sequence[NewJob], names: Mapping[JobId, str] = {}) -> None:
    """Refuse a cycle through new jobs. Waiting jobs are part of the graph only if one of them needs a new product."""
    producers: dict[ArtifactKey, list[JobId]] = {}
    for job in jobs:
        for key in _artifact_keys(job.products, job.spec.repository):
            producers.setdefault(key, []).append(job.id)
    patched = {need.job for job in jobs for need in job.needs if need.job is not None}
    if not producers and not patched:
        return
    chains = tx.chains.states(sorted(patched)) if patched else {}
    graph = {job.id: _find_predecessors(job, producers, chains) for job in jobs}
    if producers and tx.artifacts.is_needed(producers):
        _add_stored_predecessors(tx, graph, jobs, producers)
    cycle = find_cycle(graph)
    if cycle is not None:
        first = next((n for n, job in enumerate(jobs) if job.id in cycle), 0)
        path = " -> ".join(names.get(job) or format_job_id(job) for job in cycle)
        raise InvalidInput(f"invalid `needs` cycle: {path}").at_path(f".jobs[{first}].needs")


def _artifact_keys(artifacts: Iterable[Artifact], repository: str | None) -> list[ArtifactKey]:
    return [(artifact_scope(artifact, repository), str(artifact)) for artifact in artifacts]


def _find_predecessors(
    job: NewJob, producers: Mapping[ArtifactKey, Sequence[JobId]], chains: Mapping[JobId, ChainState]
) -> list[JobId]:
    """Return the chains that a new job waits for: those of its edges, the new jobs that produce its needs, and those
    of the patches it needs. A job outside of `chains` is new and its own chain."""
    new_producers = [
        producer
        for key in _artifact_keys(job.needs, job.spec.repository)
        for producer in producers.get(key, ())
        if producer != job.id
    ]
    named = [need.job for need in job.needs if need.job is not None]
    patched = [chains[patch_job].chain if patch_job in chains else patch_job for patch_job in named]
    return [edge.chain for edge, state in job.edges if state is EdgeState.OPEN] + new_producers + patched


def _add_stored_predecessors(
    tx: Transaction,
    graph: dict[JobId, list[JobId]],
    jobs: Sequence[NewJob],
    producers: Mapping[ArtifactKey, Sequence[JobId]],
) -> None:
    """Add the stored predecessors of the new jobs, and their predecessors, as far as they have not started."""
    for job in jobs:
        graph[job.id] += tx.artifacts.active_producers(_artifact_keys(job.needs, job.spec.repository))
    _add_predecessors(tx, graph, {chain for before in graph.values() for chain in before} - graph.keys(), producers)


def refuse_chain_cycles(tx: Transaction, chains: Sequence[JobId]) -> None:
    """Refuse a cycle through chains that wait again: jobs after them may produce artifacts that they need."""
    graph: dict[JobId, list[JobId]] = {}
    _add_predecessors(tx, graph, set(chains), {})
    cycle = find_cycle(graph)
    if cycle is not None:
        path = " -> ".join(map(format_job_id, cycle))
        raise Conflict(
            f"these jobs would wait for each other forever: {path}; submit a new job for the one that has to run first"
        )


def _add_predecessors(
    tx: Transaction,
    graph: dict[JobId, list[JobId]],
    pending: set[JobId],
    producers: Mapping[ArtifactKey, Sequence[JobId]],
) -> None:
    """Add the pending chains and all their predecessors, as far as they have not started."""
    while pending:
        states = tx.chains.states(sorted(pending))
        waiting = {state.chain: state.last for state in states.values() if state.status in WAITING}
        graph.update(tx.artifacts.unmet_predecessors(waiting, producers))
        pending = {predecessor for chain in waiting for predecessor in graph.get(chain, ())} - graph.keys()
