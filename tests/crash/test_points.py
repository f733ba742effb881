"""The part of the crash matrix that `make test` runs: each point once, and a few random kills on each database.

`make soak ROUNDS=100` runs more: each point with one and with both processes killed, at later passes, on both
databases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.judge import Judge
from tests.crash.point import POINTS
from tests.crash.rig import LOADS, CrashRig
from tests.crash.server import restart_repeatedly
from tests.postgres_server import own_server
from tests.sample import sample


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., CrashRig]]:
    rigs: list[CrashRig] = []

    def make(url: str | None = None, seed: int = 1) -> CrashRig:
        rig = CrashRig(tmp_path, url=url, seed=seed)
        rigs.append(rig)
        rig.start()
        return rig

    yield make
    for rig in rigs:
        rig.close()


def assert_no_faults(rig: CrashRig) -> None:
    rig.wait_for_children(20)
    rig.drain()
    verdict = Judge(rig).verdict()
    assert verdict.is_good, verdict.faults


def test_kills_at_every_named_point_lose_nothing(make_rig: Callable[..., CrashRig]) -> None:
    rig = make_rig()
    for load in LOADS:  # the short load first: jobs left by the mixed one would prevent prefetching
        rig.start_load(load)
        for point in POINTS:
            if point.load == load:
                rig.kill_at(point)
    assert_no_faults(rig)


def test_kills_at_random_moments_lose_nothing(make_rig: Callable[..., CrashRig]) -> None:
    rig = make_rig()
    rig.start_load("mixed")
    rig.kill_at_random(sample(6))
    assert_no_faults(rig)


def test_kills_during_database_restarts_lose_nothing(make_rig: Callable[..., CrashRig]) -> None:
    with own_server() as server:
        rig = make_rig(server.url())
        rig.start_load("mixed")
        with restart_repeatedly(server) as restarter:
            rig.kill_at_random(sample(6))
        assert_no_faults(rig)
        assert restarter.count
