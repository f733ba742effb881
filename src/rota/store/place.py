"""Stores what a look found, and marks the jobs that an event concerns.

A mark (`stirred`) is a durable wake-up: it is set in the transaction of the event and taken away in the
transaction of the look, so a crash between the two loses nothing. Each event marks only what it can change:
an end its own edges, a lock that comes free the front of its queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from rota.core.after import AfterPolicy, state_of
from rota.core.event import Event
from rota.core.lock import Front, LockMode
from rota.core.queue import Rank
from rota.core.status import TERMINAL, Status
from rota.core.tick import Placement
from rota.errors import StoreError
from rota.ids import GroupId, JobId, LaneId
from rota.store.artifact import Crafting
from rota.store.moment import from_stored, to_stored
from rota.store.record import FIRST_RANK, LAST_RANK
from rota.store.snapshot import Snapshots


class Settled(NamedTuple):
    makes: bool
    group: GroupId | None


class Placing(Snapshots, Crafting):
    def stir_due(self, now: datetime) -> None:
        self._db.run("stir_due", now=to_stored(now))

    def stir_postponed(self, now: datetime) -> None:
        self._db.run("stir_postponed", now=to_stored(now))

    def next_due(self) -> datetime | None:
        """When the next delayed job is to be looked at."""
        due = self._db.rows("next_due")
        return from_stored(due[0][0]) if due else None

    def stir_all_waiting(self) -> None:
        self._db.run("stir_all_waiting")

    def place(self, placements: Sequence[Placement], now: datetime, cause: str) -> None:
        """Write where each job now stands; of one that stands where it stood, only the mark is taken away."""
        changed = [placement for placement in placements if placement.has_changed]
        self._db.run("unstir", ids=[placement.job for placement in placements if not placement.has_changed])
        if any(placement.has_waited for placement in placements):
            self._db.run("forget_delay", ids=[placement.job for placement in placements if placement.has_waited])
        rows = [_place_row(placement, to_stored(now)) for placement in changed]
        if rows and self._db.run_many("place", rows) != len(rows):
            raise StoreError("a job changed while it was looked at; is a second scheduler writing to this store?")
        self._count_ready(changed)
        for placement in placements:
            if placement.joins:
                self._contend(placement.job)
        for placement in placements:  # after the joins: whoever waits for one that leaves has to be found in the queue
            if placement.leaves:
                self.leave_locks(placement.job)
        for placement in changed:
            if placement.to is not placement.was:
                self.emit(_placed(placement, to_stored(now), cause))

    def _count_ready(self, changed: Iterable[Placement]) -> None:
        """Where one comes and another goes there are as many as before, but the first may be another."""
        change: dict[LaneId, int] = {}
        for placement in changed:
            if placement.is_ready != placement.was_ready:
                change[placement.lane] = change.get(placement.lane, 0) + placement.is_ready - placement.was_ready
        self._db.run_many("count_ready", [{"lane": lane, "change": n} for lane, n in change.items()])

    def _contend(self, job: JobId) -> None:
        """Stand in the queue of each of its locks; whoever was ready behind it and may not pass looks again."""
        for key, mode, *rank in self._db.rows("contend", job=job):
            exclusive = self._exclusive_behind(key, Rank(*rank))
            if mode == LockMode.EXCLUSIVE:
                self._stir_contenders(key, behind=tuple(rank), upto=exclusive or LAST_RANK, ready=True)
            elif exclusive is not None:
                self.stir(exclusive.job)

    def _exclusive_behind(self, key: str, rank: Rank) -> Rank | None:
        rows = self._db.rows("exclusive_behind", key=key, **rank._asdict())
        return Rank(*rows[0]) if rows else None

    def _stir_contenders(self, key: str, *, behind: tuple[int, ...], upto: tuple[int, ...], ready: bool) -> None:
        names = ("precedence", "position", "created_at", "job")
        after = {f"after_{name}": value for name, value in zip(names, behind, strict=True)}
        until = {f"upto_{name}": value for name, value in zip(names, upto, strict=True)}
        self._db.run("stir_contenders", key=key, ready=int(ready), **after, **until)

    def leave_locks(self, job: JobId) -> None:
        """Free what it held and give up its turn; only the front of each key's queue looks again."""
        for key, mode in self._db.rows("leave_locks", job=job):
            self.stir_front(key, mode)

    def stir_front(self, key: str, mode: str) -> None:
        """One who held this key so, or stood in its queue, is gone."""
        front: Front = self.fronts([key])[key]
        if front.first is None:
            return
        if front.first == front.first_exclusive:
            self.stir(front.first.job)
        elif mode == LockMode.EXCLUSIVE:
            self._stir_contenders(key, behind=FIRST_RANK, upto=front.first_exclusive or LAST_RANK, ready=False)

    def stir(self, job: JobId) -> None:
        self._db.run("stir_job", job=job)

    def settle(self, chain: JobId, met: Sequence[AfterPolicy]) -> Settled:
        """A chain has ended: close the edges that point at it, and mark the jobs this decides. Whether it was to make
        artifacts, and which group it is in."""
        policies = [policy.value for policy in met]
        ((is_awaited, makes, group),) = self._db.rows("awaited", chain=chain)
        settled = Settled(makes=bool(makes), group=group)
        if makes:
            self.made_anew(chain)
        if not is_awaited:
            return settled
        self._db.run("stir_successors", chain=chain, policies=policies)
        self._db.run("count_down_successors", chain=chain, policies=policies)
        self._db.run("close_edges", chain=chain, policies=policies)
        return settled

    def follow_anew(self, jobs: Sequence[JobId]) -> None:
        """Jobs that wait again: each edge says what its chain has come to by now. One whose chain cannot be read stays
        as it was."""
        changed = []
        for job, sequence, policy, state, status, is_dropped in self._db.rows("edges_anew", jobs=list(jobs)):
            if status in Status.__members__:
                anew = state_of(AfterPolicy(policy), Status(status), is_dropped=bool(is_dropped))
                if anew != state:
                    changed.append({"job": job, "sequence": sequence, "state": anew.value})
        if changed:
            self._db.run_many("set_edge", changed)
            self._db.run("count_unmet", jobs=sorted({edge["job"] for edge in changed}))


def _place_row(placement: Placement, now: int) -> dict[str, object]:
    return {
        "job": placement.job,
        "was": placement.was.value,
        "to": placement.to.value,
        "wait_kind": None if placement.wait_kind is None else placement.wait_kind.value,
        "waited_on": ",".join(placement.waited_on),
        "ready": int(placement.is_ready),
        "ready_at": now if placement.is_ready and not placement.was_ready else None,
        "reason": placement.reason,
        "finished_at": now if placement.to in TERMINAL else None,
    }


def _placed(placement: Placement, now: int, cause: str) -> Event:
    data = {"from": placement.was.value}
    if placement.reason is not None:
        data["reason"] = placement.reason
    return Event(kind=f"job.{placement.to.lower()}", at=now, cause=cause, job=placement.job, data=data)
