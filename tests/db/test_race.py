"""Concurrent processes on one store. LESSONS: 17 workers for 4 items; half of the writes of 20 writers lost."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota.db.sqlite.store import SqliteStore
from rota.db.store import Store
from tests.db import racer
from tests.db.harness import StoreHarness, add_job
from tests.db.invariants import check_store
from tests.harness import make_sqlite_runner

RACERS = 8
WAIT = 60


def race(target: Callable[..., None], store: Store) -> list[list[int]]:
    """Start all processes, release them at one moment, and return the result of each."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(RACERS)
    responses: Any = context.Queue()
    processes = [context.Process(target=target, args=(n, store, barrier, responses)) for n in range(RACERS)]
    for process in processes:
        process.start()
    results = dict(responses.get(timeout=WAIT) for _ in processes)
    for process in processes:
        process.join(WAIT)
    assert [process.exitcode for process in processes] == [0] * RACERS
    return [results[n] for n in range(RACERS)]


def test_concurrent_schedulers_claim_no_more_than_the_limit(tmp_path: Path) -> None:
    """LESSONS Dispatch: 17 workers for 4 items. A server refuses a second scheduler; on a file the claim itself must be
    safe."""
    store, run_sql = SqliteStore(tmp_path / "rota.db"), make_sqlite_runner(tmp_path / "rota.db")
    harness = StoreHarness(store, run_sql)
    with harness.transaction() as session:
        jobs = [add_job(session) for _ in range(40)]
    harness.close()
    claimed = [job for jobs in race(racer.claim_jobs, store) for job in jobs]
    assert sorted(claimed) == jobs[:4]
    assert run_sql("SELECT count(*) FROM run") == [(4,)]
    check_store(run_sql)


def test_concurrent_submits_lose_no_job(tmp_path: Path) -> None:
    """All processes also open the store at one moment, and the schema is created once."""
    store, run_sql = SqliteStore(tmp_path / "rota.db"), make_sqlite_runner(tmp_path / "rota.db")
    stored = [job for jobs in race(racer.submit_jobs, store) for job in jobs]
    assert len(set(stored)) == RACERS * 50
    assert [job for (job,) in run_sql("SELECT id FROM job ORDER BY id")] == sorted(stored)
    assert run_sql("SELECT count(*) FROM event") == [(RACERS * 50,)]
    check_store(run_sql)
