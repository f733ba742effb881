"""Direct executions as people and programs see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.core.slot import Slot, SlotState
from rota.core.status import Status
from rota.core.verdict import Wait
from rota.core.wait import WaitKind
from rota.engine.dispatch import choose
from rota.engine.slot import directory_of
from rota.ids import SlotId, show_slot
from rota.store.session import Looking
from rota.view.job import Sight
from rota.view.why import obstacles
from rota.wire.job import lock_form, wait_form
from rota.wire.slot import SlotForm


def listing(
    reader: Looking, sight: Sight, *, behind: int = 0, limit: int = 1000
) -> tuple[list[SlotForm], str | None]:  # fmt: skip
    """Those that wait or run, in order of arrival, and the last of them where there are more."""
    found = reader.open_slots_behind(behind, limit + 1)
    waits = _waits(reader, found, sight)
    forms = [_form(reader, slot, sight, waits.get(slot.id)) for slot in found[:limit]]
    return forms, forms[-1].id if len(found) > limit else None


def show(reader: Looking, slot: SlotId, sight: Sight) -> SlotForm:
    found = reader.slot(slot)
    if found is None:
        raise reader.no_such_slot(slot)
    return _form(reader, found, sight, _waits(reader, [found], sight).get(slot))


def _waits(reader: Looking, slots: Sequence[Slot], sight: Sight) -> Mapping[SlotId, Wait]:
    """Said by the plan itself: what is explained is what happens."""
    if not any(slot.state is SlotState.WAITING for slot in slots):
        return {}
    return choose(reader, sight.limits, sight.batch_size, holds=sight.holds).slot_waits


def _held(sight: Sight) -> Wait | None:
    """By what holds everything, whatever the gates say."""
    if sight.held_by is None:
        return None
    return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=sight.held_by)


def _form(reader: Looking, slot: Slot, sight: Sight, wait: Wait | None) -> SlotForm:
    wait = (_held(sight) or wait) if slot.state is SlotState.WAITING else None
    directory = directory_of(sight.jobs.parent, slot.id)
    logs = ("stdout", "stderr") if slot.command is not None else ()
    return SlotForm(
        id=show_slot(slot.id),
        status=slot.shown,
        ready=slot.state in (SlotState.STARTING, SlotState.RUNNING),
        name=slot.name,
        command=slot.command,
        type=slot.type,
        flow=slot.flow,
        target=slot.target,
        locks=[lock_form(lock) for lock in slot.locks],
        pools=slot.draws,
        attended=slot.is_attended,
        actor=slot.actor,
        created_at=slot.created_at,
        started_at=slot.started_at,
        finished_at=slot.finished_at,
        exit_code=slot.exit_code,
        reason=slot.reason,
        pid=slot.pid,
        worker=slot.worker,
        wait=None if wait is None else wait_form(wait),
        why=None if wait is None else f"{wait.detail}{obstacles(reader, wait, slot.locks)}",
        log_paths={stream: f"{directory}/{stream}.log" for stream in logs},
    )
