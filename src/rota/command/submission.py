"""A submit as it comes in, before anything is known to be good."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.core.after import AfterPolicy
from rota.core.artifact import MissingProducer
from rota.core.lock import LockMode


class AfterWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    job: str
    policy: AfterPolicy = AfterPolicy.SUCCESS


class LockWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: str
    mode: LockMode = LockMode.EXCLUSIVE


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job as asked for."""

    command: list[str]
    name: str | None = None
    type: str | None = None
    params: dict[str, Any] = {}
    priority: int = 0
    after: list[AfterWanted] = []
    locks: list[LockWanted] = []
    needs: list[str] = []
    produces: list[str] = []
    missing_producer: MissingProducer | None = None
    """What becomes of it when nobody is to produce what it needs; none for what the configuration says."""
    pin: str | None = None
    """`main` for the head as it is now, `main@<oid>` for a given one."""
    pools: dict[str, int] = {}
    flow: str | None = None
    phase: str | None = None
    parallelizable: bool = False
    """Whether it may run beside others of its phase and flow."""
    unique: str | None = None
    target: str | None = None
    delay: str | None = None
    timeout: str | None = None
    idle_timeout: str | None = None
    skip_if: str | None = None
    retries: int | None = None
    retry: str | None = None
    cwd: str | None = None
    worktree: bool = False
    base: str | None = None
    patch: bool = False
    with_diff: bool = False
    env: dict[str, str] = {}
    inherit_env: bool = True
    """Whether `env` goes on top of the scheduler's own environment; the CLI sends the caller's whole."""
    local: str | None = None
    """In a batch, the name by which the others can say `after` before it has an id."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What a job gets that does not bring its own."""

    cwd: str
    variables: Mapping[str, str]
