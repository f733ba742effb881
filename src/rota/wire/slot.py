"""Direct executions as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.wire.job import LockForm, WaitForm

SlotStatus = Annotated[
    str, Meta(extra_json_schema={"enum": ["WAITING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]})
]


class SlotForm(msgspec.Struct, frozen=True, kw_only=True):
    """A direct execution: a place to run now, before the queue."""

    id: str
    status: SlotStatus
    ready: bool
    """Its turn has come, and it has not ended."""
    name: str | None
    command: Sequence[str] | None
    """Null where the program that asked does the work itself."""
    type: str | None
    flow: str | None
    target: str | None
    locks: list[LockForm]
    """What it locks while it runs."""
    pools: Mapping[str, int]
    """What it takes from which pools while it runs."""
    attended: bool
    """It hangs on a connection of its client."""
    actor: str | None
    """Who asked for it."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    reason: str | None
    pid: int | None
    """The process group that it runs as."""
    worker: str | None
    """Whose place it has; null before its turn."""
    wait: WaitForm | None
    """Why its turn has not come; null when it has."""
    why: str | None
    """The same for people, with who is in the way."""
    log_paths: dict[str, str]
    """Where `stdout` and `stderr` are on the scheduler's machine."""


class ReservedForm(SlotForm, frozen=True, kw_only=True):
    """A slot that was just reserved."""

    warning: str | None


class SlotsForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of slots that wait or run, in order of arrival."""

    slots: list[SlotForm]
    """In order of arrival."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""


class CutForm(msgspec.Struct, frozen=True, kw_only=True):
    """Of each stream, whether it was longer than what is shown of it."""

    stdout: bool
    """Of stdout."""
    stderr: bool
    """Of stderr."""


class DirectForm(msgspec.Struct, frozen=True, kw_only=True):
    """A direct execution that has ended, with the end of what it wrote."""

    slot: SlotForm
    """The execution as it ended."""
    stdout: str
    """What it wrote to stdout; bytes that are no text stand as U+FFFD."""
    stderr: str
    """What it wrote to stderr."""
    truncated: CutForm
    """Whether there was more of either; `log_paths` of the slot has it all."""
    warning: str | None
