"""Retention collector that kills itself with SIGKILL at one of its steps, on a home without a scheduler.

python killed_collector.py HOME URL STEP WHEN; STEP is take, sync, commit or delete; WHEN is before or after
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from rota.clock import SystemClock
from rota.db.store import open_store
from rota.engine.transaction import Settings, Transaction
from rota.kernel.pools import PoolPolicy, PoolSizes
from rota.retention import collector as retention_collector
from rota.retention.trash import Trash


def main(home: Path, url: str, step: str, when: str) -> None:
    store, clock = open_store(url or home / "rota.db"), SystemClock()
    session = store.session()
    settings = Settings(
        pool_sizes=PoolSizes({}),
        policy=PoolPolicy(),
        batch_size=None,
        kill_after=timedelta(),
        start_timeout=timedelta(),
    )

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def run_in_turn(operation: Callable[[Transaction], Any]) -> Any:
        session.begin()
        result = operation(Transaction(session=session, settings=settings, now=clock.now(), random_source=lambda: 0.5))
        if (step, when) == ("commit", "before"):
            die()
        session.commit()
        if (step, when) == ("commit", "after"):
            die()
        return result

    def step_and_die(trash: Trash, *jobs: Any) -> Any:
        if jobs == ([],):  # an earlier collection left nothing behind
            return original_step(trash, *jobs)
        if when == "before":
            die()
        original_step(trash, *jobs)
        return die()

    if step != "commit":
        original_step = getattr(Trash, step)
        setattr(Trash, step, step_and_die)
    retention_collector.CHAIN_BATCH_SIZE = 2
    collector = retention_collector.RetentionCollector(
        store=store,
        jobs=home / "jobs",
        reservations=home / "reservations",
        worktrees=home / "worktrees",
        patches=home / "patches",
        clock=clock,
        run_in_turn=run_in_turn,
        flush_job_files=lambda: 2**62,
    )
    collector.collect(timedelta(), cause="gc")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
