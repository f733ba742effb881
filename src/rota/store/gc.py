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

from rota.core.breaker import BreakerPolicy
from rota.core.event import Event
from rota.core.gc import EndedChain, partition_collectable
from rota.core.workspace import WorkspaceSpec
from rota.errors import NotFound
from rota.ids import GroupId, JobId, format_job_id
from rota.store.breaker import BreakerWriter
from rota.store.database import Database
from rota.store.decoding import decode_or_default
from rota.store.timestamp import from_micros, to_micros

FIRST_EVENT_KEY = "first_event"
"""Key in `meta` of the lowest event number from which all events still exist."""
LOST_JOBS_KEY = "lost_jobs"
"""Key in `meta` of the ranges of jobs whose records were lost, such as `1-4,7-9`."""
LAST_RUN_KEY = "gc_last_run"
"""Key in `meta` of the time and the result of the last retention run."""
LAST_DAILY_RUN_KEY = "gc_last_daily_run"
"""Key in `meta` of the time of the last automatic retention run."""

MAX_ID = 2**62
PAGE_ROWS = 5_000
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


class GcRecords:
    _db: Database

    def old_chains(self, before_id: int, *, until: datetime, limit: int) -> list[JobId]:
        """Return chains that may be old enough, with ids less than `before_id`, highest first."""
        rows = self._db.rows("old_chains", before_id=before_id, until=to_micros(until), limit=limit)
        return [JobId(row[0]) for row in rows]

    def gc_chains(self, ids: Sequence[JobId], *, settled_seq: int) -> list[EndedChain]:
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

    def count_rows_of(self, jobs: Sequence[JobId]) -> RowCounts:
        """Count the rows that a removal of these jobs removes."""
        ((runs,),) = self._db.rows("count_runs_of", ids=list(jobs))
        ((events,),) = self._db.rows("count_events_of", ids=list(jobs))
        return RowCounts(jobs=len(jobs), runs=runs, events=events)

    def old_response_keys(self, until: datetime) -> list[str]:
        """Return the idempotency keys whose responses are older than `until`."""
        old: list[str] = []
        last_key = ""
        while page := self._db.rows("response_keys", key=last_key, limit=PAGE_ROWS):
            old += [key for key, at in page if at < to_micros(until)]
            last_key = page[-1][0]
        return old

    def responses_with_status(self, status: int) -> list[tuple[str, str]]:
        """Return the key and the body of every stored response with this status."""
        responses: list[tuple[str, str]] = []
        last_key = ""
        while page := self._db.rows("responses_with_status", key=last_key, status=status, limit=PAGE_ROWS):
            responses += [(key, body) for key, body in page]
            last_key = page[-1][0]
        return responses

    def responses_for_keys(self, keys: Sequence[str], status: int) -> list[tuple[str, str]]:
        """Return the key and the body of the stored responses with this status, for these keys only."""
        rows = self._db.rows("responses_for_keys", keys=list(keys), status=status) if keys else []
        return [(key, body) for key, body in rows]

    def old_jobless_events(self, until: datetime) -> list[int]:
        old: list[int] = []
        last_seq = 0
        while page := self._db.rows("jobless_events", seq=last_seq, limit=PAGE_ROWS):
            old += [seq for seq, at in page if at < to_micros(until)]
            last_seq = page[-1][0]
        return old

    def old_groups(self, until: datetime, removed_chains: Collection[JobId] = ()) -> list[GroupId]:
        """Return the groups that ended before `until` and have no member outside `removed_chains`."""
        has_members: dict[GroupId, bool] = {}
        for group, chain in self._db.rows("old_groups", until=to_micros(until)):
            is_member = chain is not None and chain not in removed_chains
            has_members[group] = has_members.get(group, False) or is_member
        return [group for group, is_in_use in has_members.items() if not is_in_use]

    def find_unused_rows(self) -> UnusedRows:
        lanes = {row[0] for row in self._db.rows("lane_ids")}
        environments = {row[0] for row in self._db.rows("environment_ids")}
        max_job = 0
        while page := self._db.rows("lane_and_environment_uses", job=max_job, limit=PAGE_ROWS):
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

    def last_event_seq(self) -> int:
        ((last,),) = self._db.rows("last_event")
        return int(last or 0)

    def first_event_seq(self) -> int:
        """Return the lowest number from which all events exist. A reader that has not reached it must start again."""
        rows = self._db.rows("get_meta", key=FIRST_EVENT_KEY)
        return int(rows[0][0]) if rows else 1

    def existing_jobs(self, ids: Collection[JobId]) -> set[JobId]:
        """Return the jobs among these that exist."""
        return {JobId(row[0]) for row in self._db.rows("chain_states", ids=list(ids))} if ids else set()

    def no_such_job(self, job: JobId) -> NotFound:
        """Return the error for an unknown job id. An id below the next one existed once."""
        next_id = max(int(number) for (number,) in self._db.rows("next_job") if number is not None)
        lost = (self._db.rows("get_meta", key=LOST_JOBS_KEY) or [("",)])[0][0]
        if any(first <= job <= last for first, last in _parse_ranges(lost)):
            return NotFound(
                f"no such job: {format_job_id(job)}; its record was lost before `rota up --accept-loss`; if it"
                f" had started, its files are in jobs/{job} of the home"
            )
        if job < next_id:
            return NotFound(
                f"no such job: {format_job_id(job)}; retention may have removed it; `rota config get gc.days` shows"
                " after how many days jobs are removed"
            )
        return NotFound(f"no such job: {format_job_id(job)}; `rota list --all` lists all jobs")


def _last_end(members: Sequence[tuple[int, int | None]], recent_jobs: Collection[int]) -> datetime | None:
    ends = [finished_at for job, finished_at in members if finished_at is not None and job not in recent_jobs]
    return from_micros(max(ends)) if len(ends) == len(members) else None


def _parse_ranges(stored: str) -> list[tuple[int, int]]:
    pairs = (text.partition("-") for text in stored.split(",") if text)
    return [(int(first), int(last)) for first, _, last in pairs]


class GcWriter(BreakerWriter, GcRecords):
    def record_lost_jobs(self, first: int, last: int) -> None:
        """Record that the records of these jobs were lost, in addition to earlier losses."""
        if first > last:
            return
        stored = self._db.rows("get_meta", key=LOST_JOBS_KEY)
        ranges = [*(str(row[0]) for row in stored), f"{first}-{last}"]
        self._db.run("set_meta", key=LOST_JOBS_KEY, value=",".join(ranges))

    def remove_chains(self, ids: Sequence[JobId], *, until: datetime, settled_seq: int) -> RemovalResult:
        """Remove each chain that is still collectable, with all its rows. A chain must come after the chains that refer
        to it."""
        chains = partition_collectable(
            self.gc_chains(ids, settled_seq=settled_seq), until=until, removed=frozenset()
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
        self._retire_all_ids("job", jobs)
        self._retire_all_ids("run", runs)
        self._record_removed_events(events)
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

    def remove_groups(self, groups: Sequence[GroupId]) -> int:
        """Remove the groups among these that have no members."""
        self._retire_all_ids("group", groups)
        return self._db.run("remove_groups", ids=list(groups)) if groups else 0

    def _retire_all_ids(self, entity: str, ids: Sequence[int]) -> None:
        if ids:
            self.retire_ids(entity, max(ids))

    def _record_removed_events(self, seqs: Sequence[int]) -> None:
        self._retire_all_ids("event", seqs)
        if seqs and max(seqs) >= self.first_event_seq():
            self._db.run("set_meta", key=FIRST_EVENT_KEY, value=str(max(seqs) + 1))

    def remove_jobless_events(self, seqs: Sequence[int]) -> int:
        self._record_removed_events(seqs)
        return self._db.run("remove_jobless_events", seqs=list(seqs)) if seqs else 0

    def remove_responses(self, keys: Sequence[str]) -> int:
        return self._db.run("remove_responses", keys=list(keys)) if keys else 0

    def remove_old_responses(self, keys: Sequence[str], until: datetime) -> int:
        """Remove the responses with these keys that are older than `until`."""
        return self._db.run("remove_old_responses", keys=list(keys), until=to_micros(until)) if keys else 0

    def remove_unused_rows(self, unused: UnusedRows) -> RowCounts:
        """Remove the rows that no newer job uses."""
        recent = self._db.rows("lane_and_environment_uses", job=unused.max_job, limit=MAX_ID)
        lanes = set(unused.lanes).difference(row[1] for row in recent)
        environments = set(unused.environments).difference(row[2] for row in recent)
        if unused.artifacts:
            self._db.run("remove_artifacts", ids=unused.artifacts)
        self._id_cache = {}  # cached ids of this transaction may be removed
        return RowCounts(
            lanes=self._db.run("remove_lanes", ids=sorted(lanes)) if lanes else 0,
            environments=self._db.run("remove_environments", ids=sorted(environments)) if environments else 0,
        )

    def record_gc(
        self, data: dict[str, object], *, breaker: BreakerPolicy, now: datetime, cause: str, actor: str | None
    ) -> None:
        """Record the result of a retention run for `status`, and emit an event if anything was removed."""
        self.delete_old_failures(now - breaker.window)
        at = to_micros(now)
        self._db.run("set_meta", key=LAST_RUN_KEY, value=msgspec.json.encode({"at": at, **data}).decode())
        if any(count for name, count in data.items() if name != "kept"):
            self.emit(Event(kind="gc.removed", at=at, cause=cause, actor=actor, data=data))
