"""Separate processes on one store. LESSONS: 17 workers for 4 items; half of the writes of 20 writers lost."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import sqlite_raw
from rota.store.port import Store
from rota.store.sqlite.store import SqliteStore
from store import racer
from store.desk import Desk, add_job
from store.invariants import check_store

RACERS = 8
WAIT = 60


def race(target: Callable[..., None], store: Store) -> list[list[int]]:
    """Start them all, let them go at one moment, and gather what each says it got."""
    fresh = multiprocessing.get_context("spawn")
    barrier = fresh.Barrier(RACERS)
    answers: Any = fresh.Queue()
    processes = [fresh.Process(target=target, args=(n, store, barrier, answers)) for n in range(RACERS)]
    for process in processes:
        process.start()
    got = dict(answers.get(timeout=WAIT) for _ in processes)
    for process in processes:
        process.join(WAIT)
    assert [process.exitcode for process in processes] == [0] * RACERS
    return [got[n] for n in range(RACERS)]


def test_eight_schedulers_claim_four_jobs_between_them_where_the_limit_is_four(tmp_path: Path) -> None:
    """LESSONS Dispatch: 17 workers for 4 items. A server refuses the second scheduler outright; on a file the claim
    itself has to be safe."""
    store, raw = SqliteStore(tmp_path / "rota.db"), sqlite_raw(tmp_path / "rota.db")
    desk = Desk(store, raw)
    with desk.writing() as session:
        jobs = [add_job(session) for _ in range(40)]
    desk.close()
    won = [job for claims in race(racer.claims, store) for job in claims]
    assert sorted(won) == jobs[:4]
    assert raw("SELECT count(*) FROM run") == [(4,)]
    check_store(raw)


def test_eight_writers_of_fifty_jobs_each_lose_none(tmp_path: Path) -> None:
    """They open the store at one moment too: the schema is made once."""
    store, raw = SqliteStore(tmp_path / "rota.db"), sqlite_raw(tmp_path / "rota.db")
    stored = [job for jobs in race(racer.submits, store) for job in jobs]
    assert len(set(stored)) == RACERS * 50
    assert [job for (job,) in raw("SELECT id FROM job ORDER BY id")] == sorted(stored)
    assert raw("SELECT count(*) FROM event") == [(RACERS * 50,)]
    check_store(raw)
