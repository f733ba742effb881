"""Storage of the holders and the queue of each lock key, and wake-ups for the front of a queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.db.database import Database
from rota.db.decoding import parse_lock_mode
from rota.ids import JobId
from rota.kernel.locks import LockFront, LockMode
from rota.kernel.queue import FIRST_RANK, LAST_RANK, Rank


class LockRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def fronts(self, keys: Iterable[str]) -> dict[str, LockFront]:
        """Return the front of the queue of each key and how the key is held. This takes three index probes a key,
        however long its queue is."""
        fronts = {}
        for key in set(keys):
            held = self._db.rows("front_held", key=key)[0][0]
            first = self._db.rows("front_first", key=key)
            exclusive = self._db.rows("front_first_exclusive", key=key)
            fronts[key] = LockFront(
                held=None if held is None else parse_lock_mode(held),
                first=Rank(*first[0]) if first else None,
                first_exclusive=Rank(*exclusive[0]) if exclusive else None,
            )
        return fronts

    def fronts_of(self, jobs: Sequence[JobId]) -> dict[str, LockFront]:
        """Return the lock fronts of all keys of these jobs, in one statement. This is faster than `fronts` for many
        jobs."""
        return {
            key: LockFront(
                held=None if held is None else parse_lock_mode(held),
                first=Rank(*ranks[:4]) if ranks[3] is not None else None,
                first_exclusive=Rank(*ranks[4:]) if ranks[7] is not None else None,
            )
            for key, held, *ranks in self._db.rows("fronts_of", ids=list(jobs))
        }

    def keys(self, *, after: str, limit: int) -> list[str]:
        """Return the keys after `after`, in order, that are held or have a queue."""
        return [key for (key,) in self._db.rows("lock_keys", after=after, limit=limit)]

    def owners(self, keys: Sequence[str]) -> dict[str, list[tuple[JobId, LockMode]]]:
        owners: dict[str, list[tuple[JobId, LockMode]]] = {}
        for key, owner, mode in sorted(self._db.rows("lock_owners", keys=list(keys))) if keys else ():
            owners.setdefault(key, []).append((JobId(owner), parse_lock_mode(mode)))
        return owners

    def queue(self, key: str, limit: int) -> tuple[list[tuple[JobId, LockMode]], int]:
        """Return the first jobs in the queue of a key, and the length of the queue."""
        queue = [
            (JobId(owner), parse_lock_mode(mode)) for owner, mode in self._db.rows("lock_queue", key=key, limit=limit)
        ]
        return queue, len(queue) if len(queue) < limit else int(self._db.rows("count_lock_queue", key=key)[0][0])


class Locks(LockRecords):
    def join_queues(self, job: JobId) -> None:
        """Enter the queue of each lock of a job. Wake the ready jobs that it overtakes and that may not pass it."""
        for key, mode, *rank in self._db.rows("join_lock_queues", job=job):
            exclusive = self._next_exclusive_waiter(key, Rank(*rank))
            if mode == LockMode.EXCLUSIVE:
                self._wake_contenders(key, after_rank=tuple(rank), until_rank=exclusive or LAST_RANK, is_ready=True)
            elif exclusive is not None:
                self._db.run("wake_job", job=exclusive.job)

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

    def release(self, job: JobId) -> None:
        """Release the locks that a job holds and leave their queues. Only the front of each queue wakes up."""
        for key, mode in self._db.rows("release_locks", job=job):
            self.wake_front(key, mode)

    def wake_front(self, key: str, mode: str) -> None:
        """Wake the front of a key's queue after a job with a lock of this mode has left."""
        front: LockFront = self.fronts([key])[key]
        if front.first is None:
            return
        if front.first == front.first_exclusive:
            self._db.run("wake_job", job=front.first.job)
        elif mode == LockMode.EXCLUSIVE:
            self._wake_contenders(
                key, after_rank=FIRST_RANK, until_rank=front.first_exclusive or LAST_RANK, is_ready=False
            )

    def repair(self) -> None:
        """Recompute the locks of unknown state from their owners. This runs at scheduler start, before the waiting jobs
        are evaluated."""
        locks = self._db.rows("unreadable_locks")
        if locks:
            self._db.run_many("repair_lock", [{"job": job, "key": key} for job, key in locks])
            self._db.run("wake_jobs", ids=[job for job, _ in locks])
