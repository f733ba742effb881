"""Stores groups, and ends many of their members at once: as many statements for ten thousand as for two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from rota.core.event import Event
from rota.core.group import FAILED, Group, GroupMode, Member, Tally
from rota.core.status import Status, advance
from rota.errors import Conflict, NotFound
from rota.ids import GroupId, JobId, LaneId, parse_group, show_group
from rota.store.database import Database, Row
from rota.store.moment import from_stored, maybe_from_stored, to_stored
from rota.store.place import Placing

_MOST_NAMED = 5
_FAILURES = frozenset(f"job.{status.lower()}" for status in FAILED)
_decode_counts = msgspec.json.Decoder(dict[str, int]).decode


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    """The last job of a member's chain."""

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


class GroupRecords:
    _db: Database

    def groups(self, ids: Sequence[GroupId]) -> list[Group]:
        """Those that exist of these, in the order asked for."""
        found = {row[0]: _group(row) for row in self._db.rows("groups", ids=list(ids))} if ids else {}
        return [found[group] for group in ids if group in found]

    def group_called(self, text: str) -> Group:
        """By id or by name; of several with one name the one that is not over, which must be clear, else the newest."""
        if text.startswith("group-"):
            found = self.groups([parse_group(text)])
        else:
            named = self.groups_named(text)
            still = [group for group, is_over in named if not is_over]
            if len(still) > 1:
                names = ", ".join(show_group(group) for group in still[:_MOST_NAMED])
                raise Conflict(f"several groups that are not over are called {text!r}: {names}; name one by its id")
            found = self.groups(still[:1] or [group for group, _ in named[:1]])
        if not found:
            raise NotFound(f"no such group: {text}; `rota group list --all` shows what there is")
        return found[0]

    def groups_named(self, name: str) -> list[tuple[GroupId, bool]]:
        """The newest first, each with whether it is over."""
        return [(GroupId(group), at is not None) for group, at in self._db.rows("groups_named", name=name)]

    def list_groups(self, *, limit: int, below: GroupId | None = None, with_ended: bool) -> list[GroupId]:
        """The newest first."""
        statement = "group_ids" if with_ended else "open_group_ids"
        rows = self._db.rows(statement, below=2**62 if below is None else below, limit=limit)
        return [GroupId(row[0]) for row in rows]

    def tallies(self, groups: Sequence[Group]) -> dict[GroupId, Tally]:
        counts: dict[GroupId, dict[Status, int]] = {
            group.id: {Status(status): n for status, n in group.removed.items()} for group in groups
        }
        begun = {group.id for group in groups if group.removed}
        for group, status, count, has_begun in self._db.rows("group_counts", ids=list(counts)) if counts else ():
            counts[group][Status(status)] = counts[group].get(Status(status), 0) + count
            if has_begun:
                begun.add(group)
        return {group: Tally(counts=found, has_begun=group in begun) for group, found in counts.items()}

    def members(self, group: GroupId) -> list[MemberRow]:
        """In sequence."""
        return [_member(*row) for row in self._db.rows("members", group=group)]

    def failed_members(self, group: GroupId) -> list[MemberRow]:
        return [_member(*row) for row in self._db.rows("failed_members", group=group)]

    def dropped_members(self, group: GroupId, limit: int) -> list[JobId]:
        """Those that its policy has ended."""
        return [JobId(job) for (job,) in self._db.rows("dropped_members", group=group, limit=limit)]


class Grouping(Placing, GroupRecords):
    def add_group(
        self, *, name: str | None, mode: GroupMode, on_failure: str, is_closed: bool, now: datetime, actor: str | None
    ) -> GroupId:
        group = GroupId(self.take("group", 1))
        at = to_stored(now)
        self._db.run(
            "add_group", id=group, name=name, mode=mode.value, on_failure=on_failure, actor=actor, now=at,
            closed_at=at if is_closed else None,
        )  # fmt: skip
        data: dict[str, object] = {"name": name, "mode": mode.value, "on_failure": on_failure}
        self.emit_of_group("submitted", group, now, cause="submit", actor=actor, data=data)
        return group

    def last_member(self, group: GroupId) -> tuple[JobId, int] | None:
        """The chain that stands last, and its place."""
        rows = self._db.rows("last_member", group=group)
        return (JobId(rows[0][0]), int(rows[0][1])) if rows else None

    def member(self, chain: JobId) -> MemberRow:
        (row,) = self._db.rows("member", chain=chain)
        return _member(*row)

    def waiting_members(self, group: GroupId, *, with_begun: bool) -> list[WaitingMember]:
        """In sequence; with those that have run and wait to be tried again, or without them."""
        return [
            WaitingMember(
                job=JobId(job), chain=JobId(chain), sequence=sequence, status=Status(status), is_ready=bool(ready),
                lane=LaneId(lane),
            )
            for job, chain, sequence, status, ready, lane
            in self._db.rows("waiting_members", group=group, with_begun=int(with_begun))
        ]  # fmt: skip

    def started_members(self, group: GroupId) -> list[JobId]:
        return [JobId(job) for (job,) in self._db.rows("started_members", group=group)]

    def spared_members(self, group: GroupId, chain: JobId) -> frozenset[JobId]:
        """Members that somebody wanted to run after this chain though it fail."""
        return frozenset(JobId(job) for (job,) in self._db.rows("spared_members", group=group, chain=chain))

    def failed_before_claim(self, claimed: JobId, failed: Sequence[JobId]) -> frozenset[JobId]:
        """Of these that have failed, those that had when the other was last claimed, by the order of events: clocks are
        set. A claim is committed before anything can come of it, so what happened in this transaction came after."""
        before = self._db.rows("failed_before_claim", ids=list(failed), job=claimed)
        since = {event.job for event in self.gathered if event.kind in _FAILURES}
        return frozenset(JobId(job) for (job,) in before) - since

    def end_members(
        self, group: GroupId, members: Sequence[WaitingMember], status: Status, *, exit_code: int | None, reason: str,
        is_dropped: bool, now: datetime, cause: str, actor: str | None,
    ) -> list[JobId]:  # fmt: skip
        """End those that wait, and decide the edges on them; of their chains, those that were to make something."""
        jobs, chains, at = [member.job for member in members], [member.chain for member in members], to_stored(now)
        for was in {member.status for member in members}:
            advance(was, status)
        self._db.run(
            "end_members", ids=jobs, status=status.value, now=at, exit_code=exit_code, reason=reason,
            dropped=int(is_dropped),
        )  # fmt: skip
        self._leave_all(members)
        for member in members:
            data = {"from": member.status.value, "reason": reason}
            self.emit(Event(kind=f"job.{status.lower()}", at=at, cause=cause, actor=actor, job=member.job, data=data))
        self._settle_all(chains, skipped_in=group if status is Status.SKIPPED else None)
        making = [JobId(chain) for (chain,) in self._db.rows("making_chains", chains=chains)]
        for chain in making:
            self.made_anew(chain)
        return making

    def _leave_all(self, members: Sequence[WaitingMember]) -> None:
        """Their lanes, and the queues of their locks; each front looks again once."""
        left: dict[LaneId, int] = {}
        for member in members:
            if member.is_ready:
                left[member.lane] = left.get(member.lane, 0) + 1
        self._db.run_many("count_ready", [{"lane": lane, "change": -count} for lane, count in left.items()])
        rows = self._db.rows("leave_locks_of", ids=[member.job for member in members])
        freed: dict[str, str] = dict(sorted(rows, reverse=True))  # exclusive sorts before shared
        for key, mode in freed.items():
            self.stir_front(key, mode)

    def _settle_all(self, chains: Sequence[JobId], *, skipped_in: GroupId | None) -> None:
        met: dict[int, int] = {}
        for job, is_met in self._db.rows("successors_of", chains=list(chains), skipped_in=skipped_in):
            met[job] = met.get(job, 0) + is_met
        self._db.run("stir_jobs", ids=list(met))
        self._db.run_many("count_down", [{"job": job, "met": count} for job, count in met.items() if count])
        self._db.run("close_edges_of", chains=list(chains), skipped_in=skipped_in)

    def finish_group(self, group: GroupId, now: datetime) -> bool:
        """Whether it is over with this; false where it was before, or is not yet."""
        return self._db.run("finish_group", group=group, now=to_stored(now)) > 0

    def unfinished_groups(self) -> list[GroupId]:
        """Those that should have been finished and are not."""
        return [GroupId(row[0]) for row in self._db.rows("unfinished_groups")]

    def reopen_group(self, group: GroupId, now: datetime, *, cause: str, actor: str | None) -> None:
        """A member goes on: the group does, and is not cancelled any more."""
        if self._db.run("reopen_group", group=group):
            self.emit_of_group("reopened", group, now, cause=cause, actor=actor)

    def close_group(self, group: GroupId, now: datetime, actor: str | None) -> bool:
        if not self._db.run("close_group", group=group, now=to_stored(now)):
            return False
        self.emit_of_group("closed", group, now, cause="group", actor=actor)
        return True

    def cancel_group(self, group: GroupId, now: datetime, actor: str | None) -> bool:
        if not self._db.run("cancel_group", group=group, now=to_stored(now)):
            return False
        self.emit_of_group("cancelled", group, now, cause="cancel", actor=actor)
        return True

    def emit_of_group(
        self, what: str, group: GroupId, now: datetime, *, cause: str, actor: str | None,
        data: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        said = {"group": show_group(group), **(data or {})}
        self.emit(
            Event(kind=f"group.{what}", at=to_stored(now), cause=cause, actor=actor, group=group, data=said)
        )  # fmt: skip


def _member(job: int, chain: int, sequence: int, status: str, dropped: int = 0) -> MemberRow:
    return MemberRow(
        job=JobId(job), chain=JobId(chain), sequence=sequence, status=Status(status), is_dropped=bool(dropped)
    )


def _group(row: Row) -> Group:
    return Group(
        id=GroupId(row[0]),
        name=row[1],
        mode=GroupMode(row[2]),
        on_failure=row[3],
        actor=row[4],
        created_at=from_stored(row[5]),
        closed_at=maybe_from_stored(row[6]),
        cancelled_at=maybe_from_stored(row[7]),
        finished_at=maybe_from_stored(row[8]),
        removed=_decode_counts(row[9]),
    )
