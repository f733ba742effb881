"""The verbs of a direct execution: reserve its place, release it, give it up, pass a signal on."""

from __future__ import annotations

import signal as signals
from typing import Any

import msgspec

from rota.command.expand import expand, find_usable
from rota.command.field import check_fields
from rota.command.submission import LockWanted, Submission, Surroundings
from rota.command.submit import Checker, phase_lock_of
from rota.core.run import CANCELLED, Conclusion
from rota.core.slot import Slot, SlotState
from rota.core.status import Status
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, WaitOver
from rota.executor.port import Signal, Stop
from rota.ids import SlotId, show_slot
from rota.store.session import Looking
from rota.store.slot import NewSlot
from rota.wire.text import AbsolutePath, Called, Name, Span, Title, Weight

PASSED_ON = frozenset({
    signals.SIGHUP, signals.SIGINT, signals.SIGQUIT, signals.SIGTERM, signals.SIGUSR1, signals.SIGUSR2,
    signals.SIGCONT, signals.SIGWINCH,
})  # fmt: skip
"""What a terminal or a person sends a program. Whoever wants it dead cancels it."""


class SlotWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A direct execution as asked for."""

    command: list[str] | None = None
    """Left out where the program that asks does the work itself, or where a template brings it."""
    template: Called | None = None
    """By name or id."""
    params: dict[str, Any] = {}
    """Whatever its template asks for; the command has them as `ROTA_PARAMS`."""
    name: Title | None = None
    """What people call it."""
    type: Name | None = None
    """What kind of work it is: pools go by it."""
    flow: Name | None = None
    """The flow that it is a step of."""
    target: Name | None = None
    """What it works on."""
    pools: dict[str, Weight] = {}
    """What it takes from which pools while it runs, beyond what type, flow and target say."""
    locks: list[LockWanted] = []
    """What it locks while it runs."""
    timeout: Span | None = None
    """How long its command may run."""
    idle_timeout: Span | None = None
    """How long its command may run without a word on stdout or stderr."""
    cwd: AbsolutePath | None = None
    """The directory that it runs in, as an absolute path; the scheduler's own if none is given."""
    env: dict[str, str] = {}
    """Environment variables."""
    inherit_env: bool = True
    """Whether `env` goes on top of the scheduler's own environment; the CLI sends the caller's whole."""
    env_given: list[str] = []
    """Which of `env` were asked for by name, where it has the caller's whole: these win over a template's."""


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    slot: SlotId
    warnings: list[str]


def expand_slot(looking: Looking, wanted: SlotWanted) -> SlotWanted:
    """It draws like a job of its template and runs what that would run. What only a place in the queue gives does not
    apply; a worktree cannot be left out, for then the command would work on what is not its own."""
    assert wanted.template is not None  # noqa: S101 - the caller has looked
    template = find_usable(looking, wanted.template)
    if template.body.worktree or template.body.patch:
        what = "in a worktree of its own" if template.body.worktree else "with a patch of what it changes"
        raise InvalidInput(
            f"a job of template {template.name} runs {what}, which a direct execution does not have: submit it instead"
        ).under(".template")
    asked = msgspec.structs.asdict(wanted)
    made = expand(Submission(**{**asked, "command": wanted.command or []}), template)
    fields = {name: getattr(made, name) for name in SlotWanted.__struct_fields__}
    phase = phase_lock_of(made)
    return SlotWanted(
        **{
            **fields,
            "template": None,
            "name": made.name or template.name,
            "locks": [*made.locks, *(() if phase is None else (LockWanted(key=phase.key),))],
        }
    )


def reserve(
    work: Work, wanted: SlotWanted, around: Surroundings, *, actor: str, is_attended: bool = False
) -> Reserved:  # fmt: skip
    """Its place in the order is that of its arrival, before the whole queue. It is checked by the rules of a submit."""
    if wanted.command is None and (wanted.timeout or wanted.idle_timeout):
        said = "timeouts are for a command that Rota runs; leave them out, or name the command"
        raise InvalidInput(said).under(".timeout" if wanted.timeout else ".idle_timeout")
    checker = Checker(work, around)
    asked = Submission(
        **{
            **msgspec.structs.asdict(wanted),
            "command": ["true"] if wanted.command is None else wanted.command,
            "env": {**wanted.env, "ROTA_PARAMS": msgspec.json.encode(wanted.params).decode()}
            if wanted.params
            else wanted.env,
        }
    )
    check_fields(asked)
    spec = checker.spec(asked)
    draws = checker.draws_of(spec)
    runs = wanted.command is not None
    new = NewSlot(
        name=spec.name,
        command=spec.command if runs else None,
        cwd=spec.cwd if runs else None,
        surroundings=spec.surroundings if runs else None,
        type=spec.type,
        flow=spec.flow,
        target=spec.target,
        draws=draws,
        locks=spec.locks,
        trace=spec.trace if runs else {},
        timeout=spec.timeout,
        idle_timeout=spec.idle_timeout,
        is_attended=is_attended,
    )
    slot = work.session.reserve(new, work.now, actor)
    work.has_slots = True
    return Reserved(slot=slot, warnings=list(checker.warnings))


def release(work: Work, slot: SlotId, *, actor: str) -> SlotId:
    """The program that had the place has done its work."""
    found = _find(work, slot)
    if found.state is SlotState.ENDED:
        return slot
    if found.state is SlotState.WAITING:
        return withdraw(work, slot, reason="released before its turn", actor=actor)
    if found.command is not None:
        raise Conflict(f"{show_slot(slot)} runs a command; it is free when that has ended: cancel it, or wait")
    work.session.end_slot(slot, Conclusion(status=Status.COMPLETED, exit_code=0, reason=None), work.now, actor)
    return slot


def withdraw(work: Work, slot: SlotId, *, reason: str, actor: str | None = None) -> SlotId:
    """It is not wanted any more. What runs is asked to end, and is CANCELLED when it is gone."""
    found = _find(work, slot)
    if found.state is SlotState.ENDED:
        return slot
    if found.run is None:
        end = Conclusion(status=Status.CANCELLED, exit_code=CANCELLED, reason=reason)
        work.session.end_slot(slot, end, work.now, actor)
    else:
        work.session.stop_slot(slot, reason, work.now, actor)
        work.orders.append(Stop(run=found.run, kill_after=work.settings.kill_after.total_seconds()))
    return slot


def lapse(work: Work, slot: SlotId, *, reason: str) -> SlotId:
    """Its client is silent. What runs a command is used until its process is gone, however long."""
    return slot if _find(work, slot).run is not None else withdraw(work, slot, reason=reason)


def come_back(work: Work, slot: SlotId) -> SlotId:
    """Its client is there again, after the scheduler was started anew."""
    work.returned.add(_find(work, slot).id)
    return slot


def give_up(work: Work, slot: SlotId, *, reason: str) -> SlotId:
    """Its turn did not come in time. One whose turn has come stays."""
    if _find(work, slot).state is SlotState.WAITING:
        end = Conclusion(status=Status.CANCELLED, exit_code=WaitOver.exit_code, reason=reason)
        work.session.end_slot(slot, end, work.now)
    return slot


def pass_on(work: Work, slot: SlotId, number: int) -> SlotId:
    """A signal for what runs."""
    if number not in PASSED_ON:
        names = ", ".join(sorted(each.name for each in PASSED_ON))
        raise InvalidInput(f"signal {number} is not passed on; those that are: {names}").under(".signal")
    found = _find(work, slot)
    if found.state in (SlotState.WAITING, SlotState.ENDED) or found.run is None:
        raise Conflict(f"{show_slot(slot)} runs no command now ({found.shown}); nothing was sent")
    work.orders.append(Signal(run=found.run, number=number))
    return slot


def _find(work: Work, slot: SlotId) -> Slot:
    found = work.session.slot(slot)
    if found is None:
        raise work.session.no_such_slot(slot)
    return found
