"""What each process of a race does; in a module of its own, so that a fresh interpreter can import it."""

from __future__ import annotations

from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from rota.store.port import Store
from store.desk import add_job, claim_all


def claims(number: int, store: Store, barrier: Barrier, answers: Queue[tuple[int, list[int]]]) -> None:
    """Two turns of a scheduler that thinks it is alone."""
    session = store.session()
    barrier.wait(60)
    won: list[int] = []
    for _ in range(2):
        session.begin()
        won += [dispatch.job for dispatch in claim_all(session, {"global": 4})]
        session.commit()
    session.close()
    answers.put((number, won))


def submits(number: int, store: Store, barrier: Barrier, answers: Queue[tuple[int, list[int]]]) -> None:
    """Fifty submits, a transaction each."""
    barrier.wait(60)
    session = store.session()
    stored: list[int] = []
    for _ in range(50):
        session.begin()
        stored.append(add_job(session, locks=[f"k{number}"]))
        session.commit()
    session.close()
    answers.put((number, stored))
