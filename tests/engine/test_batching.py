"""Requests that arrive together are submitted to the engine together, within a maximum delay."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rota.engine.calls import _MAX_BATCH_DELAY, _MAX_BATCH_SIZE, RequestBatcher


async def collect_batches(*counts: int, seconds: float = 0.0) -> list[tuple[int, int]]:
    """Add these numbers of requests, one number in each iteration of the event loop, which takes `seconds`. Return the
    iteration and the size of each batch."""
    batches: list[tuple[int, int]] = []
    iteration = 0
    loop: Any = SimpleNamespace(call_soon=asyncio.get_running_loop().call_soon, time=lambda: iteration * seconds)
    batcher: RequestBatcher[int] = RequestBatcher(loop, lambda *requests: batches.append((iteration, len(requests))))
    for count in (*counts, 0, 0, 0):
        for request in range(count):
            batcher.add(request)
        iteration += 1
        await asyncio.sleep(0)
    assert sum(size for _, size in batches) == sum(counts)
    return batches


@pytest.mark.parametrize(
    ("counts", "batches"),
    [
        ((1,), [(2, 1)]),
        ((8,), [(2, 8)]),
        ((2, 1), [(3, 3)]),
        ((2, 1, 5), [(4, 8)]),
        ((2, 0, 5), [(2, 2), (4, 5)]),
        ((_MAX_BATCH_SIZE,), [(1, _MAX_BATCH_SIZE)]),
        ((10_000,), [(1, 10_000)]),
    ],
)
def test_requests_are_batched_until_an_iteration_adds_none(
    counts: tuple[int, ...], batches: list[tuple[int, int]]
) -> None:
    assert asyncio.run(collect_batches(*counts)) == batches


def test_batch_is_submitted_after_the_maximum_delay() -> None:
    batches = asyncio.run(collect_batches(*[1] * 100, seconds=_MAX_BATCH_DELAY / 4))
    assert max(size for _, size in batches) <= 5


def test_full_batch_is_submitted_while_requests_keep_arriving() -> None:
    batches = asyncio.run(collect_batches(*[1] * 1000))
    assert max(size for _, size in batches) == _MAX_BATCH_SIZE
