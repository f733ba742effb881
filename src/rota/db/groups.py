"""Storage of groups. Ending many members takes a fixed number of statements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from rota.db.artifacts import Artifacts
from rota.db.database import Database, Row
from rota.db.decoding import RecordDecoder, from_micros, optional_from_micros, to_micros
from rota.db.edges import Edges
from rota.db.events import Events
from rota.db.ids import Ids
from rota.db.locks import Locks
from rota.errors import Conflict, NotFound, escape_unprintable
from rota.ids import GroupId, JobId, LaneId, format_group_id, parse_group_id
from rota.kernel.events import Event
from rota.kernel.groups import FAILED_STATUSES, Group, GroupCounts, GroupMode, Member
from rota.kernel.status import Status, advance, parse_status

_MAX_LISTED = 5
_FAILURE_KINDS = frozenset(f"job.{status.lower()}" for status in FAILED_STATUSES)
ProgressCursor = tuple[int, int]
"""Stored end time and id of the last ended job that was read."""


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    """Last job of a member's chain."""

    job: JobId
    chain: JobId
    sequence: int
    status: Status
    is_dropped: bool = False

    @property
    def member(self) -> Member:
        return Member(job=self.job, sequence=self.sequence, status=self.status)


class WaitingMember(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    chain: JobId
    sequence: int
    status: Status
    is_ready: bool
    lane: LaneId


class EndedMember(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    name: str | None
    status: Status
    reason: str | None
    exit_code: int | None
    retried_as: JobId | None
    cursor: ProgressCursor


class RunningMember(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    name: str | None
    started_at: datetime


class GroupRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def find_all(self, ids: Sequence[GroupId]) -> list[Group]:
        """Return the groups among these that exist, in the given order."""
        groups = {row[0]: _group_from_row(row) for row in self._db.rows("groups", ids=list(ids))} if ids else {}
        return [groups[group] for group in ids if group in groups]

    def find(self, id_or_name: str) -> Group:
        """Return a group by id or by name. If several groups share the name, prefer the one that has not ended, else
        the newest. Refuse if several have not ended."""
        if id_or_name.startswith("group-"):
            groups = self.find_all([parse_group_id(id_or_name)])
        else:
            named = self.named(id_or_name)
            unfinished = [group for group, has_ended in named if not has_ended]
            if len(unfinished) > 1:
                ids = ", ".join(format_group_id(group) for group in unfinished[:_MAX_LISTED])
                raise Conflict(f"several unfinished groups are named {id_or_name!r}: {ids}; use the id of one of them")
            groups = self.find_all(unfinished[:1] or [group for group, _ in named[:1]])
        if not groups:
            raise NotFound(f"no such group: {escape_unprintable(id_or_name)}; `rota group list --all` lists all groups")
        return groups[0]

    def named(self, name: str) -> list[tuple[GroupId, bool]]:
        """Return the groups of a name, newest first, each with whether it has ended."""
        return [(GroupId(group), at is not None) for group, at in self._db.rows("groups_named", name=name)]

    def list_ids(self, *, limit: int, before_id: GroupId | None = None, with_ended: bool) -> list[GroupId]:
        """Return a page of group ids, newest first."""
        statement = "group_ids" if with_ended else "open_group_ids"
        rows = self._db.rows(statement, before_id=2**62 if before_id is None else before_id, limit=limit)
        return [GroupId(row[0]) for row in rows]

    def counts(self, groups: Sequence[Group]) -> dict[GroupId, GroupCounts]:
        counts: dict[GroupId, dict[Status, int]] = {
            group.id: {parse_status(status): n for status, n in group.removed.items()} for group in groups
        }
        started = {group.id for group in groups if group.removed}
        for group, status, count, has_begun in self._db.rows("group_counts", ids=list(counts)) if counts else ():
            counts[group][parse_status(status)] = counts[group].get(parse_status(status), 0) + count
            if has_begun:
                started.add(group)
        return {
            group: GroupCounts(counts=group_counts, has_started=group in started)
            for group, group_counts in counts.items()
        }

    def members(self, group: GroupId) -> list[MemberRow]:
        """Return the members in sequence."""
        return [_member_from_row(*row) for row in self._db.rows("members", group=group)]

    def failed_members(self, group: GroupId) -> list[MemberRow]:
        return [_member_from_row(*row) for row in self._db.rows("failed_members", group=group)]

    def dropped_members(self, group: GroupId, limit: int) -> list[JobId]:
        """Return members that the policy of the group ended."""
        return [JobId(job) for (job,) in self._db.rows("dropped_members", group=group, limit=limit)]

    def last_member(self, group: GroupId) -> tuple[JobId, int] | None:
        """Return the chain of the last member and its place in the sequence."""
        rows = self._db.rows("last_member", group=group)
        return (JobId(rows[0][0]), int(rows[0][1])) if rows else None

    def member(self, chain: JobId) -> MemberRow:
        (row,) = self._db.rows("member", chain=chain)
        return _member_from_row(*row)

    def waiting_members(self, group: GroupId, *, with_retries: bool) -> list[WaitingMember]:
        """Return the waiting members in sequence. `with_retries` includes members that wait for a retry."""
        return [
            WaitingMember(
                job=JobId(job),
                chain=JobId(chain),
                sequence=sequence,
                status=parse_status(status),
                is_ready=bool(ready),
                lane=LaneId(lane),
            )
            for job, chain, sequence, status, ready, lane in self._db.rows(
                "waiting_members", group=group, with_retries=int(with_retries)
            )
        ]

    def started_members(self, group: GroupId) -> list[JobId]:
        return [JobId(job) for (job,) in self._db.rows("started_members", group=group)]

    def failure_tolerant_members(self, group: GroupId, chain: JobId) -> frozenset[JobId]:
        """Return the members that were submitted to run after this chain even if it fails."""
        return frozenset(JobId(job) for (job,) in self._db.rows("failure_tolerant_members", group=group, chain=chain))

    def unfinished(self) -> list[GroupId]:
        """Return groups that are complete but not finished."""
        return [GroupId(row[0]) for row in self._db.rows("unfinished_groups")]

    def ended_members(self, group: GroupId, cursor: ProgressCursor, *, limit: int) -> Sequence[EndedMember]:
        rows = self._db.rows("ended_members", group=group, at=cursor[0], job=cursor[1], limit=limit)
        return [
            EndedMember(
                job=JobId(job),
                name=name,
                status=parse_status(status),
                reason=reason,
                exit_code=exit_code,
                retried_as=retried_as,
                cursor=(at, job),
            )
            for job, name, status, reason, exit_code, at, retried_as in rows
        ]

    def running_members(self, group: GroupId, *, limit: int) -> Sequence[RunningMember]:
        rows = self._db.rows("running_members", group=group, limit=limit)
        return [RunningMember(job=JobId(job), name=name, started_at=from_micros(at)) for job, name, at in rows]

    def old(self, until: datetime, removed_chains: Collection[JobId] = ()) -> list[GroupId]:
        """Return the groups that ended before `until` and have no member outside `removed_chains`."""
        has_members: dict[GroupId, bool] = {}
        for group, chain in self._db.rows("old_groups", until=to_micros(until)):
            is_member = chain is not None and chain not in removed_chains
            has_members[group] = has_members.get(group, False) or is_member
        return [group for group, is_in_use in has_members.items() if not is_in_use]


class Groups(GroupRecords):
    def __init__(
        self, database: Database, ids: Ids, events: Events, artifacts: Artifacts, edges: Edges, locks: Locks
    ) -> None:
        super().__init__(database)
        self._ids = ids
        self._events = events
        self._artifacts = artifacts
        self._edges = edges
        self._locks = locks

    def add(
        self, *, name: str | None, mode: GroupMode, on_failure: str, is_closed: bool, now: datetime, actor: str | None
    ) -> GroupId:
        group = GroupId(self._ids.allocate("group", 1))
        at = to_micros(now)
        self._db.run(
            "add_group",
            id=group,
            name=name,
            mode=mode.value,
            on_failure=on_failure,
            actor=actor,
            now=at,
            closed_at=at if is_closed else None,
        )
        data: dict[str, object] = {"name": name, "mode": mode.value, "on_failure": on_failure}
        self.emit_event("submitted", group, now, cause="submit", actor=actor, data=data)
        return group

    def failed_before_claim(self, claimed_job: JobId, failed_jobs: Sequence[JobId]) -> frozenset[JobId]:
        """Return the failed jobs whose failure precedes the last claim of `claimed_job`.

        The order of events decides, because clocks can change. A claim is committed before its run can start, so
        failures of the open transaction came later.
        """
        rows = self._db.rows("failed_before_claim", ids=list(failed_jobs), job=claimed_job)
        failed_since = {event.job for event in self._events.pending if event.kind in _FAILURE_KINDS}
        return frozenset(JobId(job) for (job,) in rows) - failed_since

    def end_members(
        self,
        group: GroupId,
        members: Sequence[WaitingMember],
        status: Status,
        *,
        exit_code: int | None,
        reason: str,
        is_dropped: bool,
        now: datetime,
        cause: str,
        actor: str | None,
    ) -> list[JobId]:
        """End waiting members and resolve the edges to them. Return their chains that were to produce artifacts."""
        jobs, chains, at = [member.job for member in members], [member.chain for member in members], to_micros(now)
        for old_status in {member.status for member in members}:
            advance(old_status, status)
        self._db.run(
            "end_members",
            ids=jobs,
            status=status.value,
            now=at,
            exit_code=exit_code,
            reason=reason,
            dropped=int(is_dropped),
        )
        self._release_lanes_and_locks(members)
        for member in members:
            data = {"from": member.status.value, "reason": reason}
            self._events.emit(
                Event(kind=f"job.{status.lower()}", at=at, cause=cause, actor=actor, job=member.job, data=data)
            )
        self._resolve_edges(chains, skipped_in=group if status is Status.SKIPPED else None)
        producing = [JobId(chain) for (chain,) in self._db.rows("producing_chains", chains=chains)]
        for chain in producing:
            self._artifacts.clear_rewound(chain)
        return producing

    def _release_lanes_and_locks(self, members: Sequence[WaitingMember]) -> None:
        """Remove members from their lanes and lock queues. The front of each queue wakes up once."""
        counts: dict[LaneId, int] = {}
        for member in members:
            if member.is_ready:
                counts[member.lane] = counts.get(member.lane, 0) + 1
        self._db.run_many("update_ready_count", [{"lane": lane, "delta": -count} for lane, count in counts.items()])
        rows = self._db.rows("release_locks_of", ids=[member.job for member in members])
        released: dict[str, str] = dict(sorted(rows, reverse=True))  # 'exclusive' sorts before 'shared', so it wins
        for key, mode in released.items():
            self._locks.wake_front(key, mode)

    def _resolve_edges(self, chains: Sequence[JobId], *, skipped_in: GroupId | None) -> None:
        met: dict[int, int] = {}
        for job, is_met in self._db.rows("successors_of", chains=list(chains), skipped_in=skipped_in):
            met[job] = met.get(job, 0) + is_met
        self._db.run("wake_jobs", ids=list(met))
        self._db.run_many("decrement_unmet", [{"job": job, "met": count} for job, count in met.items() if count])
        self._db.run("close_edges_of", chains=list(chains), skipped_in=skipped_in)
        self._edges.repair()

    def finish(self, group: GroupId, now: datetime) -> bool:
        """Finish a closed group without active members. Return false if it was finished before or is not complete."""
        return self._db.run("finish_group", group=group, now=to_micros(now)) > 0

    def reopen(self, group: GroupId, now: datetime, *, cause: str, actor: str | None) -> None:
        """Reopen a finished or cancelled group because a member continues."""
        if self._db.run("reopen_group", group=group):
            self.emit_event("reopened", group, now, cause=cause, actor=actor)

    def close(self, group: GroupId, now: datetime, actor: str | None) -> bool:
        if not self._db.run("close_group", group=group, now=to_micros(now)):
            return False
        self.emit_event("closed", group, now, cause="group", actor=actor)
        return True

    def cancel(self, group: GroupId, now: datetime, actor: str | None) -> bool:
        if not self._db.run("cancel_group", group=group, now=to_micros(now)):
            return False
        self.emit_event("cancelled", group, now, cause="cancel", actor=actor)
        return True

    def emit_event(
        self,
        kind: str,
        group: GroupId,
        now: datetime,
        *,
        cause: str,
        actor: str | None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        event_data = {"group": format_group_id(group), **(data or {})}
        self._events.emit(
            Event(kind=f"group.{kind}", at=to_micros(now), cause=cause, actor=actor, group=group, data=event_data)
        )

    def remove(self, groups: Sequence[GroupId]) -> int:
        """Remove the groups among these that have no members."""
        self._ids.retire_all("group", groups)
        return self._db.run("remove_groups", ids=list(groups)) if groups else 0


def _member_from_row(job: int, chain: int, sequence: int, status: str, dropped: int = 0) -> MemberRow:
    return MemberRow(
        job=JobId(job), chain=JobId(chain), sequence=sequence, status=parse_status(status), is_dropped=bool(dropped)
    )


def _group_from_row(row: Row) -> Group:
    decoder = RecordDecoder()
    return Group(
        id=GroupId(row[0]),
        name=row[1],
        mode=decoder.group_mode(row[2]),
        on_failure=row[3],
        actor=row[4],
        created_at=from_micros(row[5]),
        closed_at=optional_from_micros(row[6]),
        cancelled_at=optional_from_micros(row[7]),
        finished_at=optional_from_micros(row[8]),
        removed=decoder.json("counts of removed jobs", row[9], dict[str, int], {}),
        unreadable=decoder.error,
    )
