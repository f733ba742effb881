"""Each point once, on one load."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.ground import Ground
from crash.judge import Judge
from crash.point import POINTS


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path)
    yield ground
    ground.close()


def test_killed_at_every_named_point(ground: Ground) -> None:
    ground.begin()
    for point in POINTS:
        began = time.monotonic()
        ground.strike(point)
        print(f"{time.monotonic() - began:6.2f} {point.name}", flush=True)
    began = time.monotonic()
    ground.drain()
    print("drained", time.monotonic() - began)
    verdict = Judge(ground).verdict()
    print(verdict)
    assert verdict.is_good, verdict.faults
