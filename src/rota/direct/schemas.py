"""JSON representations of direct executions.

A reservation is the record; a direct execution is the work done under it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from rota.jobs.schemas import LockView, WaitReason

ReservationStatusText = Annotated[
    str, Meta(extra_json_schema={"enum": ["WAITING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]})
]


class ReservationView(msgspec.Struct, frozen=True, kw_only=True):
    """A direct execution: a reservation that runs ahead of the queue."""

    id: str
    """Id of the reservation."""
    status: ReservationStatusText
    """Status of the direct execution."""
    ready: bool
    """Whether the direct execution may run: it has started and has not ended."""
    name: str | None
    """Display name; `null` if there is none."""
    command: Sequence[str] | None
    """Program and arguments; `null` if the client does the work itself."""
    type: str | None
    """Kind of work; it has a pool and a breaker."""
    flow: str | None
    """Flow that the direct execution is a step of; `null` if there is none."""
    target: str | None
    """Target that the direct execution works on; `null` if there is none."""
    locks: list[LockView]
    """Locks that are held while it runs."""
    pools: Mapping[str, int]
    """Capacity taken from each pool while it runs."""
    has_client: bool
    """Whether the reservation is tied to an open connection of its client."""
    actor: str | None
    """User or client that requested the reservation; `null` if unknown."""
    created_at: datetime
    """Time at which the reservation was created."""
    started_at: datetime | None
    """Time at which it started; `null` until then."""
    finished_at: datetime | None
    """Time at which it ended; `null` until then."""
    exit_code: int | None
    """Exit code of the command; `null` if there is none."""
    reason: str | None
    """Reason for the outcome; `null` if there is none."""
    pid: int | None
    """Id of the process group of the command; `null` if it is not running."""
    worker: str | None
    """Name of the assigned worker; `null` until it starts."""
    wait: WaitReason | None
    """Reason that it has not started; `null` once it has."""
    explanation: str | None
    """Description of the wait, including what blocks it; `null` once it has started."""
    log_paths: dict[str, str]
    """Paths of `stdout` and `stderr` on the scheduler's machine."""


class ReserveResult(ReservationView, frozen=True, kw_only=True):
    """A reservation that was just created."""

    warning: str | None
    """Warning about the reservation; `null` if there is none."""


class ReservationPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of waiting and running direct executions, in order of arrival."""

    reservations: list[ReservationView]
    """Direct executions, in order of arrival."""
    next: str | None


class Truncation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether each stream is longer than the returned text."""

    stdout: bool
    """Whether stdout is truncated."""
    stderr: bool
    """Whether stderr is truncated."""


class DirectResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a direct execution, with the end of its output."""

    reservation: ReservationView
    """The ended direct execution."""
    stdout: str
    """End of stdout. Invalid UTF-8 is replaced by U+FFFD."""
    stderr: str
    """End of stderr. Invalid UTF-8 is replaced by U+FFFD."""
    truncated: Truncation
    """Whether each stream is truncated. The files in `log_paths` are complete."""
    warning: str | None
    """Warning about the direct execution; `null` if there is none."""
