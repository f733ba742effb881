"""What a gate answers."""

from __future__ import annotations

import msgspec

from rota.core.fact import Fact
from rota.core.status import Status
from rota.core.wait import WaitKind


class Pass(msgspec.Struct, frozen=True):
    """Yes: ask the next gate."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Not yet: the status it gives, why, and the topics that could change it."""

    status: Status
    kind: WaitKind
    detail: str
    on: tuple[str, ...] = ()


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Never: the job is BLOCKED_BY_DEPENDENCY."""

    detail: str


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    """Not needed: the job is SKIPPED without a run."""

    reason: str


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """It cannot be told before somebody has looked outside: the job stays where it stands until then."""

    facts: tuple[Fact, ...]
    meanwhile: Wait
    """What is said to whoever asks before that."""


Verdict = Pass | Wait | Block | Skip | Unknown
PASS = Pass()
