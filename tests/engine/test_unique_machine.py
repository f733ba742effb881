"""Whatever happens in whatever order, a key has one active chain at most, and every answer about it is true."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from harness import Scheduler
from rota.command.backpressure import Deferred
from rota.command.retry import retry
from rota.command.submit import AlreadyActive, Submitted
from rota.core.backpressure import QueueLimit
from rota.core.status import Status
from rota.errors import Conflict
from rota.ids import JobId
from rota.store.sqlite.store import SqliteStore
from sample import sample

HARD = 4
Step = tuple[str, int]
steps = st.tuples(
    st.sampled_from(["a", "a", "b", "after", "end", "fail", "fail", "cancel", "retry", "rewind", "time", "crash"]),
    st.integers(0, 50),
)


class Play:
    def __init__(self, home: Path) -> None:
        self.scheduler = Scheduler(SqliteStore(home / "rota.db"), home, {"global": 2})
        self.scheduler.set_queue(QueueLimit(hard=HARD))
        self.path = home / "rota.db"

    def active(self, key: str) -> list[JobId]:
        with closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute("SELECT id FROM job WHERE unique_key = ? AND finished_at IS NULL", [key])
            return [JobId(job) for (job,) in rows]

    def submit(self, key: str, after: list[JobId]) -> None:
        before, depth = self.active(key), self.scheduler.reader.depth().total
        told = self.scheduler.answer(unique=key, after=[f"job-{job}:finished" for job in after], retries=1)
        match told:
            case AlreadyActive():
                assert list(told.active.values()) == before
            case Deferred():
                assert not before
                assert depth >= HARD
            case Submitted():
                assert not before
                assert depth < HARD
                assert self.active(key) == told.jobs

    def pick(self, number: int) -> JobId | None:
        jobs = self.scheduler.reader.list_jobs(Status, limit=1000)
        return sorted(jobs)[number % len(jobs)] if jobs else None

    def step(self, what: str, number: int) -> None:
        job = self.pick(number)
        running = self.scheduler.reader.running_jobs()
        if what in ("a", "b"):
            self.submit(what, [])
        elif what == "time":
            self.scheduler.clock.advance(minutes=5)
            self.scheduler.turn()
        elif what == "crash":
            self.scheduler.crash()
        elif what in ("end", "fail") and running:
            self.scheduler.end(running[number % len(running)], int(what == "fail"))
        elif job is not None and what in ("after", "cancel", "retry", "rewind"):
            with suppress(Conflict):
                self.act(what, job)

    def act(self, what: str, job: JobId) -> None:
        if what == "after":
            self.submit("a", [job])
        elif what == "cancel":
            self.scheduler.cancel(job)
        elif what == "retry":
            self.scheduler.do(lambda work: retry(work, f"job-{job}", actor="me"))
        else:
            self.scheduler.rewind(job)


@settings(max_examples=sample(25))
@given(st.lists(steps, min_size=5, max_size=40))
def test_a_key_has_one_active_chain_at_every_step(play: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        one = Play(Path(directory))
        try:
            for what, number in play:
                one.step(what, number)
                assert one.scheduler.engine.trouble is None, "the rules refuse before the schema has to"
                assert all(len(one.active(key)) <= 1 for key in "ab")
        finally:
            one.scheduler.close()
