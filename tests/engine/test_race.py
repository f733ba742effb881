"""Cancel, completion and crash in every order: the end is decided once, and all that comes behind it changes nothing.

What the child really did is fixed; only who hears of it when is not. A true result stands though somebody asked for
a stop, and a stop cancels only what it ended.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from harness import Raw, Scheduler
from rota.core.status import TERMINAL, Status
from rota.errors import Conflict
from rota.executor.port import Account, Exited, Started
from rota.ids import JobId, RunId

ENDS: dict[str, tuple[dict[str, Any], Status, int]] = {
    "completed": ({"code": 0}, Status.COMPLETED, 0),
    "failed": ({"code": 3}, Status.FAILED, 3),
    "timed out": ({"signal": 15, "ended_by": "timeout"}, Status.FAILED, 124),
    "silent": ({"signal": 9, "ended_by": "idle_timeout"}, Status.FAILED, 124),
    "stopped": ({"signal": 15, "ended_by": "stop"}, Status.CANCELLED, 143),
    "stopped, and it left with 0": ({"code": 0, "ended_by": "stop"}, Status.CANCELLED, 143),
}
ORDERS = [(*order, "end") for order in permutations(["start", "cancel", "end", "crash"])]
"""An end is told until it is acknowledged, so it may be told again."""


def happens(order: tuple[str, ...], name: str) -> bool:
    """A supervisor stops only what it was asked to stop."""
    return not name.startswith("stopped") or order.index("cancel") < order.index("end")


class Play:
    """One job, and what happens to it."""

    def __init__(self, scheduler: Scheduler, end: dict[str, Any]) -> None:
        self.scheduler = scheduler
        self.job: JobId = scheduler.submit(timeout="1m", idle_timeout="1m")
        self.run: RunId = scheduler.run_of(self.job)
        self.exited = Exited(run=self.run, at=scheduler.clock.moment.timestamp(), **end)
        self.has_ended = False

    def start(self) -> None:
        self.scheduler.say(Started(run=self.run, pid=7, start_time=1))

    def end(self) -> None:
        self.has_ended = True
        self.scheduler.say(self.exited)

    def crash(self) -> None:
        """The supervisor tells again what was acknowledged just as the scheduler died."""
        alive = None if self.has_ended else 7
        self.scheduler.crash([Account(run=self.run, pid=alive, has_ended=self.has_ended)])
        if self.has_ended:
            self.scheduler.say(self.exited)

    def cancel(self) -> None:
        is_over = self.scheduler.status(self.job) in TERMINAL - {Status.CANCELLED}
        try:
            self.scheduler.cancel(self.job)
        except Conflict:
            assert is_over
        else:
            assert not is_over


@pytest.mark.parametrize("name", ENDS)
def test_the_end_is_decided_once_in_whatever_order_it_is_heard_of(wide: Scheduler, raw: Raw, name: str) -> None:
    """LESSONS: a COMPLETED run was overwritten to FAILED; a fast child's end was overwritten by its start."""
    end, status, exit_code = ENDS[name]
    for order in ORDERS:
        if not happens(order, name):
            continue
        play = Play(wide, end)
        outcome = None
        for act in order:
            getattr(play, act)()
            found = wide.job(play.job)
            now = (found.status, found.exit_code, found.reason, found.finished_at, found.run)
            assert (found.status in TERMINAL) is play.has_ended, order
            assert outcome in (None, now), order
            outcome = now if play.has_ended else None
        assert found.run is not None
        assert (found.status, found.exit_code) == (found.run.status, found.run.exit_code) == (status, exit_code), order
        kinds = [kind for (kind,) in raw(f"SELECT kind FROM event WHERE job = {play.job} ORDER BY seq")]
        assert [kind for kind in kinds if kind in {f"job.{each.lower()}" for each in TERMINAL}] == [kinds[-1]], order
        assert wide.started().count(play.job) <= 1, order
    assert raw("SELECT count(*) FROM run WHERE status IS NULL") == [(0,)]


@pytest.mark.parametrize("name", ENDS)
def test_nothing_has_ended_while_nobody_has_seen_it_end(scheduler: Scheduler, name: str) -> None:
    """LESSONS Processes: cancelled recorded at once though the child lived on. Its place, its lock and its status are
    free when it is gone."""
    end, status, _ = ENDS[name]
    job = scheduler.submit(timeout="1m", idle_timeout="1m", locks=["repo"])
    behind = scheduler.submit(locks=["repo"])
    scheduler.start(job)
    scheduler.cancel(job)
    for _ in range(3):
        scheduler.clock.advance(hours=1)
        scheduler.turn()
        assert scheduler.show(job).status == "RUNNING"
        assert scheduler.started() == [job]
    scheduler.end(job, end.get("code"), **{key: value for key, value in end.items() if key != "code"})
    assert scheduler.status(job) is status
    assert scheduler.started() == [job, behind]
