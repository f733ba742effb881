"""Finds what is old and referred to by nobody, and removes it, a bounded part in each transaction.

What looks is a reader's business and may take its time. What removes asks again, in its own transaction, whether that
still holds of each chain: meanwhile somebody may have submitted a job after it, or tried it again.

Environments and lanes are stored once for many jobs. There is no index by which to ask who uses one, for every job
would pay for it; so the jobs are gone through, a page at a time, by whoever looks, and those that came since by whoever
removes. A job never changes its lane, and what an edited job uses its chain's spec has used before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from rota.core.breaker import BreakerPolicy
from rota.core.event import Event
from rota.core.gc import Chain, sort_out
from rota.core.workspace import Workspace
from rota.errors import NotFound
from rota.ids import GroupId, JobId, show_job
from rota.store.breaker import Breaking
from rota.store.database import Database
from rota.store.moment import from_stored, to_stored

EVENTS_FROM = "events_from"
"""In `meta`: the number from which on every event is still there."""
LAST = "gc"
"""In `meta`: when it was last done and what came of it."""
DAILY = "gc_daily"
"""In `meta`: when it was last done unasked."""

TOP = 2**62
PAGE = 5_000


class RowCounts(msgspec.Struct, kw_only=True):
    jobs: int = 0
    runs: int = 0
    events: int = 0
    idempotency_keys: int = 0
    surroundings: int = 0
    lanes: int = 0
    slots: int = 0
    groups: int = 0
    templates: int = 0
    deliveries: int = 0
    fires: int = 0

    def add(self, other: RowCounts) -> None:
        for name in RowCounts.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    chains: frozenset[JobId]
    rows: RowCounts


class Unused(msgspec.Struct, frozen=True, kw_only=True):
    """What no job up to this one uses."""

    upto: int
    lanes: list[int]
    surroundings: list[int]
    artifacts: list[int]


class GcRecords:
    _db: Database

    def old_chains(self, below: int, *, until: datetime, limit: int) -> list[JobId]:
        """Chains that may be old enough, the highest number first."""
        rows = self._db.rows("old_chains", below=below, until=to_stored(until), limit=limit)
        return [JobId(row[0]) for row in rows]

    def chains_for_gc(self, ids: Sequence[JobId], *, settled: int) -> list[Chain]:
        """In the order asked for; a chain with a job that something happened to after the event `settled` counts as
        one that has not ended."""
        members: dict[int, list[tuple[int, int | None]]] = {}
        for chain, job, finished_at in self._db.rows("chain_members", chains=list(ids)):
            members.setdefault(chain, []).append((job, finished_at))
        referrers: dict[int, set[JobId]] = {}
        for chain, other in self._db.rows("chain_referrers", chains=list(ids)):
            referrers.setdefault(chain, set()).add(JobId(other))
        named = {row[0] for row in self._db.rows("named_chains", chains=list(ids))}
        jobs = [job for each in members.values() for job, _ in each]
        fresh = {row[0] for row in self._db.rows("touched_since", ids=jobs, seq=settled)} if jobs else set()
        return [
            Chain(
                id=chain,
                jobs=tuple(JobId(job) for job, _ in sorted(members[chain])),
                ended_at=_last_end(members[chain], fresh),
                referrers=frozenset(referrers.get(chain, ())),
                is_named=chain in named,
            )
            for chain in ids
            if chain in members
        ]

    def rows_of(self, jobs: Sequence[JobId]) -> RowCounts:
        """What would go with these jobs."""
        ((runs,),) = self._db.rows("count_runs_of", ids=list(jobs))
        ((events,),) = self._db.rows("count_events_of", ids=list(jobs))
        return RowCounts(jobs=len(jobs), runs=runs, events=events)

    def old_answers(self, until: datetime) -> list[str]:
        """The keys of answers given before that."""
        old: list[str] = []
        key = ""
        while page := self._db.rows("answers_from", key=key, limit=PAGE):
            old += [each for each, at in page if at < to_stored(until)]
            key = page[-1][0]
        return old

    def answers_of_status(self, status: int) -> list[tuple[str, str]]:
        """Key and body of each."""
        found: list[tuple[str, str]] = []
        key = ""
        while page := self._db.rows("answers_of_status", key=key, told=status, limit=PAGE):
            found += [(each, body) for each, body in page]
            key = page[-1][0]
        return found

    def answers_among(self, keys: Sequence[str], status: int) -> list[tuple[str, str]]:
        """The same of some keys."""
        rows = self._db.rows("answers_among", keys=list(keys), told=status) if keys else []
        return [(key, body) for key, body in rows]

    def old_jobless_events(self, until: datetime) -> list[int]:
        old: list[int] = []
        seq = 0
        while page := self._db.rows("jobless_events", seq=seq, limit=PAGE):
            old += [each for each, at in page if at < to_stored(until)]
            seq = page[-1][0]
        return old

    def old_groups(self, until: datetime, gone: Collection[JobId] = ()) -> list[GroupId]:
        """Groups that were over before that and have no member left but those of the chains `gone`."""
        left: dict[GroupId, bool] = {}
        for group, chain in self._db.rows("old_groups", until=to_stored(until)):
            left[group] = left.get(group, False) or (chain is not None and chain not in gone)
        return [group for group, has_members in left.items() if not has_members]

    def unused(self) -> Unused:
        lanes = {row[0] for row in self._db.rows("lane_ids")}
        surroundings = {row[0] for row in self._db.rows("surroundings_ids")}
        upto = 0
        while page := self._db.rows("uses_from", job=upto, limit=PAGE):
            lanes.difference_update(row[1] for row in page)
            surroundings.difference_update(row[2] for row in page)
            upto = page[-1][0]
        artifacts = [row[0] for row in self._db.rows("idle_artifacts")]
        return Unused(upto=upto, lanes=sorted(lanes), surroundings=sorted(surroundings), artifacts=artifacts)

    def inputs(self) -> set[str]:
        """The digests of the patches that jobs were submitted with."""
        found = (msgspec.json.decode(text, type=Workspace) for (text,) in self._db.rows("workspaces"))
        return {workspace.input for workspace in found if workspace.input is not None}

    def last_event(self) -> int:
        ((last,),) = self._db.rows("last_event")
        return int(last or 0)

    def events_from(self) -> int:
        """Every event from this number on is there. Who has seen less must begin anew."""
        rows = self._db.rows("get_meta", key=EVENTS_FROM)
        return int(rows[0][0]) if rows else 1

    def has_jobs(self, ids: Collection[JobId]) -> set[JobId]:
        """Those of them that there are."""
        return {JobId(row[0]) for row in self._db.rows("chains", ids=list(ids))} if ids else set()

    def no_such_job(self, job: JobId) -> NotFound:
        """The refusal of an id that nothing has. A number below the next was given out once."""
        upcoming = max(int(number) for (number,) in self._db.rows("next_job") if number is not None)
        if job < upcoming:
            return NotFound(
                f"no such job: {show_job(job)}; it may have been collected, as jobs are some time after their end:"
                " `rota config get gc.days`"
            )
        return NotFound(f"no such job: {show_job(job)}; `rota list --all` shows what there is")


def _last_end(members: Sequence[tuple[int, int | None]], fresh: Collection[int]) -> datetime | None:
    ends = [finished_at for job, finished_at in members if finished_at is not None and job not in fresh]
    return from_stored(max(ends)) if len(ends) == len(members) else None


class Collecting(Breaking, GcRecords):
    def remove_chains(self, ids: Sequence[JobId], *, until: datetime, settled: int) -> Removed:
        """All of each chain, if it is still free to go; none of it otherwise. The chains are in an order in which
        those that refer to others come first."""
        chains = sort_out(self.chains_for_gc(ids, settled=settled), until=until, gone=frozenset()).free
        jobs = [job for chain in chains for job in chain.jobs]
        if not jobs:
            return Removed(chains=frozenset(), rows=RowCounts())
        self._count_members(jobs)
        self._db.run("remove_edges", ids=jobs)
        self._db.run("remove_locks", ids=jobs)
        self._db.run("remove_given", ids=jobs)
        runs = [row[0] for row in self._db.rows("remove_runs", ids=jobs)]
        events = [row[0] for row in self._db.rows("remove_events", ids=jobs)]
        for statement in ("remove_needs", "remove_products", "remove_pins", "forget_putters"):
            self._db.run(statement, ids=jobs)
        self._db.run("remove_jobs", ids=jobs)
        self._db.run("remove_specs", ids=jobs)
        self._spend_all("job", jobs)
        self._spend_all("run", runs)
        self._forget_events(events)
        rows = RowCounts(jobs=len(jobs), runs=len(runs), events=len(events))
        return Removed(chains=frozenset(chain.id for chain in chains), rows=rows)

    def _count_members(self, jobs: Sequence[JobId]) -> None:
        """What a group has come to does not change when members go: they are counted as they ended."""
        going: dict[int, dict[str, int]] = {}
        for group, status, count in self._db.rows("members_going", ids=list(jobs)):
            going.setdefault(group, {})[status] = count
        for group, text in self._db.rows("removed_members", ids=sorted(going)) if going else ():
            before = msgspec.json.decode(text, type=dict[str, int])
            counts = {name: before.get(name, 0) + going[group].get(name, 0) for name in before | going[group]}
            self._db.run("set_removed_members", group=group, removed=msgspec.json.encode(counts).decode())

    def remove_groups(self, groups: Sequence[GroupId]) -> int:
        """Those of them that no job is a member of."""
        self._spend_all("group", groups)
        return self._db.run("remove_groups", ids=list(groups)) if groups else 0

    def _spend_all(self, noun: str, numbers: Sequence[int]) -> None:
        if numbers:
            self.spend(noun, max(numbers))

    def _forget_events(self, numbers: Sequence[int]) -> None:
        self._spend_all("event", numbers)
        if numbers and max(numbers) >= self.events_from():
            self._db.run("set_meta", key=EVENTS_FROM, value=str(max(numbers) + 1))

    def remove_jobless_events(self, numbers: Sequence[int]) -> int:
        self._forget_events(numbers)
        return self._db.run("remove_jobless_events", seqs=list(numbers)) if numbers else 0

    def remove_answers(self, keys: Sequence[str]) -> int:
        return self._db.run("remove_answers", keys=list(keys)) if keys else 0

    def remove_old_answers(self, keys: Sequence[str], until: datetime) -> int:
        """Those of them that were given before that."""
        return self._db.run("remove_old_answers", keys=list(keys), until=to_stored(until)) if keys else 0

    def remove_unused(self, unused: Unused) -> RowCounts:
        """Those of them that no job uses that came since."""
        recent = self._db.rows("uses_from", job=unused.upto, limit=TOP)
        lanes = set(unused.lanes).difference(row[1] for row in recent)
        surroundings = set(unused.surroundings).difference(row[2] for row in recent)
        if unused.artifacts:
            self._db.run("remove_artifacts", ids=unused.artifacts)
        self._known = {}  # what a submit of this transaction found may be gone now
        return RowCounts(
            lanes=self._db.run("remove_lanes", ids=sorted(lanes)) if lanes else 0,
            surroundings=self._db.run("remove_surroundings", ids=sorted(surroundings)) if surroundings else 0,
        )

    def book_gc(
        self, data: dict[str, object], *, breaker: BreakerPolicy, now: datetime, cause: str, actor: str | None
    ) -> None:
        """What was removed: for `status`, and as an event where it is anything."""
        self.forget_old_failures(now - breaker.window)
        at = to_stored(now)
        self._db.run("set_meta", key=LAST, value=msgspec.json.encode({"at": at, **data}).decode())
        if any(count for name, count in data.items() if name != "kept"):
            self.emit(Event(kind="gc.removed", at=at, cause=cause, actor=actor, data=data))
