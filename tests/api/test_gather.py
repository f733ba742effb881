"""What is asked in one go goes over to the engine together, and nobody waits for long."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rota.api.gather import _ENOUGH, _LONG_ENOUGH, Gathered


async def gathered(*rounds: int, seconds: float = 0.0) -> list[tuple[int, int]]:
    """So many are asked in each round of the event loop, which takes so long: of each hand-over, in which round it
    came, and of how many."""
    heard: list[tuple[int, int]] = []
    round_ = 0
    loop: Any = SimpleNamespace(call_soon=asyncio.get_running_loop().call_soon, time=lambda: round_ * seconds)
    way: Gathered[int] = Gathered(loop, lambda *ones: heard.append((round_, len(ones))))
    for count in (*rounds, 0, 0, 0):
        for one in range(count):
            way.add(one)
        round_ += 1
        await asyncio.sleep(0)
    assert sum(count for _, count in heard) == sum(rounds)
    return heard


@pytest.mark.parametrize(
    ("rounds", "heard"),
    [
        ((1,), [(2, 1)]),
        ((8,), [(2, 8)]),
        ((2, 1), [(3, 3)]),
        ((2, 1, 5), [(4, 8)]),
        ((2, 0, 5), [(2, 2), (4, 5)]),
        ((_ENOUGH,), [(1, _ENOUGH)]),
        ((10_000,), [(1, 10_000)]),
    ],
)
def test_until_a_round_brings_no_other(rounds: tuple[int, ...], heard: list[tuple[int, int]]) -> None:
    assert asyncio.run(gathered(*rounds)) == heard


def test_nobody_waits_for_long_while_others_come() -> None:
    heard = asyncio.run(gathered(*[1] * 100, seconds=_LONG_ENOUGH / 4))
    assert max(count for _, count in heard) <= 5


def test_a_stream_of_requests_keeps_nobody() -> None:
    heard = asyncio.run(gathered(*[1] * 1000))
    assert max(count for _, count in heard) == _ENOUGH
