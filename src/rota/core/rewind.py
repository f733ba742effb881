"""Rewind: which jobs are put back with one, what stands against it, and what of the world outside goes with them.

The set is the job and all that is downstream of it: what comes `after` it and what needs an artifact that it makes,
over and over, each chain by its last job. Nothing upstream is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from rota.core.artifact import SENTINEL, Artifact
from rota.core.status import STARTED, Status, advance
from rota.errors import Conflict
from rota.ids import JobId, show_job

MID_MERGE = "cannot rewind merge jobs while git has a merge or cherry-pick in progress; finish or abort it, then rewind"
_MERGE_WORK = frozenset({SENTINEL, "target_branch"})


class Craft(msgspec.Struct, frozen=True, kw_only=True):
    """That a chain needs or makes an artifact."""

    chain: JobId
    artifact: Artifact
    scope: str
    is_made: bool

    @property
    def is_merge_work(self) -> bool:
        return self.artifact.type in _MERGE_WORK


def downstream(roots: Sequence[JobId], follow: Callable[[Sequence[JobId]], Iterable[JobId]]) -> list[JobId]:
    """The chains and all that follows them, those nearer to them first. `follow` says what follows right after some
    chains, and is asked of each chain once."""
    found = dict.fromkeys(roots)
    wave = list(found)
    while wave:
        wave = [chain for chain in dict.fromkeys(follow(wave)) if chain not in found]
        found.update(dict.fromkeys(wave))
    return list(found)


def refuse_running(jobs: Iterable[tuple[JobId, Status]]) -> None:
    running = [f"{show_job(job)} ({status.shown})" for job, status in jobs if status in STARTED]
    if running:
        raise Conflict(f"cannot rewind while jobs are running in the rewind set: {', '.join(running)}")


def rewound(status: Status) -> Status:
    """What a job of the set becomes; one that is queued already stays so."""
    return status if status is Status.QUEUED else advance(status, Status.QUEUED, rewind=True)


def stale_sentinels(
    crafts: Iterable[Craft], chains: Collection[JobId], makers: Mapping[str, Collection[JobId]]
) -> list[Artifact]:
    """The merge sentinels that go with the set: what it makes, and what it needs if nobody else makes it. What was made
    upstream stays, and so does what a person put there. `makers` are the chains that make an artifact, by its name."""
    named = [craft for craft in crafts if craft.artifact.type == SENTINEL]
    return list(
        dict.fromkeys(
            craft.artifact for craft in named if craft.is_made or _is_of(chains, makers.get(str(craft.artifact), ()))
        )
    )


def _is_of(chains: Collection[JobId], makers: Collection[JobId]) -> bool:
    return bool(makers) and all(maker in chains for maker in makers)
