"""Who has a client: what does not need a scheduler. The rest is in `e2e/test_slot.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from rota.api import presence
from rota.api.presence import COME_BACK, Hold, Presence
from rota.config import Direct
from rota.core.slot import Slot
from rota.errors import NotFound, StorageFull
from rota.ids import SlotId

ONE = SlotId(1)


def slot(number: SlotId, run: int | None = None) -> Slot:
    """One that hangs on no connection."""
    fields: dict[str, Any] = dict.fromkeys(Slot.__struct_fields__)
    return Slot(**{**fields, "id": number, "run": run, "is_attended": False})


class Desk:
    """Takes what is asked of the engine, and refuses it as often as it is told to."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.asked = 0
        self.done = asyncio.Event()

    async def perform(self, _act: Callable[[Any], Any], /) -> None:
        self.asked += 1
        if self.refusals:
            raise self.refusals.pop(0)
        self.done.set()

    def presence(self, **direct: timedelta) -> Presence:
        return Presence(self.perform, lambda: Direct(**direct))


async def is_quiet(desk: Desk) -> bool:
    """Whether nothing was asked by now: what is under way has had its turns."""
    for _ in range(10):
        await asyncio.sleep(0)
    return desk.asked == 0


def test_a_withdrawal_that_cannot_be_stored_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must not leave a place taken for good."""
    monkeypatch.setattr(presence, "AGAIN_AFTER", 0.0)

    async def story() -> int:
        desk = Desk(StorageFull("the disk is full"), StorageFull("the disk is full"))
        there = desk.presence()
        with there.attending(ONE, Hold()):
            pass
        await asyncio.wait_for(desk.done.wait(), 20)
        return desk.asked

    assert asyncio.run(story()) == 3


def test_one_that_is_gone_altogether_is_let_be() -> None:
    async def story() -> int:
        desk = Desk(*[NotFound("no such slot")] * 9)
        with desk.presence().attending(ONE, Hold()):
            pass
        await is_quiet(desk)
        return desk.asked

    assert asyncio.run(story()) == 1


def test_when_the_scheduler_ends_a_broken_connection_is_nobodys_doing() -> None:
    async def story() -> bool:
        desk = Desk()
        there = desk.presence(lease=timedelta(microseconds=1), wait=timedelta(microseconds=1))
        with there.attending(ONE, Hold()):
            there.close()
        return await is_quiet(desk)

    assert asyncio.run(story())


def test_what_has_ended_need_not_be_withdrawn() -> None:
    async def story() -> bool:
        desk = Desk()
        there, hold = desk.presence(), Hold()
        with there.attending(ONE, hold):
            hold.is_over = True
        return await is_quiet(desk)

    assert asyncio.run(story())


def test_the_first_of_two_connections_may_go() -> None:
    async def story() -> tuple[bool, int]:
        desk = Desk()
        there = desk.presence()
        with there.attending(ONE, Hold()):
            with there.attending(ONE, Hold()):
                pass
            is_kept = await is_quiet(desk)
        await asyncio.wait_for(desk.done.wait(), 20)
        return is_kept, desk.asked

    assert asyncio.run(story()) == (True, 1)


def test_after_a_start_there_is_a_while_to_come_back() -> None:
    async def story() -> list[float]:
        there = Desk().presence(lease=timedelta(hours=9))
        loop, back, renewed, away, alone = asyncio.get_running_loop(), *map(SlotId, (1, 2, 3, 4))
        with there.attending(back, Hold()):
            there.hear(renewed)
            there.adopt([slot(back), slot(renewed), slot(away), slot(alone, run=7)])
            silences = {slot: timer.when() - loop.time() for slot, timer in there._silences.items()}
            there.close()
        return [silences.get(slot, -1.0) for slot in (back, renewed, away, alone)]

    back, renewed, away, alone = asyncio.run(story())
    assert back == -1.0, "a connection has no lease"
    assert renewed > 3600
    assert 0 < away <= COME_BACK.total_seconds()
    assert alone > 3600, "it runs a command, and never hung on a connection"


def test_the_wait_is_what_was_asked_for_or_what_is_configured() -> None:
    async def story() -> list[float | None]:
        there = Desk().presence(wait=timedelta(hours=2))
        there.expect(SlotId(1))
        there.expect(SlotId(2), timedelta(hours=1))
        left = [there.time_left(SlotId(number)) for number in (1, 2, 3)]
        there.close()
        return left

    configured, asked, unknown = asyncio.run(story())
    assert configured == pytest.approx(7200, abs=60)
    assert asked == pytest.approx(3600, abs=60)
    assert unknown is None
