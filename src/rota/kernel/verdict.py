"""Verdicts of the gates, and the kinds of waiting."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rota.kernel.facts import Fact
from rota.kernel.status import Status


class WaitKind(StrEnum):
    """Gate that holds a job. The first three are stored; the others are computed on each read."""

    DEPENDENCIES = "dependencies"
    PINNED_HEAD = "pinned_head"
    LOCKS = "locks"
    DELAY = "delay"
    PAUSED = "paused"
    RESERVATION = "reservation"
    CAPACITY = "capacity"


class Pass(msgspec.Struct, frozen=True):
    """The gate is open: continue with the next gate."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """The job waits: its status, the reason, and the topics whose change can end the wait."""

    status: Status
    kind: WaitKind
    detail: str
    on: tuple[str, ...] = ()
    cannot_start: bool = False
    """Whether only a larger pool helps: the end of other jobs frees too little room."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """The job can never start: it becomes BLOCKED_BY_DEPENDENCY."""

    detail: str
    interim: Wait | None = None
    """Verdict to report until the job is evaluated, if that may take long."""


class SkipVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The job is not needed: it becomes SKIPPED without a run."""

    reason: str


class Undecided(msgspec.Struct, frozen=True, kw_only=True):
    """The gate needs facts: the job stays unchanged until they have been probed."""

    facts: tuple[Fact, ...]
    interim: Wait
    """Verdict to report until then."""


Verdict = Pass | Wait | Block | SkipVerdict | Undecided
PASS = Pass()
