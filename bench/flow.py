"""Reads while jobs flow through: what somebody who looks waits, on a scheduler that is at work."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench.live import COMMAND, Client, Rota

_PER_SECOND = 200
_AT_A_TIME = 10
_PLACES = 4

READS = {
    "one job": "/api/jobs/{job}",
    "a page of 100 jobs": "/api/jobs?limit=100",
    "status": "/api/scheduler",
}


class Reads(NamedTuple):
    milliseconds: dict[str, list[float]]
    """Of each kind of read."""
    flowed: float
    """Jobs a second that ended meanwhile."""


@contextmanager
def _flow(rota: Rota) -> Iterator[None]:
    """Jobs come at their own pace, whatever becomes of them."""
    over = threading.Event()

    def submit() -> None:
        client, due = Client(rota.home), time.perf_counter()
        while not over.is_set():
            client.ask("POST", "/api/jobs/batch", {"jobs": [COMMAND] * _AT_A_TIME})
            due += _AT_A_TIME / _PER_SECOND
            over.wait(max(0.0, due - time.perf_counter()))

    submitting = threading.Thread(target=submit)
    submitting.start()
    try:
        yield
    finally:
        over.set()
        submitting.join()


def reads(rota: Rota, count: int, *, is_busy: bool) -> Reads:
    """So many of each kind, in turns."""
    rota.limit(_PLACES)
    (job,) = rota.queue(1)
    rota.ended(job)
    if not is_busy:
        return Reads(_measured(rota, job, count), 0)
    with _flow(rota):
        time.sleep(1)  # until it flows evenly
        before, begun = _ended(rota), time.perf_counter()
        taken = _measured(rota, job, count)
        flowed = (_ended(rota) - before) / (time.perf_counter() - begun)
    rota.clear()
    return Reads(taken, flowed)


def _measured(rota: Rota, job: str, count: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {name: [] for name in READS}
    for _ in range(count):
        for name, target in READS.items():
            begun = time.perf_counter()
            rota.client.ask("GET", target.format(job=job))
            taken[name].append((time.perf_counter() - begun) * 1000)
    return taken


def _ended(rota: Rota) -> int:
    return int(rota.client.ask("GET", "/api/jobs?limit=1")["counts"].get("COMPLETED", 0))
