"""Read latency while jobs flow through the scheduler."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench.live import COMMAND, Client, Rota

_JOBS_PER_SECOND = 200
_BATCH_SIZE = 10
_CONCURRENCY = 4

READS = {"one job": "/api/jobs/{job}", "a page of 100 jobs": "/api/jobs?limit=100", "status": "/api/scheduler"}


class ReadTimes(NamedTuple):
    milliseconds: dict[str, list[float]]
    """Values by kind of read."""
    jobs_per_second: float
    """Rate at which jobs ended meanwhile."""


@contextmanager
def _job_flow(rota: Rota) -> Iterator[None]:
    """Submit jobs at a constant rate, whether or not the scheduler keeps up."""
    is_over = threading.Event()

    def submit() -> None:
        client, due = Client(rota.home), time.perf_counter()
        while not is_over.is_set():
            client.request("POST", "/api/jobs/batch", {"jobs": [COMMAND] * _BATCH_SIZE})
            due += _BATCH_SIZE / _JOBS_PER_SECOND
            is_over.wait(max(0.0, due - time.perf_counter()))

    submitter = threading.Thread(target=submit)
    submitter.start()
    try:
        yield
    finally:
        is_over.set()
        submitter.join()


def measure_reads(rota: Rota, count: int, *, is_busy: bool) -> ReadTimes:
    """Time `count` reads of each kind, in turn."""
    rota.set_concurrency(_CONCURRENCY)
    (job,) = rota.enqueue(1)
    rota.wait_for_end(job)
    if not is_busy:
        return ReadTimes(_time_reads(rota, job, count), 0)
    with _job_flow(rota):
        time.sleep(1)  # until the rate is even
        before, started = _count_completed(rota), time.perf_counter()
        milliseconds = _time_reads(rota, job, count)
        jobs_per_second = (_count_completed(rota) - before) / (time.perf_counter() - started)
    rota.drain()
    return ReadTimes(milliseconds, jobs_per_second)


def _time_reads(rota: Rota, job: str, count: int) -> dict[str, list[float]]:
    milliseconds: dict[str, list[float]] = {name: [] for name in READS}
    for _ in range(count):
        for name, target in READS.items():
            started = time.perf_counter()
            rota.client.request("GET", target.format(job=job))
            milliseconds[name].append((time.perf_counter() - started) * 1000)
    return milliseconds


def _count_completed(rota: Rota) -> int:
    return int(rota.client.request("GET", "/api/jobs?limit=1")["counts"].get("COMPLETED", 0))
