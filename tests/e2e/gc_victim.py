"""A collection that kills itself with SIGKILL at one of its steps, on a home without a scheduler.

python gc_victim.py HOME URL STEP WHEN      STEP is take, sync, commit or delete; WHEN is before or after
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
from rota.core.pool import Limits, PoolPolicy
from rota.engine import gc
from rota.engine.trash import Trash
from rota.engine.work import Settings, Work
from rota.store.open import open_store


def main(home: Path, url: str, step: str, when: str) -> None:
    store, clock = open_store(url or home / "rota.db"), SystemClock()
    session = store.session()
    settings = Settings(
        limits=Limits({}), policy=PoolPolicy(), batch_size=None, kill_after=timedelta(), start_timeout=timedelta()
    )

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def perform(act: Callable[[Work], Any]) -> Any:
        session.begin()
        result = act(Work(session, settings, clock.now(), lambda: 0.5))
        if (step, when) == ("commit", "before"):
            die()
        session.commit()
        if (step, when) == ("commit", "after"):
            die()
        return result

    def dying(trash: Trash, *jobs: Any) -> Any:
        if jobs == ([],):  # nothing was left from before
            return doing(trash, *jobs)
        if when == "before":
            die()
        doing(trash, *jobs)
        return die()

    if step != "commit":
        doing = getattr(Trash, step)
        setattr(Trash, step, dying)
    gc.BATCH = 2
    collector = gc.Collector(
        store=store,
        jobs=home / "jobs",
        slots=home / "slots",
        worktrees=home / "worktrees",
        patches=home / "patches",
        clock=clock,
        perform=perform,
        settle=lambda: 2**62,
    )
    collector.collect(timedelta(), cause="gc")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
