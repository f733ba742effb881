"""The sample of the crash matrix that `make test` takes: each point once, and a short walk on each database.

`make soak ROUNDS=100` takes more of it: each point with one and with both killed, at any pass, on both databases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crash.ground import LOADS, Ground
from crash.judge import Judge
from crash.point import POINTS
from crash.server import restarted
from postgres_server import own_server
from sample import sample


@pytest.fixture
def make_ground(tmp_path: Path) -> Iterator[Callable[..., Ground]]:
    made: list[Ground] = []

    def make(url: str | None = None, seed: int = 1) -> Ground:
        ground = Ground(tmp_path, url=url, seed=seed)
        made.append(ground)
        ground.begin()
        return ground

    yield make
    for ground in made:
        ground.close()


def judge(ground: Ground) -> None:
    ground.wait_for_work(20)
    ground.drain()
    verdict = Judge(ground).verdict()
    assert verdict.is_good, verdict.faults


def test_killed_at_every_named_point(make_ground: Callable[..., Ground]) -> None:
    ground = make_ground()
    for load in LOADS:  # the brief one first: what is left of the other would keep anything from being given ahead
        ground.put_under(load)
        for point in POINTS:
            if point.load == load:
                ground.strike(point)
    judge(ground)


def test_killed_at_any_moment(make_ground: Callable[..., Ground]) -> None:
    ground = make_ground()
    ground.put_under("mixed")
    ground.roam(sample(6))
    judge(ground)


def test_killed_at_any_moment_while_the_server_is_restarted(make_ground: Callable[..., Ground]) -> None:
    with own_server() as server:
        ground = make_ground(server.url())
        ground.put_under("mixed")
        with restarted(server) as restarts:
            ground.roam(sample(6))
        judge(ground)
        assert restarts.count
