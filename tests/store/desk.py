"""The store's verbs as the engine uses them, one transaction at a time, the store checked after each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from harness import Raw
from rota.core.after import AfterPolicy, Edge, state_of
from rota.core.control import NOTHING_HELD
from rota.core.event import Event
from rota.core.gate import Facts
from rota.core.job import Spec
from rota.core.lock import Lock, LockBoard, LockMode
from rota.core.pool import Limits, PoolBoard
from rota.core.run import Conclusion
from rota.core.status import Status
from rota.core.tick import Placement, is_free, look, plan
from rota.ids import JobId
from rota.store.claim import Dispatch, OpenRun
from rota.store.port import Store
from rota.store.session import Session
from rota.store.submit import NewJob
from store.invariants import check_store

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DONE = Conclusion(status=Status.COMPLETED, exit_code=0, reason=None)
BROKEN = Conclusion(status=Status.FAILED, exit_code=3, reason="exit code 3", error="exit code 3\noops")


def add_job(
    session: Session,
    *,
    after: Sequence[tuple[JobId, AfterPolicy]] = (),
    locks: Sequence[str] = (),
    draws: Mapping[str, int] | None = None,
    priority: int = 0,
    not_before: datetime | None = None,
    spec: Spec | None = None,
    now: datetime = NOW,
) -> JobId:
    (job,) = session.next_job_ids(1)
    chains = session.chains([predecessor for predecessor, _ in after])
    edges = tuple(
        (
            Edge(predecessor=predecessor, chain=chains[predecessor].chain, policy=policy),
            state_of(policy, chains[predecessor].status),
        )
        for predecessor, policy in after
    )
    wanted = tuple(sorted(_lock(lock) for lock in locks))
    new = NewJob(
        id=job,
        spec=spec or Spec(command=("true",), cwd="/", surroundings=session.surroundings({"A": "1"}), locks=wanted),
        priority=priority,
        not_before=not_before,
        edges=edges,
        draws={"global": 1} if draws is None else draws,
        is_ready=is_free(unmet=sum(state != "met" for _, state in edges), not_before=not_before, locks=wanted),
    )
    session.add([new], now, "tester")
    return job


def look_all(session: Session, now: datetime = NOW) -> list[Placement]:
    session.stir_due(now)
    jobs = session.stirred(500)[0]
    keys = [lock.key for job in jobs for lock in job.locks]
    facts = Facts(
        now=now,
        pauses=session.pauses(holds=NOTHING_HELD),
        locks=LockBoard(session.fronts(keys)),
        pools=PoolBoard(Limits({}), {}),
    )
    placements = look(jobs, facts)
    session.place(placements, now, "tick")
    return placements


def claim_all(session: Session, limits: Mapping[str, int] | None = None, now: datetime = NOW) -> list[Dispatch]:
    chosen = plan(session.snapshot(Limits(limits or {}), None, holds=NOTHING_HELD))
    return session.claim(chosen.claims, "local", now, "tick")


def _lock(text: str) -> Lock:
    key, _, mode = text.partition(":")
    return Lock(key=key, mode=LockMode(mode or "exclusive"))


class Desk:
    def __init__(self, store: Store, raw: Raw) -> None:
        self.session = store.session()
        self.reader = store.reader()
        self.raw = raw
        self.events: list[Event] = []
        """Of the last transaction."""

    def close(self) -> None:
        self.reader.close()
        self.session.close()

    @contextmanager
    def unchecked(self) -> Iterator[Session]:
        """A transaction after which the store is not checked: a test has written past the verbs."""
        self.session.begin()
        try:
            yield self.session
        except BaseException:
            self.session.rollback()
            raise
        self.events = self.session.commit()

    @contextmanager
    def writing(self) -> Iterator[Session]:
        with self.unchecked() as session:
            yield session
        check_store(self.raw)

    def add(
        self,
        *,
        after: Sequence[tuple[JobId, AfterPolicy]] = (),
        locks: Sequence[str] = (),
        draws: Mapping[str, int] | None = None,
        priority: int = 0,
        not_before: datetime | None = None,
    ) -> JobId:
        with self.writing() as session:
            return add_job(session, after=after, locks=locks, draws=draws, priority=priority, not_before=not_before)

    def look(self, now: datetime = NOW) -> list[Placement]:
        with self.writing() as session:
            return look_all(session, now)

    def claim(self, **limits: int) -> list[JobId]:
        with self.writing() as session:
            return sorted(dispatch.job for dispatch in claim_all(session, limits))

    def run_of(self, job: JobId) -> OpenRun:
        run = self.session.open_run_of(job)
        assert run is not None
        return run

    def confirm(self, job: JobId, pid: int = 4242) -> None:
        with self.writing() as session:
            session.confirm(self.run_of(job), pid, 7, NOW, "executor")

    def finish(self, job: JobId, end: Conclusion = DONE) -> None:
        with self.writing() as session:
            run = self.run_of(job)
            assert session.finish(run, end, at=NOW, now=NOW, cause="executor")
            met = [policy for policy in AfterPolicy if state_of(policy, end.status) == "met"]
            session.settle(run.chain, met)

    def status(self, job: JobId) -> Status:
        found = self.reader.job(job)
        assert found is not None
        return found.status

    def ready(self) -> list[JobId]:
        return [JobId(job) for (job,) in self.raw("SELECT id FROM job WHERE ready = 1 ORDER BY id")]

    def stirred(self) -> list[JobId]:
        return [JobId(job) for (job,) in self.raw("SELECT id FROM job WHERE stirred = 1 ORDER BY id")]

    def kinds(self, job: JobId) -> list[str]:
        """Its events, in order."""
        return [event.kind for _seq, event in self.reader.events_of(job)]
