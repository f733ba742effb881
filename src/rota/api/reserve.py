"""How a place for a direct execution is asked of the engine; slots and `POST /api/direct` share it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from rota.api.context import Context
from rota.api.page import parsed
from rota.command import slot as command
from rota.command.expand import as_asked
from rota.command.slot import Reserved, SlotWanted
from rota.duration import parse_duration
from rota.engine.work import Work


class SlotAsked(SlotWanted, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A direct execution as asked for."""

    wait: str | None = None
    """How long its turn is waited for, as `30s`; left out, `[direct] wait`."""

    @property
    def wanted(self) -> SlotWanted:
        return SlotWanted(**{name: getattr(self, name) for name in SlotWanted.__struct_fields__})


class Prepared(NamedTuple):
    act: Callable[[Work], Reserved]
    wait: timedelta | None
    """How long its turn is waited for, where that was said."""


async def prepare(context: Context, asked: SlotAsked, *, is_attended: bool) -> Prepared:
    """What the engine is to do. Whoever has it done tells the presence: from there on somebody has to be there."""
    wait = parsed("wait", asked.wait, parse_duration)
    context.control.look_at_config()  # what was just written holds for what is asked after it
    await context.control.look_at_hold_file()
    wanted = asked.wanted
    if wanted.template is not None:
        wanted = await context.look(partial(command.expand_slot, wanted=wanted))
    reserve = partial(command.reserve, wanted=wanted, around=context.around, actor=context.actor)

    def act(work: Work) -> Reserved:
        with as_asked(asked):
            return reserve(work, is_attended=is_attended)

    return Prepared(act, wait)
