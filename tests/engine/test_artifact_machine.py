"""Any sequence of submits, ends, changes outside, crashes and cancels, against a model that looks at everything.

The engine keeps what it saw, asks a few questions and wakes a few jobs; the model reads the whole world every time.
Where they differ, a job started before its needs, a wake-up was lost, or a reason is not true.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from harness import FakeExecutor, Scheduler, sqlite_raw
from rota.core.fact import Fact, File, Head
from rota.core.status import STARTED, TERMINAL, WAITING, Status
from rota.executor.port import Account, Accounts, FailedToStart
from rota.ids import JobId, show_job
from rota.store.sqlite.store import SqliteStore
from sample import sample
from store.invariants import check_store

MEMORY = Path("/dev/shm")
REPOSITORY = "/repo/.git"
NAMES = ("file:/a", "file:/b", "plan_branch:c (c)", "custom:t:d")
FACTS: dict[str, Fact] = {
    "file:/a": File("/a"),
    "file:/b": File("/b"),
    "plan_branch:c (c)": Head(REPOSITORY, "c"),
}
MAIN = Head(REPOSITORY, "main")
names = st.lists(st.sampled_from(NAMES), unique=True, max_size=2)
picks = st.integers(0, 1000)


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    needs: list[str]
    produces: list[str]
    after: list[JobId]
    retries: int
    may_wait: bool
    pin: str | None


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.store = SqliteStore(self.directory / "rota.db")
        self.wishes: dict[JobId, Wish] = {}
        self.seen_starts = 0

    @initialize(room=st.sampled_from([1, 2, -1]))
    def begin(self, room: int) -> None:
        self.scheduler = Scheduler(self.store, self.directory, {"global": room})
        self.scheduler.probe.world[MAIN] = "1" * 40

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.close()
        check_store(sqlite_raw(self.directory / "rota.db"))
        shutil.rmtree(self.directory)

    # What happens.

    @rule(needs=names, produces=names, pick=picks, linked=st.booleans(), retries=st.sampled_from([0, 0, 1]),
          may_wait=st.booleans(), pin=st.sampled_from([None, None, "main", f"main@{'2' * 8}"]))  # fmt: skip
    def submit(
        self, needs: list[str], produces: list[str], pick: int, linked: bool, retries: int, may_wait: bool,
        pin: str | None,
    ) -> None:  # fmt: skip
        older = sorted(self.wishes)
        after = [older[pick % len(older)]] if linked and older else []
        produces = [name for name in produces if name not in needs]
        if self.would_close_a_ring(needs, produces, after):
            produces = []
        wish = Wish(needs=needs, produces=produces, after=after, retries=retries, may_wait=may_wait, pin=pin)
        if pin == "main" and not self.world(MAIN):
            pin = None
        job = self.scheduler.submit(
            needs=needs, produces=produces, after=after, retries=retries, pin=pin,
            missing_producer="wait" if may_wait else "block",
        )  # fmt: skip
        head = self.scheduler.job(job).spec.pinned_head
        self.wishes[job] = msgspec.structs.replace(wish, pin=None if head is None else head.oid)
        self.check()

    @rule(name=st.sampled_from([*FACTS]))
    def change(self, name: str) -> None:
        """By hand, behind the scheduler's back."""
        world, fact = self.scheduler.probe.world, FACTS[name]
        world[fact] = not world.get(fact)
        self.check()

    @rule(oid=st.sampled_from(["1" * 40, "2".ljust(8, "2").ljust(40, "0"), None]))
    def move(self, oid: str | None) -> None:
        self.scheduler.probe.world[MAIN] = oid
        self.check()

    @rule()
    def look_outside(self) -> None:
        self.scheduler.look_outside()
        self.check(is_told=True)

    @precondition(lambda self: self.running())
    @rule(pick=picks, code=st.sampled_from([0, 0, 1]), makes=st.booleans())
    def end(self, pick: int, code: int, makes: bool) -> None:
        job = self.running()[pick % len(self.running())]
        if makes:
            for name in self.wish(job).produces:
                if name in FACTS:
                    self.scheduler.probe.world[FACTS[name]] = True
        self.scheduler.end(job, code)
        self.check()

    @precondition(lambda self: self.running())
    @rule(pick=picks)
    def fail_to_start(self, pick: int) -> None:
        job = self.running()[pick % len(self.running())]
        self.scheduler.say(FailedToStart(run=self.scheduler.run_of(job), error="no such program"))
        self.check()

    @precondition(lambda self: self.wishes)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        waiting = [job.id for job in self.all() if job.status in WAITING]
        if waiting:
            self.scheduler.cancel(waiting[pick % len(waiting)])
            self.check()

    @rule(seconds=st.sampled_from([1, 30]))
    def pass_time(self, seconds: int) -> None:
        self.scheduler.clock.advance(seconds=seconds)
        self.scheduler.turn()
        self.check()

    @rule()
    def crash(self) -> None:
        accounts = [Account(run=self.scheduler.run_of(job), pid=1) for job in self.running()]
        starts = self.scheduler.executor.starts
        self.scheduler.session.close()
        self.scheduler.executor = FakeExecutor()
        self.scheduler.executor.orders.extend(starts)
        self.scheduler.executor.inbox = [Accounts(runs=accounts)]
        self.scheduler.boot()
        self.check()

    # What must hold.

    def world(self, fact: Fact) -> Any:
        return self.scheduler.probe.world.get(fact)

    def all(self) -> list[Any]:
        return self.scheduler.reader.jobs(self.scheduler.reader.list_jobs(list(Status), limit=10_000))

    def running(self) -> list[JobId]:
        return sorted(job.id for job in self.all() if job.status in STARTED)

    def wish(self, job: JobId) -> Wish:
        return self.wishes[self.scheduler.job(job).chain]

    def makers(self, name: str, but: JobId) -> list[Status]:
        """What the chains that make it have come to."""
        last: dict[JobId, Status] = {}
        for job in sorted(self.all(), key=lambda each: each.id):
            if name in self.wishes[job.chain].produces and job.chain != but:
                last[job.chain] = job.status
        return list(last.values())

    def is_there(self, name: str, chain: JobId) -> bool:
        if name.startswith("custom"):
            return False
        is_made = any(status in STARTED for status in self.makers(name, chain))
        return bool(self.world(FACTS[name])) and not (name.startswith("file") and is_made)

    def would_close_a_ring(self, needs: list[str], produces: list[str], after: list[JobId]) -> bool:
        """Coarse: nothing that an older waiting job needs is produced by one that waits itself."""
        wanted = {name for job in self.all() if job.status in WAITING for name in self.wish(job.id).needs}
        return bool((needs or after) and wanted & set(produces))

    def check(self, *, is_told: bool = False) -> None:
        starts = self.scheduler.executor.starts
        for start in starts[self.seen_starts :]:
            self.check_start(start.job, {each.job for each in starts[self.seen_starts :]})
        self.seen_starts = len(starts)
        for job in self.all():
            if job.status in WAITING:
                self.check_reason(job, is_told=is_told)

    def check_start(self, job: JobId, at_once: set[JobId]) -> None:
        """Nothing starts before its needs, however little the scheduler was told."""
        chain = self.scheduler.job(job).chain
        wish = self.wishes[chain]
        for name in wish.needs:
            assert self.world(FACTS[name]), f"{show_job(job)} started without {name}"
            if name.startswith("file"):
                makers = [each for each in self.running() if name in self.wish(each).produces and each != job]
                assert set(makers) <= at_once, f"{show_job(job)} started while {makers} make {name}"
        assert wish.pin is None or self.world(MAIN) == wish.pin
        for predecessor in wish.after:
            last = self.scheduler.reader.last_of_chain(predecessor)
            assert last is not None
            assert last[1] in (Status.COMPLETED, Status.SKIPPED)

    def check_reason(self, job: Any, *, is_told: bool) -> None:
        """Everybody who waits has a true reason: what `why` says is what keeps it."""
        wish, detail = self.wishes[job.chain], self.scheduler.detail(job.id)
        for predecessor in wish.after:
            last = self.scheduler.reader.last_of_chain(predecessor)
            if last is not None and last[1] not in TERMINAL:
                assert detail == f"waiting on job {show_job(predecessor)}"
                return
        if not is_told:
            return
        for name in wish.needs:
            if not self.is_there(name, job.chain):
                word = "waiting on" if self.makers(name, job.chain) else "awaiting producer for"
                assert detail == f"{word} {name}", (detail, name)
                return
        if wish.pin is not None and self.world(MAIN) != wish.pin:
            assert detail == "pinned head mismatch on main"
            return
        assert detail is not None, f"nothing holds {show_job(job.id)}, and it did not start"
        assert detail.startswith(("not before", "waiting on pool"))


def test_no_job_starts_before_its_needs_and_everybody_who_waits_has_a_true_reason() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(max_examples=sample(25), stateful_step_count=30, suppress_health_check=list(HealthCheck)),
    )
