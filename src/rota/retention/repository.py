"""Search for old rows that no other row refers to, and their removal, a bounded number in each transaction.

A reader searches and may take its time. The session that removes checks each chain again in its own transaction,
because a client may have submitted a dependent or a retry in between.

Environments and lanes are shared by many jobs. An index from each to its jobs would cost every submit, so the search
scans all jobs in pages, and the removal scans the jobs that were added since. This is complete: a job never changes its
lane, and an edited job uses only environments that the spec of its chain used before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from rota.db.breakers import Breakers
from rota.db.database import SCAN_ROWS, Database
from rota.db.decoding import decode_or_default, from_micros, to_micros
from rota.db.events import Events
from rota.db.ids import Ids
from rota.ids import JobId
from rota.kernel.breaker import BreakerPolicy
from rota.kernel.events import Event
from rota.kernel.job import WorkspaceSpec
from rota.retention.model import EndedChain, partition_collectable

LAST_RUN_KEY = "gc_last_run"
"""Key in `meta` of the time and the result of the last retention run."""
LAST_DAILY_RUN_KEY = "gc_last_daily_run"
"""Key in `meta` of the time of the last automatic retention run."""
MAX_ID = 2**62
_DIGEST = re.compile(r"[0-9a-f]{64}")


class RowCounts(msgspec.Struct, kw_only=True):
    jobs: int = 0
    runs: int = 0
    events: int = 0
    idempotency_keys: int = 0
    environments: int = 0
    lanes: int = 0
    reservations: int = 0
    groups: int = 0
    templates: int = 0
    deliveries: int = 0
    fires: int = 0

    def add(self, other: RowCounts) -> None:
        for name in RowCounts.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class RemovalResult(msgspec.Struct, frozen=True, kw_only=True):
    chains: frozenset[JobId]
    rows: RowCounts


class UnusedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that no job up to `max_job` uses."""

    max_job: int
    lanes: list[int]
    environments: list[int]
    artifacts: list[int]


class RetentionRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def old_chains(self, before_id: int, *, until: datetime, limit: int) -> list[JobId]:
        """Return chains that may be old enough, with ids less than `before_id`, highest first."""
        rows = self._db.rows("old_chains", before_id=before_id, until=to_micros(until), limit=limit)
        return [JobId(row[0]) for row in rows]

    def ended_chains(self, ids: Sequence[JobId], *, settled_seq: int) -> list[EndedChain]:
        """Return these chains in the given order. A chain with an event after `settled_seq` counts as not ended."""
        members: dict[int, list[tuple[int, int | None]]] = {}
        for chain, job, finished_at in self._db.rows("chain_members", chains=list(ids)):
            members.setdefault(chain, []).append((job, finished_at))
        referrers: dict[int, set[JobId]] = {}
        for chain, other in self._db.rows("chain_referrers", chains=list(ids)):
            referrers.setdefault(chain, set()).add(JobId(other))
        referenced = {row[0] for row in self._db.rows("referenced_chains", chains=list(ids))}
        jobs = [job for chain_jobs in members.values() for job, _ in chain_jobs]
        recent = {row[0] for row in self._db.rows("jobs_touched_since", ids=jobs, seq=settled_seq)} if jobs else set()
        return [
            EndedChain(
                id=chain,
                jobs=tuple(JobId(job) for job, _ in sorted(members[chain])),
                ended_at=_last_end(members[chain], recent),
                referrers=frozenset(referrers.get(chain, ())),
                is_referenced_elsewhere=chain in referenced,
            )
            for chain in ids
            if chain in members
        ]

    def count_rows(self, jobs: Sequence[JobId]) -> RowCounts:
        """Count the rows that a removal of these jobs removes."""
        ((runs,),) = self._db.rows("count_runs_of", ids=list(jobs))
        ((events,),) = self._db.rows("count_events_of", ids=list(jobs))
        return RowCounts(jobs=len(jobs), runs=runs, events=events)

    def find_unused(self) -> UnusedRows:
        lanes = {row[0] for row in self._db.rows("lane_ids")}
        environments = {row[0] for row in self._db.rows("environment_ids")}
        max_job = 0
        while page := self._db.rows("lane_and_environment_uses", job=max_job, limit=SCAN_ROWS):
            lanes.difference_update(row[1] for row in page)
            environments.difference_update(row[2] for row in page)
            max_job = page[-1][0]
        artifacts = [row[0] for row in self._db.rows("unused_artifacts")]
        return UnusedRows(max_job=max_job, lanes=sorted(lanes), environments=sorted(environments), artifacts=artifacts)

    def patch_digests(self) -> set[str]:
        """Return the digests of the patches that jobs were submitted with."""
        digests: set[str] = set()
        for (text,) in self._db.rows("workspaces"):
            workspace = decode_or_default(text, WorkspaceSpec | None, None)  # type: ignore[arg-type]
            # For an unreadable workspace, keep everything that looks like a digest: its patch must not be removed.
            digests.update(_DIGEST.findall(text) if workspace is None else [workspace.input_patch or ""])
        return digests - {""}


def _last_end(members: Sequence[tuple[int, int | None]], recent_jobs: Collection[int]) -> datetime | None:
    ends = [finished_at for job, finished_at in members if finished_at is not None and job not in recent_jobs]
    return from_micros(max(ends)) if len(ends) == len(members) else None


class Retention(RetentionRecords):
    def __init__(self, database: Database, ids: Ids, events: Events, breakers: Breakers) -> None:
        super().__init__(database)
        self._ids = ids
        self._events = events
        self._breakers = breakers

    def remove_chains(self, ids: Sequence[JobId], *, until: datetime, settled_seq: int) -> RemovalResult:
        """Remove each chain that is still collectable, with all its rows. A chain must come after the chains that refer
        to it."""
        chains = partition_collectable(
            self.ended_chains(ids, settled_seq=settled_seq), until=until, removed=frozenset()
        ).collectable
        jobs = [job for chain in chains for job in chain.jobs]
        if not jobs:
            return RemovalResult(chains=frozenset(), rows=RowCounts())
        self._record_removed_members(jobs)
        self._db.run("remove_edges", ids=jobs)
        self._db.run("remove_locks", ids=jobs)
        self._db.run("remove_prefetch", ids=jobs)
        runs = [row[0] for row in self._db.rows("remove_runs", ids=jobs)]
        events = [row[0] for row in self._db.rows("remove_events", ids=jobs)]
        for statement in ("remove_needs", "remove_products", "remove_pins", "clear_declared_by"):
            self._db.run(statement, ids=jobs)
        self._db.run("remove_jobs", ids=jobs)
        self._db.run("remove_specs", ids=jobs)
        self._ids.retire_all("job", jobs)
        self._ids.retire_all("run", runs)
        self._events.record_removed(events)
        rows = RowCounts(jobs=len(jobs), runs=len(runs), events=len(events))
        return RemovalResult(chains=frozenset(chain.id for chain in chains), rows=rows)

    def _record_removed_members(self, jobs: Sequence[JobId]) -> None:
        """Keep the final counts of groups by recording the statuses of members that are removed."""
        added: dict[int, dict[str, int]] = {}
        for group, status, count in self._db.rows("count_removed_members", ids=list(jobs)):
            added.setdefault(group, {})[status] = count
        for group, text in self._db.rows("removed_members", ids=sorted(added)) if added else ():
            stored = decode_or_default(text, dict[str, int], {})
            counts = {status: stored.get(status, 0) + added[group].get(status, 0) for status in stored | added[group]}
            self._db.run("set_removed_members", group=group, removed=msgspec.json.encode(counts).decode())

    def remove_unused(self, unused: UnusedRows) -> RowCounts:
        """Remove the rows that no newer job uses."""
        recent = self._db.rows("lane_and_environment_uses", job=unused.max_job, limit=MAX_ID)
        lanes = set(unused.lanes).difference(row[1] for row in recent)
        environments = set(unused.environments).difference(row[2] for row in recent)
        if unused.artifacts:
            self._db.run("remove_artifacts", ids=unused.artifacts)
        self._ids.cache.clear()  # cached ids of this transaction may be removed
        return RowCounts(
            lanes=self._db.run("remove_lanes", ids=sorted(lanes)) if lanes else 0,
            environments=self._db.run("remove_environments", ids=sorted(environments)) if environments else 0,
        )

    def record_run(
        self, data: dict[str, object], *, breaker: BreakerPolicy, now: datetime, cause: str, actor: str | None
    ) -> None:
        """Record the result of a retention run for `status`, and emit an event if anything was removed."""
        self._breakers.delete_old_failures(now - breaker.window)
        at = to_micros(now)
        self._db.run("set_meta", key=LAST_RUN_KEY, value=msgspec.json.encode({"at": at, **data}).decode())
        if any(count for name, count in data.items() if name != "kept"):
            self._events.emit(Event(kind="gc.removed", at=at, cause=cause, actor=actor, data=data))
