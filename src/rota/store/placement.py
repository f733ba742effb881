"""Storage of evaluation results, and wake-ups for the jobs that an event affects.

The `dirty` mark of a job is a durable wake-up. The transaction of the event sets it, and the transaction of the
evaluation clears it, so a crash between the two loses nothing. An event marks only the jobs whose evaluation it can
change: the end of a job marks the jobs whose edges it decides, and a released lock marks the front of its queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from rota.core.edges import DependencyPolicy, edge_state
from rota.core.event import Event
from rota.core.lock import LockFront, LockMode
from rota.core.queue import Rank
from rota.core.status import TERMINAL, Status, parse_status
from rota.core.tick import Placement
from rota.errors import StoreError
from rota.ids import GroupId, JobId, LaneId
from rota.store.artifact import ArtifactWriter
from rota.store.decoding import parse_dependency_policy
from rota.store.job_record import FIRST_RANK, LAST_RANK
from rota.store.snapshot import SnapshotRecords, decode_demand
from rota.store.timestamp import from_micros, to_micros


class EndedDependents(NamedTuple):
    has_products: bool
    group: GroupId | None


class PlacementWriter(SnapshotRecords, ArtifactWriter):
    def wake_due(self, now: datetime) -> None:
        self._db.run("wake_due", now=to_micros(now))

    def next_due(self) -> datetime | None:
        """Return the time at which the next delayed job becomes due."""
        due = self._db.rows("next_due")
        return from_micros(due[0][0]) if due else None

    def wake_all_waiting(self) -> None:
        self._db.run("wake_all_waiting")

    def store_placements(self, placements: Sequence[Placement], now: datetime, cause: str) -> None:
        """Store the result of an evaluation. For a job that does not change, only clear the dirty mark."""
        changed = [placement for placement in placements if placement.has_changed]
        self._db.run("clear_dirty", ids=[placement.job for placement in placements if not placement.has_changed])
        if any(placement.has_delay_ended for placement in placements):
            self._db.run("clear_delay", ids=[placement.job for placement in placements if placement.has_delay_ended])
        rows = [_placement_row(placement, to_micros(now)) for placement in changed]
        if rows and self._db.run_many("place_job", rows) != len(rows):
            raise StoreError("a job changed while it was evaluated; make sure that no second scheduler uses this store")
        self._update_ready_counts(changed)
        for placement in placements:
            if placement.joins_lock_queues:
                self._join_lock_queues(placement.job)
        for placement in placements:  # joins come first: the release below must find waiting jobs in the queue
            if placement.leaves_lock_queues:
                self.release_locks(placement.job)
        for placement in changed:
            if placement.new_status is not placement.old_status:
                self.emit(_placement_event(placement, to_micros(now), cause))

    def _update_ready_counts(self, changed: Iterable[Placement]) -> None:
        """Update the number of ready jobs of each lane. A delta of zero is stored too, because the first job may
        differ."""
        deltas: dict[LaneId, int] = {}
        for placement in changed:
            if placement.is_ready != placement.was_ready:
                deltas[placement.lane] = deltas.get(placement.lane, 0) + placement.is_ready - placement.was_ready
        self._db.run_many("update_ready_count", [{"lane": lane, "delta": delta} for lane, delta in deltas.items()])

    def _join_lock_queues(self, job: JobId) -> None:
        """Enter the queue of each lock of a job. Wake the ready jobs that it overtakes and that may not pass it."""
        for key, mode, *rank in self._db.rows("join_lock_queues", job=job):
            exclusive = self._next_exclusive_waiter(key, Rank(*rank))
            if mode == LockMode.EXCLUSIVE:
                self._wake_contenders(key, after_rank=tuple(rank), until_rank=exclusive or LAST_RANK, is_ready=True)
            elif exclusive is not None:
                self.wake(exclusive.job)

    def _next_exclusive_waiter(self, key: str, rank: Rank) -> Rank | None:
        rows = self._db.rows("next_exclusive_waiter", key=key, **rank._asdict())
        return Rank(*rows[0]) if rows else None

    def _wake_contenders(
        self, key: str, *, after_rank: tuple[int, ...], until_rank: tuple[int, ...], is_ready: bool
    ) -> None:
        names = ("precedence", "position", "created_at", "job")
        after = {f"after_{name}": value for name, value in zip(names, after_rank, strict=True)}
        until = {f"until_{name}": value for name, value in zip(names, until_rank, strict=True)}
        self._db.run("wake_contenders", key=key, ready=int(is_ready), **after, **until)

    def release_locks(self, job: JobId) -> None:
        """Release the locks that a job holds and leave their queues. Only the front of each queue wakes up."""
        for key, mode in self._db.rows("release_locks", job=job):
            self.wake_lock_front(key, mode)

    def wake_lock_front(self, key: str, mode: str) -> None:
        """Wake the front of a key's queue after a job with a lock of this mode has left."""
        front: LockFront = self.fronts([key])[key]
        if front.first is None:
            return
        if front.first == front.first_exclusive:
            self.wake(front.first.job)
        elif mode == LockMode.EXCLUSIVE:
            self._wake_contenders(
                key, after_rank=FIRST_RANK, until_rank=front.first_exclusive or LAST_RANK, is_ready=False
            )

    def wake(self, job: JobId) -> None:
        self._db.run("wake_job", job=job)

    def remove_from_queue(self, jobs: Sequence[JobId]) -> None:
        """Remove jobs of unknown status from the queue: they do not start, and no job waits behind them.

        The jobs stay in the store with their status. The jobs that depend on them are evaluated again.
        """
        rows = {row[0]: row for row in self._db.rows("waiting_unreadable")}
        for job, chain, lane, ready in (rows[job] for job in jobs if job in rows):
            self._db.run("remove_from_queue", job=job)
            if ready:
                self._db.run("update_ready_count", lane=lane, delta=-1)
            self.release_locks(job)
            self._db.run("wake_open_successors", chain=chain)

    def remove_unreadable_from_queue(self) -> None:
        """Remove all jobs of unknown status from the queue, and wake the jobs of lanes whose demand is unreadable, so
        that their evaluation fails them."""
        self.remove_from_queue([JobId(row[0]) for row in self._db.rows("waiting_unreadable")])
        for lane, demand in self._db.rows("lane_demands"):
            if decode_demand(demand) is None:
                self._db.run("wake_lane", lane=lane)

    def resolve_dependents(self, chain: JobId, met_policies: Sequence[DependencyPolicy]) -> EndedDependents:
        """Resolve the edges to a chain that has ended, and wake the jobs that this decides. Return whether the chain
        produces artifacts, and its group."""
        policies = [policy.value for policy in met_policies]
        ((has_dependents, has_products, group, has_unreadable),) = self._db.rows("chain_dependents", chain=chain)
        result = EndedDependents(has_products=bool(has_products), group=group)
        if has_unreadable:
            self.repair_edges()
        if has_products:
            self.clear_rewound_products(chain)
        if not has_dependents:
            return result
        self._db.run("wake_successors", chain=chain, policies=policies)
        self._db.run("decrement_unmet_of_successors", chain=chain, policies=policies)
        self._db.run("close_edges", chain=chain, policies=policies)
        return result

    def repair_edges(self) -> None:
        """Recompute the edges of unknown state from the statuses of their predecessors, and wake their jobs.

        This runs at scheduler start and whenever a chain ends, so that no such edge holds a job forever."""
        jobs = [JobId(job) for (job,) in self._db.rows("unreadable_edges")]
        if jobs:
            self.reevaluate_edges(jobs)
            self._db.run("wake_jobs", ids=jobs)

    def repair_locks(self) -> None:
        """Recompute the locks of unknown state from their owners. This runs at scheduler start, before the waiting jobs
        are evaluated."""
        locks = self._db.rows("unreadable_locks")
        if locks:
            self._db.run_many("repair_lock", [{"job": job, "key": key} for job, key in locks])
            self._db.run("wake_jobs", ids=[job for job, _ in locks])

    def reevaluate_edges(self, jobs: Sequence[JobId]) -> None:
        """Recompute the edges of jobs that wait again. An edge to a chain of unknown status keeps its state."""
        changed = []
        for job, sequence, policy, state, status, is_dropped in self._db.rows(
            "edges_with_chain_status", jobs=list(jobs)
        ):
            parsed = None if status is None else parse_status(status)
            if parsed not in (None, Status.UNREADABLE):
                new_state = edge_state(parse_dependency_policy(policy), parsed, is_skipped_by_group=bool(is_dropped))
                if new_state != state:
                    changed.append({"job": job, "sequence": sequence, "state": new_state.value})
        if changed:
            self._db.run_many("set_edge", changed)
            self._db.run("recount_unmet", jobs=sorted({edge["job"] for edge in changed}))


def _placement_row(placement: Placement, now: int) -> dict[str, object]:
    return {
        "job": placement.job,
        "from_status": placement.old_status.value,
        "to_status": placement.new_status.value,
        "wait_kind": None if placement.wait_kind is None else placement.wait_kind.value,
        "waited_on": ",".join(placement.waited_on),
        "ready": int(placement.is_ready),
        "ready_at": now if placement.is_ready and not placement.was_ready else None,
        "reason": placement.reason,
        "finished_at": now if placement.new_status in TERMINAL else None,
    }


def _placement_event(placement: Placement, now: int, cause: str) -> Event:
    data = {"from": placement.old_status.value}
    if placement.reason is not None:
        data["reason"] = placement.reason
    return Event(kind=f"job.{placement.new_status.lower()}", at=now, cause=cause, job=placement.job, data=data)
