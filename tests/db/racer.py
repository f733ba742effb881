"""Workloads for the processes of a race. They have their own module so that a fresh interpreter can import them."""

from __future__ import annotations

from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from rota.db.store import Store
from tests.db.harness import add_job, claim_all


def claim_jobs(number: int, store: Store, barrier: Barrier, responses: Queue[tuple[int, list[int]]]) -> None:
    """Run two claim turns of a scheduler that does not know of the others."""
    session = store.session()
    barrier.wait(60)
    claimed: list[int] = []
    for _ in range(2):
        session.begin()
        claimed += [dispatch.job for dispatch in claim_all(session, {"global": 4})]
        session.commit()
    session.close()
    responses.put((number, claimed))


def submit_jobs(number: int, store: Store, barrier: Barrier, responses: Queue[tuple[int, list[int]]]) -> None:
    """Submit fifty jobs, each in its own transaction."""
    barrier.wait(60)
    session = store.session()
    stored: list[int] = []
    for _ in range(50):
        session.begin()
        stored.append(add_job(session, locks=[f"k{number}"]))
        session.commit()
    session.close()
    responses.put((number, stored))
