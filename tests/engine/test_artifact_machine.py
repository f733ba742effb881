"""State machine of submits, ends, external changes, crashes and cancels against a model that checks everything.

The engine caches observations, probes a few facts and wakes a few jobs; the model reads all facts every time.
A difference means a job that started before its needs, a lost wake-up or a wrong wait reason.
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

from rota.db.sqlite.store import SqliteStore
from rota.executor.port import RunInventory, RunReport, StartFailure
from rota.ids import JobId, format_job_id
from rota.kernel.facts import BranchHead, Fact, FileExists
from rota.kernel.status import STARTED, TERMINAL, WAITING, Status
from tests.db.invariants import check_store
from tests.harness import FakeExecutor, Scheduler, make_sqlite_runner
from tests.sample import sample

MEMORY = Path("/dev/shm")
REPOSITORY = "/repo/.git"
NAMES = ("file:/a", "file:/b", "plan_branch:c (c)", "custom:t:d")
FACTS: dict[str, Fact] = {
    "file:/a": FileExists("/a"),
    "file:/b": FileExists("/b"),
    "plan_branch:c (c)": BranchHead(REPOSITORY, "c"),
}
MAIN = BranchHead(REPOSITORY, "main")
names = st.lists(st.sampled_from(NAMES), unique=True, max_size=2)
indexes = st.integers(0, 1000)


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    needs: list[str]
    produces: list[str]
    after: list[JobId]
    retries: int
    may_wait: bool | None
    pin: str | None


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.store = SqliteStore(self.directory / "rota.db")
        self.requests: dict[JobId, JobRequest] = {}
        self.checked_starts = 0

    @initialize(pool_size=st.sampled_from([1, 2, -1]))
    def begin(self, pool_size: int) -> None:
        self.scheduler = Scheduler(self.store, self.directory, {"global": pool_size})
        self.scheduler.probe.values[MAIN] = "1" * 40

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.scheduler.close()
        check_store(make_sqlite_runner(self.directory / "rota.db"))
        shutil.rmtree(self.directory)

    # Rules.

    @rule(
        needs=names,
        produces=names,
        index=indexes,
        has_predecessor=st.booleans(),
        retries=st.sampled_from([0, 0, 1]),
        may_wait=st.sampled_from([True, False, None]),
        pin=st.sampled_from([None, None, "main", f"main@{'2' * 8}"]),
    )
    def submit(
        self,
        needs: list[str],
        produces: list[str],
        index: int,
        has_predecessor: bool,
        retries: int,
        may_wait: bool | None,
        pin: str | None,
    ) -> None:
        older = sorted(self.requests)
        after = [older[index % len(older)]] if has_predecessor and older else []
        produces = [name for name in produces if name not in needs]
        if self.would_close_cycle(needs, produces, after):
            produces = []
        request = JobRequest(needs=needs, produces=produces, after=after, retries=retries, may_wait=may_wait, pin=pin)
        if pin == "main" and not self.value(MAIN):
            pin = None
        job = self.scheduler.submit(
            needs=needs,
            produces=produces,
            after=after,
            retries=retries,
            pin=pin,
            missing_producer=None if may_wait is None else "wait" if may_wait else "block",
        )
        head = self.scheduler.job(job).spec.pinned_head
        self.requests[job] = msgspec.structs.replace(request, pin=None if head is None else head.oid)
        self.check()

    @rule(name=st.sampled_from([*FACTS]))
    def change(self, name: str) -> None:
        """Change a fact behind the scheduler's back."""
        values, fact = self.scheduler.probe.values, FACTS[name]
        values[fact] = not values.get(fact)
        self.check()

    @rule(oid=st.sampled_from(["1" * 40, "2".ljust(8, "2").ljust(40, "0"), None]))
    def advance_branch(self, oid: str | None) -> None:
        self.scheduler.probe.values[MAIN] = oid
        self.check()

    @rule()
    def probe_facts(self) -> None:
        self.scheduler.record_changed_facts()
        self.check(is_probed=True)

    @precondition(lambda self: self.running())
    @rule(index=indexes, code=st.sampled_from([0, 0, 1]), creates_products=st.booleans())
    def end(self, index: int, code: int, creates_products: bool) -> None:
        job = self.running()[index % len(self.running())]
        if creates_products:
            for name in self.request_of(job).produces:
                if name in FACTS:
                    self.scheduler.probe.values[FACTS[name]] = True
        self.scheduler.end_run(job, code)
        self.check()

    @precondition(lambda self: self.running())
    @rule(index=indexes)
    def fail_to_start(self, index: int) -> None:
        job = self.running()[index % len(self.running())]
        self.scheduler.receive(StartFailure(run=self.scheduler.find_run(job), error="no such program"))
        self.check()

    @precondition(lambda self: self.requests)
    @rule(index=indexes)
    def cancel(self, index: int) -> None:
        waiting = [job.id for job in self.all_jobs() if job.status in WAITING]
        if waiting:
            self.scheduler.cancel(waiting[index % len(waiting)])
            self.check()

    @rule(seconds=st.sampled_from([1, 30]))
    def pass_time(self, seconds: int) -> None:
        self.scheduler.clock.advance(seconds=seconds)
        self.scheduler.run_turns()
        self.check()

    @rule()
    def crash(self) -> None:
        reports = [RunReport(run=self.scheduler.find_run(job), pid=1) for job in self.running()]
        starts = self.scheduler.executor.starts
        self.scheduler.session.close()
        self.scheduler.executor = FakeExecutor()
        self.scheduler.executor.orders.extend(starts)
        self.scheduler.executor.inbox = [RunInventory(runs=reports)]
        self.scheduler.start_engine()
        self.check()

    # Checks.

    def value(self, fact: Fact) -> Any:
        return self.scheduler.probe.values.get(fact)

    def all_jobs(self) -> list[Any]:
        return self.scheduler.reader.jobs.find_all(self.scheduler.reader.jobs.list_ids(list(Status), limit=10_000))

    def running(self) -> list[JobId]:
        return sorted(job.id for job in self.all_jobs() if job.status in STARTED)

    def request_of(self, job: JobId) -> JobRequest:
        return self.requests[self.scheduler.job(job).chain]

    def producers(self, name: str, except_: JobId) -> list[Status]:
        """Last status of each chain that produces the artifact."""
        last: dict[JobId, Status] = {}
        for job in sorted(self.all_jobs(), key=lambda job: job.id):
            if name in self.requests[job.chain].produces and job.chain != except_:
                last[job.chain] = job.status
        return list(last.values())

    def artifact_exists(self, name: str, chain: JobId) -> bool:
        if name.startswith("custom"):
            return False
        is_being_made = any(status in STARTED for status in self.producers(name, chain))
        return bool(self.value(FACTS[name])) and not (name.startswith("file") and is_being_made)

    def would_close_cycle(self, needs: list[str], produces: list[str], after: list[JobId]) -> bool:
        """Return whether a waiting job needs a product of a job that waits itself. Coarse on purpose."""
        needed = {name for job in self.all_jobs() if job.status in WAITING for name in self.request_of(job.id).needs}
        return bool((needs or after) and needed & set(produces))

    def check(self, *, is_probed: bool = False) -> None:
        starts = self.scheduler.executor.starts
        for start in starts[self.checked_starts :]:
            self.check_start(start.job, {start.job for start in starts[self.checked_starts :]})
        self.checked_starts = len(starts)
        for job in self.all_jobs():
            if job.status in WAITING:
                self.check_reason(job, is_probed=is_probed)

    def check_start(self, job: JobId, started_together: set[JobId]) -> None:
        """Check that nothing starts before its needs, however little the scheduler was told."""
        chain = self.scheduler.job(job).chain
        request = self.requests[chain]
        for name in request.needs:
            assert self.value(FACTS[name]), f"{format_job_id(job)} started without {name}"
            if name.startswith("file"):
                producers = [
                    other for other in self.running() if name in self.request_of(other).produces and other != job
                ]
                assert set(producers) <= started_together, f"{format_job_id(job)} started while {producers} make {name}"
        assert request.pin is None or self.value(MAIN) == request.pin
        for predecessor in request.after:
            last = self.scheduler.reader.chains.last_job(predecessor)
            assert last is not None
            assert last[1] in (Status.COMPLETED, Status.SKIPPED)

    def check_reason(self, job: Any, *, is_probed: bool) -> None:
        """Check that the wait reason of every waiting job is true."""
        request, detail = self.requests[job.chain], self.scheduler.wait_detail(job.id)
        for predecessor in request.after:
            last = self.scheduler.reader.chains.last_job(predecessor)
            if last is not None and last[1] not in TERMINAL:
                assert detail == f"waiting on job {format_job_id(last[0])}"
                return
        if not is_probed:
            return
        for name in request.needs:
            if not self.artifact_exists(name, job.chain):
                word = "waiting on" if self.producers(name, job.chain) else "awaiting producer for"
                assert detail == f"{word} {name}", (detail, name)
                return
        if request.pin is not None and self.value(MAIN) != request.pin:
            assert detail == "pinned head mismatch on main"
            return
        assert detail is not None, f"nothing holds {format_job_id(job.id)}, and it did not start"
        assert detail.startswith(("not before", "waiting on pool"))


def test_no_job_starts_before_its_needs_and_every_wait_reason_is_true() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(max_examples=sample(25), stateful_step_count=30, suppress_health_check=list(HealthCheck)),
    )
