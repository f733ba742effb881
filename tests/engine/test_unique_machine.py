"""Property test: in any sequence of operations a key has at most one active chain, and every response is true."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.db.sqlite.store import SqliteStore
from rota.errors import Conflict
from rota.ids import JobId
from rota.jobs.retry import retry
from rota.jobs.submit import AcceptedSubmit, DeferredSubmit, DuplicateSubmit
from rota.kernel.backpressure import QueueLimit
from rota.kernel.status import Status
from tests.harness import Scheduler
from tests.sample import sample

HARD = 4
Step = tuple[str, int]
steps = st.tuples(
    st.sampled_from(["a", "a", "b", "after", "end", "fail", "fail", "cancel", "retry", "rewind", "time", "crash"]),
    st.integers(0, 50),
)


class OperationRunner:
    def __init__(self, home: Path) -> None:
        self.scheduler = Scheduler(SqliteStore(home / "rota.db"), home, {"global": 2})
        self.scheduler.set_queue_limits(QueueLimit(hard=HARD))
        self.path = home / "rota.db"

    def active(self, key: str) -> list[JobId]:
        with closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute("SELECT id FROM job WHERE unique_key = ? AND finished_at IS NULL", [key])
            return [JobId(job) for (job,) in rows]

    def submit(self, key: str, after: list[JobId]) -> None:
        before, depth = self.active(key), self.scheduler.reader.queue.depth().total
        result = self.scheduler.try_submit(unique=key, after=[f"job-{job}:finished" for job in after], retries=1)
        match result:
            case DuplicateSubmit():
                assert list(result.active.values()) == before
            case DeferredSubmit():
                assert not before
                assert depth >= HARD
            case AcceptedSubmit():
                assert not before
                assert depth < HARD
                assert self.active(key) == result.jobs

    def pick(self, number: int) -> JobId | None:
        jobs = self.scheduler.reader.jobs.list_ids(Status, limit=1000)
        return sorted(jobs)[number % len(jobs)] if jobs else None

    def step(self, operation: str, number: int) -> None:
        job = self.pick(number)
        running = self.scheduler.reader.jobs.running()
        if operation in ("a", "b"):
            self.submit(operation, [])
        elif operation == "time":
            self.scheduler.clock.advance(minutes=5)
            self.scheduler.run_turns()
        elif operation == "crash":
            self.scheduler.crash()
        elif operation in ("end", "fail") and running:
            self.scheduler.end_run(running[number % len(running)], int(operation == "fail"))
        elif job is not None and operation in ("after", "cancel", "retry", "rewind"):
            with suppress(Conflict):
                self.act(operation, job)

    def act(self, operation: str, job: JobId) -> None:
        if operation == "after":
            self.submit("a", [job])
        elif operation == "cancel":
            self.scheduler.cancel(job)
        elif operation == "retry":
            self.scheduler.run_request(lambda tx: retry(tx, f"job-{job}", actor="me"))
        else:
            self.scheduler.rewind(job)


@settings(max_examples=sample(25))
@given(st.lists(steps, min_size=5, max_size=40))
def test_key_has_at_most_one_active_chain_at_every_step(operations: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        runner = OperationRunner(Path(directory))
        try:
            for operation, number in operations:
                runner.step(operation, number)
                assert runner.scheduler.engine.store_error is None, "the rules refuse before the schema does"
                assert all(len(runner.active(key)) <= 1 for key in "ab")
        finally:
            runner.scheduler.close()
