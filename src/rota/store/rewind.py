"""Search for everything downstream of a chain, and return of jobs to the queue.

All statements take lists, so a set of ten thousand chains takes as many statements as a set of two. The set includes
every chain with an edge to one of its chains or with a need for one of their products, so no other chain is affected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from rota.core.artifact import Artifact, decode_artifact
from rota.core.event import Event
from rota.core.rewind import ArtifactUse, rewound_status
from rota.core.status import Status, parse_status
from rota.errors import InvalidInput, StoreError
from rota.ids import GroupId, JobId, LaneId, RunId
from rota.store.database import Database
from rota.store.placement import PlacementWriter
from rota.store.timestamp import from_micros, to_micros


class ChainTail(msgspec.Struct, frozen=True, kw_only=True):
    """Last job of a chain."""

    chain: JobId
    job: JobId
    status: Status
    is_ready: bool
    lane: LaneId
    unique: str | None = None
    group: GroupId | None = None
    is_dropped: bool = False
    backoff_until: datetime | None = None
    """End of the delay of a retry or of a failed start. None if the job has no delay, or one from its submit."""


class RewindRecords:
    _db: Database

    def ended_with_workspace(self, jobs: Sequence[JobId]) -> list[JobId]:
        """Return the jobs among these that have ended and requested a workspace."""
        return [JobId(row[0]) for row in self._db.rows("ended_with_workspace", ids=list(jobs))]

    def downstream_chains(self, chains: Sequence[JobId]) -> list[JobId]:
        """Return the chains that depend directly on these, by an edge or by a need for a product."""
        rows = [*self._db.rows("downstream_chains", chains=list(chains))]
        rows += self._db.rows("consumer_chains", chains=list(chains))
        return sorted({JobId(chain) for (chain,) in rows})

    def chain_tails(self, chains: Sequence[JobId]) -> list[ChainTail]:
        """Return the last job of each chain that exists, in the given order."""
        tails = {
            chain: ChainTail(
                chain=JobId(chain),
                job=JobId(job),
                status=parse_status(status),
                is_ready=bool(ready),
                lane=LaneId(lane),
                unique=unique,
                group=group,
                is_dropped=bool(dropped),
                backoff_until=from_micros(not_before) if is_backoff and not_before is not None else None,
            )
            for chain, job, status, ready, lane, unique, group, dropped, not_before, is_backoff in self._db.rows(
                "chain_tails", chains=list(chains)
            )
        }
        return [tails[chain] for chain in chains if chain in tails]

    def artifact_uses(self, chains: Sequence[JobId]) -> list[ArtifactUse]:
        """Return the needs and products of these chains."""
        return [
            ArtifactUse(chain=JobId(chain), artifact=decode_artifact(name), scope=scope, is_produced=bool(is_produced))
            for chain, name, scope, is_produced in self._db.rows("artifact_uses", chains=list(chains))
        ]

    def producers_by_name(self, names: Sequence[str]) -> Mapping[str, list[JobId]]:
        """Return the chains that produce an artifact with one of these names."""
        producers: dict[str, list[JobId]] = {}
        for name, chain in self._db.rows("producers_by_name", names=list(names)) if names else ():
            producers.setdefault(name, []).append(JobId(chain))
        return producers

    def rewound_products(self) -> list[Artifact]:
        """Return the products of rewound chains that no producer has started to make again. Existing ones are stale."""
        artifacts = []
        for (name,) in self._db.rows("rewound_products"):
            with suppress(InvalidInput):  # an unreadable artifact belongs to no job
                artifacts.append(decode_artifact(name))
        return artifacts

    def repositories_of(self, chains: Sequence[JobId]) -> list[str]:
        rows = self._db.rows("repositories_of", chains=list(chains)) if chains else ()
        return sorted(repository for (repository,) in rows)

    def predecessor_tails(self, tail: ChainTail) -> list[ChainTail]:
        """Return the last jobs of the chains that this one depends on directly, by an edge or by a need."""
        rows = self._db.rows("upstream_chains", job=tail.job, chain=tail.chain)
        return self.chain_tails(sorted({JobId(chain) for (chain,) in rows}))


class RewindWriter(PlacementWriter, RewindRecords):
    def rewind(self, tails: Sequence[ChainTail], *, now: datetime, actor: str | None) -> Mapping[JobId, RunId]:
        """Put jobs that have not started since back into the queue. Return the last run of each job that has one."""
        chains, jobs, at = [tail.chain for tail in tails], [tail.job for tail in tails], to_micros(now)
        rows = [
            {"job": tail.job, "from_status": tail.status.value, "status": rewound_status(tail.status).value, "now": at}
            for tail in tails
        ]
        if self._db.run_many("rewind", rows) != len(rows):
            raise StoreError("a job changed while it was rewound; make sure that no second scheduler uses this store")
        self._remove_tails_from_lanes(tails)
        self.reevaluate_edges(jobs)
        self._db.run("rewind_products", chains=chains)
        self.wake_needing([row[0] for row in self._db.rows("withdraw_artifacts_of_chains", chains=chains)])
        for tail in tails:
            data = {"from": tail.status.value}
            self.emit(Event(kind="job.rewound", at=at, cause="rewind", actor=actor, job=tail.job, data=data))
        return {JobId(job): RunId(run) for job, run in self._db.rows("rewound_runs", jobs=jobs)}

    def _remove_tails_from_lanes(self, tails: Sequence[ChainTail]) -> None:
        """Remove jobs from their lanes. They keep their place in lock queues until the next evaluation decides about
        it."""
        counts: dict[LaneId, int] = {}
        for tail in tails:
            if tail.is_ready:
                counts[tail.lane] = counts.get(tail.lane, 0) + 1
        self._db.run_many("update_ready_count", [{"lane": lane, "delta": -count} for lane, count in counts.items()])
