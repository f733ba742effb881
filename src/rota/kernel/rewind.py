"""Rewind: which jobs are rewound together, what prevents it, and which merge sentinels are removed.

The rewind set is the requested job and all jobs downstream of it: jobs that come `after` it or need an artifact that it
produces, transitively, each chain represented by its last job. Upstream jobs are untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from rota.errors import Conflict
from rota.ids import JobId, format_job_id
from rota.kernel.artifacts import MERGE_SENTINEL, Artifact
from rota.kernel.status import STARTED, Status, advance

MERGE_IN_PROGRESS = (
    "cannot rewind merge jobs while git has a merge or cherry-pick in progress; finish or abort it, then rewind"
)
_MERGE_ARTIFACT_TYPES = frozenset({MERGE_SENTINEL, "target_branch"})


class ArtifactUse(msgspec.Struct, frozen=True, kw_only=True):
    """Use of an artifact by a chain, as a need or as a product."""

    chain: JobId
    artifact: Artifact
    scope: str
    is_produced: bool

    @property
    def is_merge_artifact(self) -> bool:
        return self.artifact.type in _MERGE_ARTIFACT_TYPES


def find_downstream(
    roots: Sequence[JobId], find_followers: Callable[[Sequence[JobId]], Iterable[JobId]]
) -> list[JobId]:
    """Return the root chains and everything downstream, nearest first. `find_followers` returns the direct dependents
    of some chains; it is called with each chain only once."""
    chains = dict.fromkeys(roots)
    wave = list(chains)
    while wave:
        wave = [chain for chain in dict.fromkeys(find_followers(wave)) if chain not in chains]
        chains.update(dict.fromkeys(wave))
    return list(chains)


def refuse_running(jobs: Iterable[tuple[JobId, Status]]) -> None:
    jobs = list(jobs)
    running = [f"{format_job_id(job)} ({status.public})" for job, status in jobs if status in STARTED]
    if unreadable := [format_job_id(job) for job, status in jobs if status is Status.UNREADABLE]:
        raise Conflict(
            f"cannot rewind jobs with an unknown status: {', '.join(unreadable)};"
            f" run `rota cancel {unreadable[0]}` first, then rewind"
        )
    if running:
        raise Conflict(f"cannot rewind while jobs are running in the rewind set: {', '.join(running)}")


def rewound_status(status: Status) -> Status:
    """Return the status of a job after rewind; a queued job stays queued."""
    return status if status is Status.QUEUED else advance(status, Status.QUEUED, rewind=True)


def find_stale_sentinels(
    uses: Iterable[ArtifactUse], chains: Collection[JobId], producers: Mapping[str, Collection[JobId]]
) -> list[Artifact]:
    """Return the merge sentinels to remove: those that the chains produce, and those that they need if no other chain
    produces them. Sentinels from upstream or created by a user are kept. `producers` maps an artifact's name to its
    chains."""
    sentinels = [use for use in uses if use.artifact.type == MERGE_SENTINEL]
    return list(
        dict.fromkeys(
            use.artifact
            for use in sentinels
            if use.is_produced or _has_only_producers_in(chains, producers.get(str(use.artifact), ()))
        )
    )


def _has_only_producers_in(chains: Collection[JobId], producers: Collection[JobId]) -> bool:
    return bool(producers) and all(producer in chains for producer in producers)
