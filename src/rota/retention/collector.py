"""Retention: scans for old records in a thread of its own, and removes them in bounded batches, in turns of the engine.

    scan      a page of old chains, in a read transaction that blocks no writer
    move      their directories to the trash                              (retention/trash.py)
    remove    their rows, in a turn of the engine that checks again whether each chain may be removed
    delete    the directories; those whose rows were kept are restored

Between two batches the engine serves other requests. A dry run only scans, and reports what retention would remove.
Only one retention run is in progress at a time.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from rota.clock import Clock
from rota.db.database import FatalStoreError
from rota.db.decoding import to_micros
from rota.db.session import Reader
from rota.db.store import Store
from rota.duration import format_duration
from rota.engine.transaction import Transaction
from rota.errors import Conflict, HomeError, RotaError, ServiceUnavailable
from rota.ids import JobId, ReservationId
from rota.retention import cleanup
from rota.retention.model import CollectablePartition, EndedChain, KeptReason, is_now_collectable, partition_collectable
from rota.retention.repository import LAST_DAILY_RUN_KEY, MAX_ID, RemovalResult, RowCounts
from rota.retention.trash import Trash

log = logging.getLogger("rota.gc")

T = TypeVar("T")

_WORKTREE = re.compile(r"job-([1-9]\d*)(?:\.\d+)?")


class RunInTurn(Protocol):
    def __call__(self, operation: Callable[[Transaction], T], /) -> T: ...


CHAIN_BATCH_SIZE = 100
"""Chains per scanned page, and jobs removed per turn of the engine, unless a single chain has more."""
ROW_BATCH_SIZE = 2_000
"""Independent rows removed per turn of the engine."""
MAX_LISTED_JOBS = 1_000
"""Jobs listed individually in a result."""
MIN_KEY_AGE = timedelta(hours=1)
"""Minimum age of a removed idempotency key. A client that repeats a request after a lost response does so within
minutes, and the repeat must not run as a new request."""
MIN_MESSAGE_AGE = timedelta(days=1)
"""Minimum age of an abandoned message: a pending delivery has not ended."""


class KeptJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is kept for a reason that the user can resolve."""

    job: JobId
    reason: KeptReason
    detail: str


class RetentionResult(msgspec.Struct, kw_only=True):
    """Counts of a retention run: what was removed, or would be in a dry run."""

    until: datetime
    is_dry_run: bool
    rows: RowCounts = msgspec.field(default_factory=RowCounts)
    bytes: int = 0
    kept: dict[KeptReason, int] = msgspec.field(default_factory=dict)
    """Number of jobs that are old enough but kept, by reason."""
    jobs: list[JobId] = msgspec.field(default_factory=list)
    """Removed jobs, at most `MAX_LISTED_JOBS`."""
    kept_jobs: list[KeptJob] = msgspec.field(default_factory=list)
    abandoned: int = 0
    """Number of messages that were pending for too long. They are FAILED, and are removed when that is old."""
    remaining: list[str] = msgspec.field(default_factory=list)
    """Files of removed jobs that could not be deleted, with the error."""

    def add_kept(self, chain: EndedChain, reason: KeptReason, detail: str | None = None) -> None:
        self.kept[reason] = self.kept.get(reason, 0) + len(chain.jobs)
        if detail is not None and len(self.kept_jobs) < MAX_LISTED_JOBS:
            self.kept_jobs.append(KeptJob(job=chain.id, reason=reason, detail=detail))

    def add_removed(self, jobs: Sequence[JobId]) -> None:
        self.jobs += jobs[: max(0, MAX_LISTED_JOBS - len(self.jobs))]


class RetentionCollector:
    def __init__(
        self,
        *,
        store: Store,
        jobs: Path,
        reservations: Path,
        worktrees: Path,
        patches: Path,
        clock: Clock,
        run_in_turn: RunInTurn,
        flush_job_files: Callable[[], int],
    ) -> None:
        """`run_in_turn` runs a function in a turn of the engine, and returns after its commit. `flush_job_files`
        returns the event up to which job files are written: a job with only older events is not written again."""
        self._store = store
        self._trash = Trash(jobs)
        self._reservations = reservations
        self._worktrees = worktrees
        self._patches = patches
        self._clock = clock
        self._run_in_turn = run_in_turn
        self._flush_job_files = flush_job_files
        self._lock = threading.Lock()
        self._in_progress: RetentionResult | None = None
        self.is_stopping = False

    def recover(self) -> None:
        """Restore directories whose rows still exist, after a crash. Call before anything writes to them."""
        try:
            if trashed := self._trash.list_jobs():
                with closing(self._store.reader()) as reader:
                    self._trash.restore(sorted(reader.jobs.existing(trashed)))
        except (RotaError, OSError) as error:
            log.warning("cannot recover an interrupted retention run, the next one retries: %s", error)

    @property
    def in_progress(self) -> RetentionResult | None:
        """Result so far of the retention run in progress; `None` if there is none."""
        return self._in_progress

    def collect(
        self, older_than: timedelta, *, cause: str, is_dry_run: bool = False, actor: str | None = None
    ) -> RetentionResult:
        """Run retention, and return what was removed. After an error, the batches before it stay removed."""
        now = self._clock.now()
        result = RetentionResult(until=now - older_than, is_dry_run=is_dry_run)
        if is_dry_run:
            with closing(self._store.reader()) as reader:
                self._remove_all(reader, result, MAX_ID, now)
                result.abandoned = len(reader.webhooks.stale_deliveries(min(result.until, now - MIN_MESSAGE_AGE)))
            return result
        with self._exclusive(result), closing(self._store.reader()) as reader:
            try:
                self._clean_up(reader, result)
                self._remove_all(reader, result, self._flush_job_files(), now)
                result.rows.reservations += cleanup.remove_expired_reservations(
                    self._reservations, reader, result.until, self._remove_reservations, ROW_BATCH_SIZE
                )
                result.rows.deliveries += self._run_in_batches(
                    reader.webhooks.old_deliveries(result.until, MAX_ID),
                    lambda tx, batch: tx.webhooks.remove_deliveries(batch),
                )
                self._abandon_messages(reader, result, now)
                self._remove_unused(reader, result)
                result.bytes += cleanup.remove_unused_patches(self._patches, reader.retention.patch_digests)
            finally:
                self._trash.close()
                if result.rows.jobs:
                    log.info(
                        "retention removed %s jobs and %s bytes of files", f"{result.rows.jobs:,}", f"{result.bytes:,}"
                    )
            self._record_event(result, cause, actor)
        return result

    def _clean_up(self, reader: Reader, result: RetentionResult) -> None:
        """Finish an interrupted retention run: restore or delete the directories in the trash."""
        try:
            trashed = self._trash.list_jobs()
        except OSError as error:
            raise HomeError(f"retention cannot remove anything: {error.filename}: {error.strerror}") from error
        existing = reader.jobs.existing(trashed)
        self._trash.restore(sorted(existing))
        self._delete_trash(result, [job for job in trashed if job not in existing])

    @contextmanager
    def _exclusive(self, result: RetentionResult) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise Conflict("a retention run is already in progress; run `rota gc` again when it has ended")
        self._in_progress = result
        try:
            yield
        finally:
            self._in_progress = None
            self._lock.release()

    def _remove_all(self, reader: Reader, result: RetentionResult, max_written_event: int, now: datetime) -> None:
        removed: set[JobId] = set()
        while True:
            before = len(removed)
            referenced = self._scan_chains(reader, result, max_written_event, removed)
            if len(removed) == before or not any(is_now_collectable(chain, removed) for chain in referenced):
                break
        for chain in referenced:
            result.add_kept(chain, KeptReason.REFERENCED)
        keys_until = min(result.until, now - MIN_KEY_AGE)
        keys = cleanup.find_expired_keys(reader, keys_until)
        events = reader.events.old_jobless(result.until)
        groups = reader.groups.old(result.until, removed)
        templates = reader.templates.old(result.until)
        if result.is_dry_run:
            reservations = len(cleanup.find_expired_reservations(reader, result.until, except_keys=frozenset(keys)))
            deliveries = len(reader.webhooks.old_deliveries(result.until, MAX_ID))
            fires = len(reader.schedules.old_fires(result.until, MAX_ID))
            result.rows.add(
                RowCounts(
                    idempotency_keys=len(keys),
                    events=len(events),
                    reservations=reservations,
                    groups=len(groups),
                    templates=len(templates),
                    deliveries=deliveries,
                    fires=fires,
                )
            )
            return
        result.rows.groups += self._run_in_batches(groups, lambda tx, batch: tx.groups.remove(batch))
        result.rows.idempotency_keys += sum(
            self._run_in_turn(
                partial(cleanup.remove_expired_keys, keys=keys[first : first + ROW_BATCH_SIZE], until=keys_until)
            )
            for first in range(0, len(keys), ROW_BATCH_SIZE)
        )
        result.rows.events += self._run_in_batches(events, lambda tx, batch: tx.events.remove_jobless(batch))
        result.rows.templates += self._run_in_batches(templates, lambda tx, batch: tx.templates.remove(batch))
        old_fires = reader.schedules.old_fires(result.until, MAX_ID)
        result.rows.fires += self._run_in_batches(old_fires, lambda tx, batch: tx.schedules.remove_fires(batch))

    def _remove_reservations(self, ids: Sequence[ReservationId]) -> int:
        return self._run_in_turn(lambda tx: tx.reservations.remove(ids))

    def _abandon_messages(self, reader: Reader, result: RetentionResult, now: datetime) -> None:
        """Abandon messages that are pending for too long.

        They would accumulate forever for a dead endpoint, and an endpoint that recovers has no use for old news."""
        until = min(result.until, now - MIN_MESSAGE_AGE)
        reason = f"not accepted for {format_duration(now - until)}, and too old to be sent"
        result.abandoned += self._run_in_batches(
            reader.webhooks.stale_deliveries(until),
            lambda tx, batch: tx.webhooks.abandon_stale_deliveries(batch, until, reason, now),
        )

    def _run_in_batches(self, items: Sequence[T], remove: Callable[[Transaction, Sequence[T]], int]) -> int:
        batches = [items[first : first + ROW_BATCH_SIZE] for first in range(0, len(items), ROW_BATCH_SIZE)]
        return sum(self._run_in_turn(partial(_apply_batch, remove=remove, batch=batch)) for batch in batches)

    def _scan_chains(
        self, reader: Reader, result: RetentionResult, max_written_event: int, removed: set[JobId]
    ) -> list[EndedChain]:
        """Scan the old chains once, newest first, and remove them. Return those kept because others refer to them."""
        referenced: list[EndedChain] = []
        before_id = MAX_ID
        result.kept.clear()
        result.kept_jobs.clear()
        while True:
            if self.is_stopping:
                raise ServiceUnavailable("the scheduler is stopping; the next retention run removes the rest")
            with reader.read_transaction():
                ids = reader.retention.old_chains(before_id, until=result.until, limit=CHAIN_BATCH_SIZE)
                chains = reader.retention.ended_chains(
                    [chain for chain in ids if chain not in removed], settled_seq=max_written_event
                )
            if not ids:
                return referenced
            before_id = ids[-1]
            partition, sizes = self._partition(chains, removed, result)
            referenced += partition.referenced
            if result.is_dry_run:
                self._add_planned(reader, partition.collectable, sizes, result)
                removed.update(chain.id for chain in partition.collectable)
            else:
                for batch in _split_by_jobs(partition.collectable):
                    removed |= self._remove_chains(batch, sizes, max_written_event, result)

    def _partition(
        self, chains: Sequence[EndedChain], removed: set[JobId], result: RetentionResult
    ) -> tuple[CollectablePartition, dict[JobId, int]]:
        """Return the collectable and the referenced chains, and the size in bytes of each collectable one.

        A chain that must be kept for files in the home keeps the chains it refers to. Then partition again."""
        sizes: dict[JobId, int] = {}
        kept: set[JobId] = set()
        worktrees = self._list_worktrees()
        while True:
            partition = partition_collectable(chains, until=result.until, removed=removed, kept=kept)
            before = len(kept)
            for chain in partition.collectable:
                if chain.id not in sizes and not self._measure(chain, worktrees, sizes, result):
                    kept.add(chain.id)
            if len(kept) == before:
                return partition, sizes

    def _measure(
        self, chain: EndedChain, worktrees: Mapping[JobId, str], sizes: dict[JobId, int], result: RetentionResult
    ) -> bool:
        """Measure the files of a chain. Return False if a worktree or a file error keeps it."""
        if kept := worktrees.keys() & set(chain.jobs):
            path = self._worktrees / worktrees[min(kept)]
            force = " --force" if _has_submodules(path) else ""
            remedy = f"after saving its changes, run: git worktree remove{force} {path}"
            result.add_kept(chain, KeptReason.WORKTREE, f"its worktree {path} still exists; {remedy}")
            return False
        try:
            sizes[chain.id] = sum(self._trash.measure(job) for job in chain.jobs)
        except OSError as error:
            self._keep_for_files(chain, error, result)
            return False
        return True

    def _list_worktrees(self) -> Mapping[JobId, str]:
        """Map jobs to the name of a worktree. A rewound job may have several: `job-7`, `job-7.2`."""
        try:
            names = [entry.name for entry in self._worktrees.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return {}
        matches = ((_WORKTREE.fullmatch(name), name) for name in sorted(names, reverse=True))
        return {JobId(int(match[1])): name for match, name in matches if match is not None}

    def _keep_for_files(self, chain: EndedChain, error: OSError, result: RetentionResult) -> None:
        result.add_kept(chain, KeptReason.FILES, f"its files cannot be removed: {error.filename}: {error.strerror}")

    def _add_planned(
        self, reader: Reader, chains: Sequence[EndedChain], sizes: dict[JobId, int], result: RetentionResult
    ) -> None:
        jobs = [job for chain in chains for job in chain.jobs]
        if jobs:
            result.rows.add(reader.retention.count_rows(jobs))
            result.add_removed(jobs)
            result.bytes += sum(sizes[chain.id] for chain in chains)

    def _remove_chains(
        self, chains: Sequence[EndedChain], sizes: dict[JobId, int], max_written_event: int, result: RetentionResult
    ) -> set[JobId]:
        """Remove the chains, and return the removed ones."""
        trashed = [chain for chain in chains if self._move_to_trash(chain, result)]
        if not trashed:
            return set()
        ids = [chain.id for chain in trashed]
        try:
            self._trash.sync()
            removed: RemovalResult = self._run_in_turn(
                lambda tx: tx.retention.remove_chains(ids, until=result.until, settled_seq=max_written_event)
            )
        except FatalStoreError:
            raise  # whether the rows are removed is unknown; `recover` resolves it at the next start
        except BaseException:
            self._trash.restore(job for chain in trashed for job in chain.jobs)
            raise
        self._trash.restore(job for chain in trashed if chain.id not in removed.chains for job in chain.jobs)
        jobs = [job for chain in trashed if chain.id in removed.chains for job in chain.jobs]
        result.rows.add(removed.rows)
        result.add_removed(jobs)
        result.bytes += sum(sizes[chain] for chain in removed.chains)
        self._delete_trash(result, jobs)
        return set(removed.chains)

    def _move_to_trash(self, chain: EndedChain, result: RetentionResult) -> bool:
        try:
            self._trash.move_in(chain.jobs)
        except OSError as error:
            self._keep_for_files(chain, error, result)
            return False
        return True

    def _delete_trash(self, result: RetentionResult, jobs: Sequence[JobId]) -> None:
        for error in self._trash.delete(jobs):
            log.warning("cannot delete files of a removed job: %s", error)
            result.remaining.append(error)

    def _remove_unused(self, reader: Reader, result: RetentionResult) -> None:
        if result.rows.jobs:
            unused = reader.retention.find_unused()
            result.rows.add(self._run_in_turn(lambda tx: tx.retention.remove_unused(unused)))

    def _record_event(self, result: RetentionResult, cause: str, actor: str | None) -> None:
        data = {
            **msgspec.structs.asdict(result.rows),
            "bytes": result.bytes,
            "kept": sum(result.kept.values()),
            "abandoned": result.abandoned,
        }
        self._run_in_turn(partial(_record_event, data=data, cause=cause, actor=actor))


def _record_event(tx: Transaction, data: dict[str, object], cause: str, actor: str | None) -> None:
    if cause == "timer":
        tx.meta.set(LAST_DAILY_RUN_KEY, str(to_micros(tx.now)))
    tx.retention.record_run(data, breaker=tx.settings.breaker, now=tx.now, cause=cause, actor=actor)


def _has_submodules(worktree: Path) -> bool:
    """Return whether git requires `--force` to remove this worktree."""
    try:
        admin = (worktree / ".git").read_text(errors="surrogateescape").removeprefix("gitdir:").strip()
    except OSError:
        return False
    return (worktree / admin / "modules").is_dir()


def _split_by_jobs(chains: Sequence[EndedChain]) -> Iterator[list[EndedChain]]:
    """Split chains into batches of few jobs, in the same order. One chain may have a thousand jobs."""
    batch: list[EndedChain] = []
    for chain in chains:
        if batch and sum(len(other.jobs) for other in batch) + len(chain.jobs) > CHAIN_BATCH_SIZE:
            yield batch
            batch = []
        batch.append(chain)
    if batch:
        yield batch


def _apply_batch(tx: Transaction, remove: Callable[[Transaction, Sequence[T]], int], batch: Sequence[T]) -> int:
    return remove(tx, batch)
