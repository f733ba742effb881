"""Finds what is downstream of a chain, and puts jobs back in the queue.

All of it is by lists: a set of ten thousand takes as many statements as one of two. Whoever has an edge on a chain of
the set, or needs what one makes, is in the set himself, so nobody outside is concerned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from rota.core.artifact import Artifact, decode_artifact
from rota.core.event import Event
from rota.core.rewind import Craft, rewound
from rota.core.status import Status
from rota.errors import InvalidInput, StoreError
from rota.ids import GroupId, JobId, LaneId, RunId
from rota.store.database import Database
from rota.store.moment import to_stored
from rota.store.place import Placing


class Last(msgspec.Struct, frozen=True, kw_only=True):
    """The last job of a chain, as it stands."""

    chain: JobId
    job: JobId
    status: Status
    is_ready: bool
    lane: LaneId
    unique: str | None = None
    group: GroupId | None = None
    is_dropped: bool = False


class RewindRecords:
    _db: Database

    def with_workspace(self, jobs: Sequence[JobId]) -> list[JobId]:
        """Those of them that have ended and asked for a workspace."""
        return [JobId(row[0]) for row in self._db.rows("with_workspace", ids=list(jobs))]

    def following(self, chains: Sequence[JobId]) -> list[JobId]:
        """The chains right after these: by `after`, and by needing what they make."""
        rows = [*self._db.rows("after_chains", chains=list(chains))]
        rows += self._db.rows("needing_chains", chains=list(chains))
        return sorted({JobId(chain) for (chain,) in rows})

    def last_jobs(self, chains: Sequence[JobId]) -> list[Last]:
        """In the order of the chains; one that is gone is not among them."""
        found = {
            chain: Last(
                chain=JobId(chain),
                job=JobId(job),
                status=Status(status),
                is_ready=bool(ready),
                lane=LaneId(lane),
                unique=unique,
                group=group,
                is_dropped=bool(dropped),
            )
            for chain, job, status, ready, lane, unique, group, dropped in self._db.rows(
                "last_jobs", chains=list(chains)
            )
        }
        return [found[chain] for chain in chains if chain in found]

    def crafts_of(self, chains: Sequence[JobId]) -> list[Craft]:
        """What these chains need and make."""
        return [
            Craft(chain=JobId(chain), artifact=decode_artifact(name), scope=scope, is_made=bool(is_made))
            for chain, name, scope, is_made in self._db.rows("crafts_of", chains=list(chains))
        ]

    def chains_making(self, names: Sequence[str]) -> Mapping[str, list[JobId]]:
        """The chains that make an artifact of such a name."""
        makers: dict[str, list[JobId]] = {}
        for name, chain in self._db.rows("chains_making", names=list(names)) if names else ():
            makers.setdefault(name, []).append(JobId(chain))
        return makers

    def rewound_products(self) -> list[Artifact]:
        """What rewound chains are to make anew and nobody has begun to: whatever is there of it is of before."""
        found = []
        for (name,) in self._db.rows("rewound_products"):
            with suppress(InvalidInput):  # one that cannot be read is nobody's
                found.append(decode_artifact(name))
        return found

    def repositories_of(self, chains: Sequence[JobId]) -> list[str]:
        rows = self._db.rows("repositories_of", chains=list(chains)) if chains else ()
        return sorted(repository for (repository,) in rows)

    def before(self, last: Last) -> list[Last]:
        """The chains that it comes right after, or whose artifacts it needs."""
        rows = self._db.rows("before_chain", job=last.job, chain=last.chain)
        return self.last_jobs(sorted({JobId(chain) for (chain,) in rows}))


class Rewinding(Placing, RewindRecords):
    def rewind(self, jobs: Sequence[Last], *, now: datetime, actor: str | None) -> Mapping[JobId, RunId]:
        """Put them back; of those that have run, which run was their last. None of them may have started."""
        chains, ids, at = [each.chain for each in jobs], [each.job for each in jobs], to_stored(now)
        rows = [
            {"job": each.job, "was": each.status.value, "status": rewound(each.status).value, "now": at}
            for each in jobs
        ]
        if self._db.run_many("rewind", rows) != len(rows):
            raise StoreError("a job changed while it was rewound; is a second scheduler writing to this store?")
        self._leave_lanes_of(jobs)
        self.follow_anew(ids)
        self._db.run("rewind_products", chains=chains)
        self.stir_needing([row[0] for row in self._db.rows("take_back_puts", chains=chains)])
        for each in jobs:
            data = {"from": each.status.value}
            self.emit(Event(kind="job.rewound", at=at, cause="rewind", actor=actor, job=each.job, data=data))
        return {JobId(job): RunId(run) for job, run in self._db.rows("rewound_runs", jobs=ids)}

    def _leave_lanes_of(self, jobs: Sequence[Last]) -> None:
        """A turn that one has in the queue of a lock is kept until its look says whether it may have it."""
        left: dict[LaneId, int] = {}
        for each in jobs:
            if each.is_ready:
                left[each.lane] = left.get(each.lane, 0) + 1
        self._db.run_many("count_ready", [{"lane": lane, "change": -count} for lane, count in left.items()])
