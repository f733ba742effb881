"""Direct executions, inside a transaction: their turn, and what the executor says of them.

They are no jobs. They share with jobs the pools, the locks, the workers and the executor, which knows a slot by a
number that no run has; so what it says of a number that is nobody's run is looked up here.
"""

from __future__ import annotations

import logging
from pathlib import Path

from rota.core.control import judge_pause
from rota.core.run import CRASH_RECOVERY, Conclusion, End, Intent, conclude
from rota.core.slot import Slot, SlotState, owner_of
from rota.core.status import Status
from rota.core.verdict import Pass
from rota.engine.work import Work
from rota.executor.port import Account, Exited, FailedToStart, Start, Stop
from rota.ids import RunId, SlotId, show_run, show_slot

log = logging.getLogger("rota.engine")

NOT_STARTED = 127
"""What a shell answers for a program it cannot start."""
NOT_CONFIRMED = "its start was not confirmed in time"


def take_places(work: Work) -> bool:
    """Those that wait stand in the queues of their locks, before every job, unless a pause holds them. Whether any
    waits."""
    slots = work.session.waiting_slots()
    pauses = work.session.pauses(holds=work.holds) if slots else None
    for slot in slots:
        if pauses is None or not slot.locks:
            continue
        is_held = not isinstance(judge_pause(pauses, slot.scopes), Pass)
        if is_held and slot.contends:
            work.session.step_aside(slot.id)
        elif not is_held and not slot.contends:
            work.session.contend(slot)
    return bool(slots)


def start_of(slot: Slot, home: str, kill_after: float) -> Start:
    """Raises where its record cannot be used."""
    if not slot.command or slot.cwd is None or slot.surroundings is None or slot.run is None:
        raise LookupError("its record cannot be read")
    return Start(
        run=slot.run,
        job=owner_of(slot.id),
        argv=slot.command,
        cwd=slot.cwd,
        surroundings=slot.surroundings,
        overlay={**slot.trace, "ROTA_HOME": home, "ROTA_SLOT": show_slot(slot.id), "ROTA_RUN": show_run(slot.run)},
        directory=directory_of(home, slot.id),
        timeout=None if slot.timeout is None else slot.timeout.total_seconds(),
        idle_timeout=None if slot.idle_timeout is None else slot.idle_timeout.total_seconds(),
        kill_after=kill_after,
    )


def directory_of(home: str | Path, slot: SlotId) -> str:
    return f"{home}/slots/{slot}"


def book_start(work: Work, run: RunId, pid: int, start_time: int) -> bool:
    """Whether it was a slot's."""
    slot = work.session.slot_of_run(run)
    if slot is None:
        return False
    work.session.confirm_slot(slot, pid, start_time, work.now)
    return True


def book_exit(work: Work, message: Exited) -> bool:
    slot = work.session.slot_of_run(message.run)
    if slot is None:
        return False
    if slot.state is SlotState.STARTING and message.ended_by == "stop" and slot.stop_requested is None:
        fail(work, slot, NOT_CONFIRMED)
        return True
    end = End(
        code=message.code, signal=message.signal, ended_by=message.ended_by, watched=message.watched, tail=message.tail
    )
    intent = Intent(stop_requested=slot.stop_requested, timeout=slot.timeout, idle_timeout=slot.idle_timeout)
    work.session.end_slot(slot.id, conclude(end, intent), work.now)
    return True


def book_failed_start(work: Work, message: FailedToStart) -> bool:
    slot = work.session.slot_of_run(message.run)
    if slot is None:
        return False
    if message.is_machine and slot.stop_requested is None:
        _return(work, slot)
    else:
        fail(work, slot, message.error)
    return True


def _return(work: Work, slot: Slot) -> None:
    """It waits again, and takes its place in the queues of its locks in this very turn: a job that wants one of them
    must not be found ready meanwhile."""
    work.session.return_slot(slot, work.now)
    work.has_slots = True


def book_refusal(work: Work, run: RunId, error: str) -> bool:
    slot = work.session.slot_of_run(run)
    if slot is None:
        return False
    fail(work, slot, f"the supervisor refused to start it: {error}")
    return True


def fail(work: Work, slot: Slot, error: str) -> None:
    """Nothing of it ran."""
    if slot.stop_requested is not None:
        end = conclude(End(ended_by="stop"), Intent(stop_requested=slot.stop_requested))
    else:
        end = Conclusion(status=Status.FAILED, exit_code=NOT_STARTED, reason=error)
    work.session.end_slot(slot.id, end, work.now)


def settle(work: Work, accounts: dict[RunId, Account]) -> int:
    """After a break with the executor: what it knows goes on, what it does not know has not been started, or is gone.
    How many are gone. The accounts of slots are taken out."""
    gone = 0
    for slot in work.session.open_slots():
        if slot.run is None:
            continue
        account = accounts.pop(slot.run, None)
        if account is not None:
            _adopt(work, slot, account)
        elif slot.state is SlotState.STARTING and slot.stop_requested is None:
            _return(work, slot)
        elif slot.state is SlotState.STARTING:
            fail(work, slot, NOT_CONFIRMED)
        else:
            lost = Conclusion(status=Status.FAILED, exit_code=1, reason=CRASH_RECOVERY)
            work.session.end_slot(slot.id, lost, work.now)
            log.warning("%s: %s", show_slot(slot.id), CRASH_RECOVERY)
            gone += 1
    return gone


def _adopt(work: Work, slot: Slot, account: Account) -> None:
    if account.pid is not None and not account.has_ended:
        work.session.confirm_slot(slot, account.pid, account.start_time or 0, work.now)
    if slot.stop_requested is not None and slot.run is not None:
        work.orders.append(Stop(run=slot.run, kill_after=work.settings.kill_after.total_seconds()))
