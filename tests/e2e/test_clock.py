"""A wall clock that is set back under an idle scheduler."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rota
from tests.e2e.rig import Rota, eventually

pytestmark = pytest.mark.executable

_HOOK = """
import os
from datetime import timedelta

from rota.clock import SystemClock

now = SystemClock.now
SystemClock.now = lambda clock: now(clock) - timedelta(hours=os.path.exists({file!r}))
"""
"""Startup hook of Python: the clock of the scheduler is an hour late as soon as the file exists."""


@pytest.fixture
def clock_file(tmp_path: Path) -> Path:
    return tmp_path / "late"


@pytest.fixture
def rota_with_clock(make_rota: Callable[..., Rota], tmp_path: Path, clock_file: Path) -> Rota:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(_HOOK.format(file=str(clock_file)))
    source = Path(rota.__file__).parents[1]
    return make_rota(PYTHONPATH=f"{tmp_path / 'hook'}{os.pathsep}{source}")


def test_clock_set_back_is_noticed_by_an_idle_scheduler(rota_with_clock: Rota, clock_file: Path) -> None:
    job = rota_with_clock.submit("--delay", "10m", "--", "true")
    rota_with_clock.json("schedule", "add", "s", "--cron", "* * * * *", "--", "true")
    clock_file.touch()

    def is_early(time: str) -> bool:
        return datetime.fromisoformat(time) < datetime.now(UTC) - timedelta(minutes=45)

    eventually(lambda: is_early(rota_with_clock.show(job)["not_before"]), 5, description="a shorter delay")
    eventually(
        lambda: is_early(rota_with_clock.json("schedule", "list")["schedules"][0]["next_at"]),
        5,
        description="an earlier fire",
    )
