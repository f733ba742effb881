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
    """A direct execution: a place in the pools, and what became of it."""

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
    """Of its command, once that is known to run."""
    worker: str | None
    """Who ran it."""
    wait: WaitForm | None
    """Why its turn has not come."""
    why: str | None
    """The same for people, with who is in the way."""
    log_paths: dict[str, str]
    """Where the files are that its command writes to, by stream."""


class ReservedForm(SlotForm, frozen=True, kw_only=True):
    """A slot that was just reserved."""

    warning: str | None


class SlotsForm(msgspec.Struct, frozen=True, kw_only=True):
    """A page of slots that wait or run, in order of arrival."""

    slots: list[SlotForm]
    """Those of this page."""
    next: str | None
    """The `cursor` of the page after this; null when this is the last."""


class CutForm(msgspec.Struct, frozen=True, kw_only=True):
    """Of each stream, whether it was longer than what is shown of it."""

    stdout: bool
    """Whether stdout was."""
    stderr: bool
    """Whether stderr was."""


class DirectForm(msgspec.Struct, frozen=True, kw_only=True):
    """A direct execution that has ended, with the end of what it wrote."""

    slot: SlotForm
    """The place that it ran in, with how it ended."""
    stdout: str
    """The last 64 KiB of what it wrote there; what is not UTF-8 is replaced."""
    stderr: str
    """The same of stderr."""
    truncated: CutForm
    """Whether there is more in the files."""
    warning: str | None
