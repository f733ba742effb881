"""Jobs that would wait for each other for ever are refused: over `after`, and over what they need and produce."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.core.after import EdgeState, find_cycle
from rota.core.artifact import Artifact
from rota.core.status import WAITING
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput
from rota.ids import JobId, show_job
from rota.store.artifact import scope_of
from rota.store.submit import ChainState, NewJob

Key = tuple[str, str]
"""What an artifact belongs to, and its name."""


def refuse_rings(work: Work, jobs: Sequence[NewJob], names: Mapping[JobId, str] = {}) -> None:
    """Over all that wait already, where one of them needs what is to be produced now; else over the new ones alone."""
    made: dict[Key, list[JobId]] = {}
    for job in jobs:
        for key in _keys(job.products, job.spec.repository):
            made.setdefault(key, []).append(job.id)
    patched = {need.job for job in jobs for need in job.needs if need.job is not None}
    if not made and not patched:
        return
    chains = work.session.chains(sorted(patched)) if patched else {}
    graph = {job.id: _before(job, made, chains) for job in jobs}
    if made and work.session.is_needed(made):
        _add_older(work, graph, jobs, made)
    ring = find_cycle(graph)
    if ring is not None:
        first = next((n for n, job in enumerate(jobs) if job.id in ring), 0)
        said = " -> ".join(names.get(job) or show_job(job) for job in ring)
        raise InvalidInput(f"invalid `needs` cycle: {said}").under(f".jobs[{first}].needs")


def _keys(artifacts: Iterable[Artifact], repository: str | None) -> list[Key]:
    return [(scope_of(artifact, repository), str(artifact)) for artifact in artifacts]


def _before(
    job: NewJob, made: Mapping[Key, Sequence[JobId]], chains: Mapping[JobId, ChainState]
) -> list[JobId]:  # fmt: skip
    """What it waits for: the chains it comes after, the new jobs that make what it needs, and the chains whose patch it
    needs; a job that is not among `chains` comes along and is its own."""
    makers = [maker for key in _keys(job.needs, job.spec.repository) for maker in made.get(key, ()) if maker != job.id]
    named = [need.job for need in job.needs if need.job is not None]
    patched = [chains[each].chain if each in chains else each for each in named]
    return [edge.chain for edge, state in job.edges if state is EdgeState.OPEN] + makers + patched


def _add_older(
    work: Work, graph: dict[JobId, list[JobId]], jobs: Sequence[NewJob], made: Mapping[Key, Sequence[JobId]]
) -> None:
    """What the new ones wait for, and what that waits for in its turn, as far as it has not started."""
    for job in jobs:
        graph[job.id] += work.session.makers_of(_keys(job.needs, job.spec.repository))
    _follow(work, graph, {chain for before in graph.values() for chain in before} - graph.keys(), made)


def refuse_rings_of(work: Work, chains: Sequence[JobId]) -> None:
    """Of chains that wait again: what came after them may make what they need."""
    graph: dict[JobId, list[JobId]] = {}
    _follow(work, graph, set(chains), {})
    ring = find_cycle(graph)
    if ring is not None:
        said = " -> ".join(map(show_job, ring))
        raise Conflict(
            f"these would wait for each other for ever: {said}; submit anew what is to run before the others"
        )


def _follow(
    work: Work, graph: dict[JobId, list[JobId]], ahead: set[JobId], made: Mapping[Key, Sequence[JobId]]
) -> None:
    """Add these, and all that they wait for, as far as it has not started."""
    while ahead:
        states = work.session.chains(sorted(ahead))
        waiting = {state.chain: state.last for state in states.values() if state.status in WAITING}
        graph.update(work.session.waits_for(waiting, made))
        ahead = {chain for known in waiting for chain in graph.get(known, ())} - graph.keys()
