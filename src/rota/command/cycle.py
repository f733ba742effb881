"""Refusal of jobs that would wait for each other forever, over `after` and over needed and produced artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.core.artifact import Artifact
from rota.core.edges import EdgeState, find_cycle
from rota.core.status import WAITING
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput
from rota.ids import JobId, format_job_id
from rota.store.artifact import artifact_scope
from rota.store.chain import ChainState
from rota.store.job import NewJob

ArtifactKey = tuple[str, str]
"""Scope and name of an artifact."""


def refuse_cycles(tx: Transaction, jobs: Sequence[NewJob], names: Mapping[JobId, str] = {}) -> None:
    """Refuse a cycle through new jobs. Waiting jobs are part of the graph only if one of them needs a new product."""
    producers: dict[ArtifactKey, list[JobId]] = {}
    for job in jobs:
        for key in _make_keys(job.products, job.spec.repository):
            producers.setdefault(key, []).append(job.id)
    patched = {need.job for job in jobs for need in job.needs if need.job is not None}
    if not producers and not patched:
        return
    chains = tx.chains.states(sorted(patched)) if patched else {}
    graph = {job.id: _find_predecessors(job, producers, chains) for job in jobs}
    if producers and tx.artifacts.is_needed(producers):
        _add_stored(tx, graph, jobs, producers)
    cycle = find_cycle(graph)
    if cycle is not None:
        first = next((n for n, job in enumerate(jobs) if job.id in cycle), 0)
        path = " -> ".join(names.get(job) or format_job_id(job) for job in cycle)
        raise InvalidInput(f"invalid `needs` cycle: {path}").at_path(f".jobs[{first}].needs")


def _make_keys(artifacts: Iterable[Artifact], repository: str | None) -> list[ArtifactKey]:
    return [(artifact_scope(artifact, repository), str(artifact)) for artifact in artifacts]


def _find_predecessors(
    job: NewJob, producers: Mapping[ArtifactKey, Sequence[JobId]], chains: Mapping[JobId, ChainState]
) -> list[JobId]:
    """Return the chains that a new job waits for: those of its edges, the new jobs that produce its needs, and those
    of the patches it needs. A job outside of `chains` is new and its own chain."""
    new_producers = [
        producer
        for key in _make_keys(job.needs, job.spec.repository)
        for producer in producers.get(key, ())
        if producer != job.id
    ]
    named = [need.job for need in job.needs if need.job is not None]
    patched = [chains[patch_job].chain if patch_job in chains else patch_job for patch_job in named]
    return [edge.chain for edge, state in job.edges if state is EdgeState.OPEN] + new_producers + patched


def _add_stored(
    tx: Transaction,
    graph: dict[JobId, list[JobId]],
    jobs: Sequence[NewJob],
    producers: Mapping[ArtifactKey, Sequence[JobId]],
) -> None:
    """Add the stored predecessors of the new jobs, and their predecessors, as far as they have not started."""
    for job in jobs:
        graph[job.id] += tx.artifacts.active_producers(_make_keys(job.needs, job.spec.repository))
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
