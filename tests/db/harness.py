"""Harness for the store: one transaction at a time, as in the engine, with all invariants checked after each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from rota.db.jobs import NewJob
from rota.db.queue import Dispatch
from rota.db.runs import OpenRun
from rota.db.session import Session
from rota.db.store import Store
from rota.ids import JobId
from rota.kernel.edges import DependencyPolicy, Edge, edge_state
from rota.kernel.events import Event
from rota.kernel.gates import GateContext
from rota.kernel.holds import NO_HOLDS
from rota.kernel.job import Spec
from rota.kernel.locks import Lock, LockBoard, LockMode
from rota.kernel.pools import PoolBoard, PoolSizes
from rota.kernel.run import RunResult
from rota.kernel.status import Status
from rota.kernel.tick import Placement, can_skip_evaluation, evaluate, plan
from tests.db.invariants import check_store
from tests.harness import SqlRunner

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COMPLETED_RESULT = RunResult(status=Status.COMPLETED, exit_code=0, reason=None)
FAILED_RESULT = RunResult(status=Status.FAILED, exit_code=3, reason="exit code 3", error="exit code 3\noops")


def add_job(
    session: Session,
    *,
    after: Sequence[tuple[JobId, DependencyPolicy]] = (),
    locks: Sequence[str] = (),
    demand: Mapping[str, int] | None = None,
    priority: int = 0,
    not_before: datetime | None = None,
    spec: Spec | None = None,
    now: datetime = NOW,
) -> JobId:
    (job,) = session.ids.allocate_jobs(1)
    chains = session.chains.states([predecessor for predecessor, _ in after])
    edges = tuple(
        (
            Edge(predecessor=predecessor, chain=chains[predecessor].chain, policy=policy),
            edge_state(policy, chains[predecessor].status),
        )
        for predecessor, policy in after
    )
    job_locks = tuple(sorted(_lock(lock) for lock in locks))
    new = NewJob(
        id=job,
        spec=spec
        or Spec(command=("true",), cwd="/", environment=session.jobs.environment_id({"A": "1"}), locks=job_locks),
        priority=priority,
        not_before=not_before,
        edges=edges,
        demand={"global": 1} if demand is None else demand,
        is_ready=can_skip_evaluation(
            unmet=sum(state != "met" for _, state in edges), not_before=not_before, locks=job_locks
        ),
    )
    session.jobs.add([new], now, "tester")
    return job


def evaluate_all(session: Session, now: datetime = NOW) -> list[Placement]:
    session.queue.wake_due(now)
    jobs = session.queue.dirty_jobs(500)[0]
    keys = [lock.key for job in jobs for lock in job.locks]
    context = GateContext(
        now=now,
        pauses=session.pauses.state(holds=NO_HOLDS),
        locks=LockBoard(session.locks.fronts(keys)),
        pools=PoolBoard(PoolSizes({}), {}),
    )
    placements = evaluate(jobs, context)
    session.queue.place(placements, now, "tick")
    return placements


def claim_all(session: Session, limits: Mapping[str, int] | None = None, now: datetime = NOW) -> list[Dispatch]:
    start_plan = plan(session.queue.snapshot(PoolSizes(limits or {}), None, holds=NO_HOLDS))
    return session.queue.claim(start_plan.claims, "local", now, "tick")


def _lock(text: str) -> Lock:
    key, _, mode = text.partition(":")
    return Lock(key=key, mode=LockMode(mode or "exclusive"))


class StoreHarness:
    def __init__(self, store: Store, run_sql: SqlRunner) -> None:
        self.session = store.session()
        self.reader = store.reader()
        self.run_sql = run_sql
        self.events: list[Event] = []
        """Events of the last transaction."""

    def close(self) -> None:
        self.reader.close()
        self.session.close()

    @contextmanager
    def unchecked_transaction(self) -> Iterator[Session]:
        """Open a transaction without the check after it, for tests that write by raw SQL."""
        self.session.begin()
        try:
            yield self.session
        except BaseException:
            self.session.rollback()
            raise
        self.events = self.session.commit()

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        with self.unchecked_transaction() as session:
            yield session
        check_store(self.run_sql)

    def add(
        self,
        *,
        after: Sequence[tuple[JobId, DependencyPolicy]] = (),
        locks: Sequence[str] = (),
        demand: Mapping[str, int] | None = None,
        priority: int = 0,
        not_before: datetime | None = None,
    ) -> JobId:
        with self.transaction() as session:
            return add_job(session, after=after, locks=locks, demand=demand, priority=priority, not_before=not_before)

    def evaluate(self, now: datetime = NOW) -> list[Placement]:
        with self.transaction() as session:
            return evaluate_all(session, now)

    def claim(self, **limits: int) -> list[JobId]:
        with self.transaction() as session:
            return sorted(dispatch.job for dispatch in claim_all(session, limits))

    def run_of(self, job: JobId) -> OpenRun:
        run = self.session.runs.find_open_of(job)
        assert run is not None
        return run

    def confirm(self, job: JobId, pid: int = 4242) -> None:
        with self.transaction() as session:
            session.runs.confirm_start(self.run_of(job), pid, 7, NOW, "executor")

    def finish(self, job: JobId, end: RunResult = COMPLETED_RESULT) -> None:
        with self.transaction() as session:
            run = self.run_of(job)
            assert session.jobs.finish(run, end, finished_at=NOW, now=NOW, cause="executor")
            met = [policy for policy in DependencyPolicy if edge_state(policy, end.status) == "met"]
            session.edges.resolve(run.chain, met)

    def status(self, job: JobId) -> Status:
        record = self.reader.jobs.find(job)
        assert record is not None
        return record.status

    def ready_jobs(self) -> list[JobId]:
        return [JobId(job) for (job,) in self.run_sql("SELECT id FROM job WHERE ready = 1 ORDER BY id")]

    def dirty_jobs(self) -> list[JobId]:
        return [JobId(job) for (job,) in self.run_sql("SELECT id FROM job WHERE dirty = 1 ORDER BY id")]

    def event_kinds(self, job: JobId) -> list[str]:
        """Return the kinds of the job's events, in order."""
        return [event.kind for _seq, event in self.reader.events.of_job(job)]
