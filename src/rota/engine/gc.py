"""Collects what is old: looks beside the engine, removes in turns of it, a bounded part in each.

    look      a page of old chains, at one moment of the store; a reader's, so nobody waits for it
    take      their directories out of their places                       (engine/trash.py)
    remove    their rows, in a turn of the engine that asks again whether each may go
    delete    the directories; those whose rows stayed are put back

Between two parts the engine does whatever else there is. A dry run looks, and that is all: what it says is what the
same look would lead to. One collection at a time.
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
from rota.core.gc import Chain, Kept, SortedOut, is_freed_later, sort_out
from rota.duration import show_duration
from rota.engine import old_keys, patch, slot_files
from rota.engine.trash import Trash
from rota.engine.work import Work
from rota.errors import Conflict, HomeError, RotaError, Unavailable
from rota.ids import JobId, SlotId
from rota.store.database import CannotGoOn
from rota.store.gc import DAILY, TOP, Removed, RowCounts
from rota.store.moment import to_stored
from rota.store.port import Store
from rota.store.session import Reader, Session

log = logging.getLogger("rota.gc")

T = TypeVar("T")

_WORKTREE = re.compile(r"job-([1-9]\d*)(?:\.\d+)?")


class Perform(Protocol):
    def __call__(self, act: Callable[[Work], T], /) -> T: ...


BATCH = 100
"""Chains looked at in one go, and jobs removed in one turn of the engine, but for a chain that has more by itself."""
KEYS = 2_000
"""Rows without anything that hangs on them, in one go."""
MOST_NAMED = 1_000
"""Jobs named one by one in a report."""
KEY_AGE = timedelta(hours=1)
"""An answer is kept at least so long, whatever else goes: who asks again because it got lost does so within minutes,
and must not be taken for somebody who asks for the first time."""
MESSAGE_AGE = timedelta(days=1)
"""A message that nobody has taken is not given up before, whatever else goes: it has not ended."""


class Stays(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is kept for a reason that somebody can do something about."""

    job: JobId
    why: Kept
    detail: str


class Collection(msgspec.Struct, kw_only=True):
    """What was removed, or would be."""

    until: datetime
    is_dry: bool
    rows: RowCounts = msgspec.field(default_factory=RowCounts)
    bytes: int = 0
    kept: dict[Kept, int] = msgspec.field(default_factory=dict)
    """Jobs that are old enough and stay, by why."""
    jobs: list[JobId] = msgspec.field(default_factory=list)
    """Those removed; the first of them, if many."""
    stays: list[Stays] = msgspec.field(default_factory=list)
    given_up: int = 0
    """Messages that were to be sent for so long; they are FAILED, and go when that is old."""
    left: list[str] = msgspec.field(default_factory=list)
    """Files of removed jobs that could not be deleted, and why."""

    def keep(self, chain: Chain, why: Kept, detail: str | None = None) -> None:
        self.kept[why] = self.kept.get(why, 0) + len(chain.jobs)
        if detail is not None and len(self.stays) < MOST_NAMED:
            self.stays.append(Stays(job=chain.id, why=why, detail=detail))

    def name(self, jobs: Sequence[JobId]) -> None:
        self.jobs += jobs[: max(0, MOST_NAMED - len(self.jobs))]


class Collector:
    def __init__(
        self, *, store: Store, jobs: Path, slots: Path, worktrees: Path, patches: Path, clock: Clock, perform: Perform,
        settle: Callable[[], int],
    ) -> None:  # fmt: skip
        """`perform` does something in a turn of the engine and returns after its commit. `settle` says up to which
        event the jobs' files are written: nobody writes to those of a job whose events are all before."""
        self._store = store
        self._trash = Trash(jobs)
        self._slots = slots
        self._worktrees = worktrees
        self._patches = patches
        self._clock = clock
        self._perform = perform
        self._settle = settle
        self._alone = threading.Lock()
        self._under_way: Collection | None = None
        self.is_stopping = False

    def recover(self) -> None:
        """After a crash: the directories whose rows are still there are put back. Before anybody writes to them."""
        try:
            if held := self._trash.holds():
                with closing(self._store.reader()) as reader:
                    self._trash.put_back(sorted(reader.has_jobs(held)))
        except (RotaError, OSError) as error:
            log.warning("what a collection left half done is looked at again with the next: %s", error)

    @property
    def under_way(self) -> Collection | None:
        """What has been removed so far, while a collection is under way."""
        return self._under_way

    def collect(
        self, older_than: timedelta, *, cause: str, is_dry: bool = False, actor: str | None = None
    ) -> Collection:
        """What was removed. Trouble half-way is raised; what was removed before it stays removed."""
        now = self._clock.now()
        found = Collection(until=now - older_than, is_dry=is_dry)
        if is_dry:
            with closing(self._store.reader()) as reader:
                self._go_through(reader, found, TOP, now)
                found.given_up = len(reader.stale_deliveries(min(found.until, now - MESSAGE_AGE)))
            return found
        with self._by_itself(found), closing(self._store.reader()) as reader:
            try:
                self._tidy(reader, found)
                self._go_through(reader, found, self._settle(), now)
                found.rows.slots += slot_files.remove_old(self._slots, reader, found.until, self._remove_slots, KEYS)
                found.rows.deliveries += self._in_parts(
                    reader.old_deliveries(found.until, TOP), lambda session, part: session.remove_deliveries(part)
                )
                self._give_up_messages(reader, found, now)
                self._remove_unused(reader, found)
                found.bytes += patch.remove_unused(self._patches, reader.inputs)
            finally:
                self._trash.close()
                if found.rows.jobs:
                    log.info("collected %s jobs and %s bytes of files", f"{found.rows.jobs:,}", f"{found.bytes:,}")
            self._book(found, cause, actor)
        return found

    def _tidy(self, reader: Reader, found: Collection) -> None:
        """What an earlier one left half done, or could not delete."""
        try:
            held = self._trash.holds()
        except OSError as error:
            raise HomeError(f"nothing can be collected: {error.filename}: {error.strerror}") from error
        with_rows = reader.has_jobs(held)
        self._trash.put_back(sorted(with_rows))
        self._sweep(found, [job for job in held if job not in with_rows])

    @contextmanager
    def _by_itself(self, found: Collection) -> Iterator[None]:
        if not self._alone.acquire(blocking=False):
            raise Conflict("a collection is under way already; `rota gc` again when it has ended")
        self._under_way = found
        try:
            yield
        finally:
            self._under_way = None
            self._alone.release()

    def _go_through(self, reader: Reader, found: Collection, settled: int, now: datetime) -> None:
        gone: set[JobId] = set()
        while True:
            before = len(gone)
            referenced = self._pass(reader, found, settled, gone)
            if len(gone) == before or not any(is_freed_later(chain, gone) for chain in referenced):
                break
        for chain in referenced:
            found.keep(chain, Kept.REFERENCED)
        settled_until = min(found.until, now - KEY_AGE)
        keys = old_keys.find_old(reader, settled_until)
        events = reader.old_jobless_events(found.until)
        groups = reader.old_groups(found.until, gone)
        templates = reader.old_templates(found.until)
        if found.is_dry:
            slots = len(slot_files.find_old(reader, found.until, without=frozenset(keys)))
            told = len(reader.old_deliveries(found.until, TOP))
            fires = len(reader.old_fires(found.until, TOP))
            found.rows.add(
                RowCounts(
                    idempotency_keys=len(keys), events=len(events), slots=slots, groups=len(groups),
                    templates=len(templates), deliveries=told, fires=fires,
                )
            )  # fmt: skip
            return
        found.rows.groups += self._in_parts(groups, lambda session, part: session.remove_groups(part))
        found.rows.idempotency_keys += sum(
            self._perform(partial(old_keys.remove, keys=keys[first : first + KEYS], until=settled_until))
            for first in range(0, len(keys), KEYS)
        )
        found.rows.events += self._in_parts(events, lambda session, part: session.remove_jobless_events(part))
        found.rows.templates += self._in_parts(templates, lambda session, part: session.remove_templates(part))
        old_fires = reader.old_fires(found.until, TOP)
        found.rows.fires += self._in_parts(old_fires, lambda session, part: session.remove_fires(part))

    def _remove_slots(self, ids: Sequence[SlotId]) -> int:
        return self._perform(lambda work: work.session.remove_slots(ids))

    def _give_up_messages(self, reader: Reader, found: Collection, now: datetime) -> None:
        """An endpoint that is dead for good would gather them for ever, and somebody who comes back would be told of
        what was long ago."""
        until = min(found.until, now - MESSAGE_AGE)
        reason = f"not taken for {show_duration(now - until)}, and too old to be sent"
        found.given_up += self._in_parts(
            reader.stale_deliveries(until), lambda session, part: session.give_up_stale(part, until, reason, now)
        )

    def _in_parts(self, items: Sequence[T], remove: Callable[[Session, Sequence[T]], int]) -> int:
        parts = [items[first : first + KEYS] for first in range(0, len(items), KEYS)]
        return sum(self._perform(partial(_apply, remove=remove, part=part)) for part in parts)

    def _pass(self, reader: Reader, found: Collection, settled: int, gone: set[JobId]) -> list[Chain]:
        """Down the numbers once; the chains that stay because something refers to them."""
        referenced: list[Chain] = []
        below = TOP
        found.kept.clear()
        found.stays.clear()
        while True:
            if self.is_stopping:
                raise Unavailable("the scheduler is stopping; what is left to collect is collected another time")
            with reader.reading():
                ids = reader.old_chains(below, until=found.until, limit=BATCH)
                chains = reader.chains_for_gc([chain for chain in ids if chain not in gone], settled=settled)
            if not ids:
                return referenced
            below = ids[-1]
            sorted_out, weights = self._sort_out(chains, gone, found)
            referenced += sorted_out.referenced
            if found.is_dry:
                self._plan(reader, sorted_out.free, weights, found)
                gone.update(chain.id for chain in sorted_out.free)
            else:
                for part in _parts(sorted_out.free):
                    gone |= self._remove(part, weights, settled, found)

    def _sort_out(
        self, chains: Sequence[Chain], gone: set[JobId], found: Collection
    ) -> tuple[SortedOut, dict[JobId, int]]:
        """What is free to go, and the bytes of each. A chain that has to stay on account of what lies in the home keeps
        those it refers to: then it is sorted out once more."""
        weights: dict[JobId, int] = {}
        stays: set[JobId] = set()
        worktrees = self._jobs_with_worktree()
        while True:
            sorted_out = sort_out(chains, until=found.until, gone=gone, stays=stays)
            before = len(stays)
            for chain in sorted_out.free:
                if chain.id not in weights and not self._weigh(chain, worktrees, weights, found):
                    stays.add(chain.id)
            if len(stays) == before:
                return sorted_out, weights

    def _weigh(
        self, chain: Chain, worktrees: Mapping[JobId, str], weights: dict[JobId, int], found: Collection
    ) -> bool:  # fmt: skip
        """False where something in the home keeps it."""
        if kept := worktrees.keys() & set(chain.jobs):
            place = self._worktrees / worktrees[min(kept)]
            safe = f"when its work is safe: git worktree remove {place}"
            found.keep(chain, Kept.WORKTREE, f"its worktree {place} is still there; {safe}")
            return False
        try:
            weights[chain.id] = sum(self._trash.weigh(job) for job in chain.jobs)
        except OSError as error:
            self._keep_files(chain, error, found)
            return False
        return True

    def _jobs_with_worktree(self) -> Mapping[JobId, str]:
        """Each with the name of one; a job that was rewound may have left several: `job-7`, `job-7.2`."""
        try:
            names = [entry.name for entry in self._worktrees.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return {}
        named = ((_WORKTREE.fullmatch(name), name) for name in sorted(names, reverse=True))
        return {JobId(int(found[1])): name for found, name in named if found is not None}

    def _keep_files(self, chain: Chain, error: OSError, found: Collection) -> None:
        found.keep(chain, Kept.FILES, f"its files cannot be removed: {error.filename}: {error.strerror}")

    def _plan(self, reader: Reader, chains: Sequence[Chain], weights: dict[JobId, int], found: Collection) -> None:
        jobs = [job for chain in chains for job in chain.jobs]
        if jobs:
            found.rows.add(reader.rows_of(jobs))
            found.name(jobs)
            found.bytes += sum(weights[chain.id] for chain in chains)

    def _remove(
        self, chains: Sequence[Chain], weights: dict[JobId, int], settled: int, found: Collection
    ) -> set[JobId]:
        """Those that are gone now."""
        taken = [chain for chain in chains if self._take(chain, found)]
        if not taken:
            return set()
        ids = [chain.id for chain in taken]
        try:
            self._trash.sync()
            removed: Removed = self._perform(
                lambda work: work.session.remove_chains(ids, until=found.until, settled=settled)
            )
        except CannotGoOn:
            raise  # whether the rows are gone is known at the next start, and then it is seen to
        except BaseException:
            self._trash.put_back(job for chain in taken for job in chain.jobs)
            raise
        self._trash.put_back(job for chain in taken if chain.id not in removed.chains for job in chain.jobs)
        jobs = [job for chain in taken if chain.id in removed.chains for job in chain.jobs]
        found.rows.add(removed.rows)
        found.name(jobs)
        found.bytes += sum(weights[chain] for chain in removed.chains)
        self._sweep(found, jobs)
        return set(removed.chains)

    def _take(self, chain: Chain, found: Collection) -> bool:
        try:
            self._trash.take(chain.jobs)
        except OSError as error:
            self._keep_files(chain, error, found)
            return False
        return True

    def _sweep(self, found: Collection, jobs: Sequence[JobId]) -> None:
        for text in self._trash.delete(jobs):
            log.warning("files of a removed job are left: %s", text)
            found.left.append(text)

    def _remove_unused(self, reader: Reader, found: Collection) -> None:
        if found.rows.jobs:
            unused = reader.unused()
            found.rows.add(self._perform(lambda work: work.session.remove_unused(unused)))

    def _book(self, found: Collection, cause: str, actor: str | None) -> None:
        data = {
            **msgspec.structs.asdict(found.rows), "bytes": found.bytes, "kept": sum(found.kept.values()),
            "given_up": found.given_up,
        }  # fmt: skip
        self._perform(partial(_book, data=data, cause=cause, actor=actor))


def _book(work: Work, data: dict[str, object], cause: str, actor: str | None) -> None:
    if cause == "timer":
        work.session.set_meta(DAILY, str(to_stored(work.now)))
    work.session.book_gc(data, breaker=work.settings.breaker, now=work.now, cause=cause, actor=actor)


def _parts(chains: Sequence[Chain]) -> Iterator[list[Chain]]:
    """In the same order, with few jobs in each: a chain may have a thousand."""
    part: list[Chain] = []
    for chain in chains:
        if part and sum(len(each.jobs) for each in part) + len(chain.jobs) > BATCH:
            yield part
            part = []
        part.append(chain)
    if part:
        yield part


def _apply(work: Work, remove: Callable[[Session, Sequence[T]], int], part: Sequence[T]) -> int:
    return remove(work.session, part)
