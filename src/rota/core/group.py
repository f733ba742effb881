"""The group: what its members' chains come to together (INV-006), and what a failure does to the others (DEC-012).

    a member's chain is spent, circuit-broken or BLOCKED ──▶ policy ──▶ of those that have not started,
                                                                        who is cancelled, skipped, goes on

A status is asked of the members and never stored. A policy is one pure object; Rota brings `stop`, `continue` and
`skip`, and a package can bring others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec

from rota.core.status import ACTIVE, Status
from rota.ids import GroupId, JobId

PREDECESSOR_FAILED = "predecessor failed"
FAILED = frozenset({Status.FAILED, Status.BLOCKED_BY_DEPENDENCY})
"""A member whose chain ended so has failed; cancelled by hand it has not."""
_SUCCEEDED = frozenset({Status.COMPLETED, Status.SKIPPED})


class GroupMode(StrEnum):
    SEQUENTIAL = "sequential"
    """Each member comes after the one before it, however that ended."""
    PARALLEL = "parallel"


class GroupStatus(StrEnum):
    QUEUED = "QUEUED"
    """Nothing has started."""
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    """Every chain COMPLETED or was SKIPPED."""
    CANCELLED = "CANCELLED"
    """As a whole."""
    PARTIAL = "PARTIAL"


OVER = frozenset({GroupStatus.COMPLETED, GroupStatus.CANCELLED, GroupStatus.PARTIAL})


class Group(msgspec.Struct, frozen=True, kw_only=True):
    id: GroupId
    name: str | None
    mode: GroupMode
    on_failure: str
    """The name of its failure policy."""
    actor: str | None
    created_at: datetime
    closed_at: datetime | None
    """It ends with its members; until then it waits for further ones."""
    cancelled_at: datetime | None
    """As a whole."""
    finished_at: datetime | None
    removed: Mapping[str, int] = {}
    """Members that are gone from the store, by the status they had."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What the last jobs of a group's chains have come to."""

    counts: Mapping[Status, int] = {}
    has_begun: bool = False

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def status_of(tally: Tally, *, is_closed: bool, is_cancelled: bool) -> GroupStatus:
    """Over only when every member is and no further one is awaited; so while one waits for its retry, it runs. Whose
    members had all succeeded before they could be cancelled has succeeded."""
    if not is_closed or any(tally.counts.get(status) for status in ACTIVE):
        return GroupStatus.RUNNING if tally.has_begun else GroupStatus.QUEUED
    if is_cancelled and not tally.total:
        return GroupStatus.CANCELLED
    if all(status in _SUCCEEDED for status, count in tally.counts.items() if count):
        return GroupStatus.COMPLETED
    return GroupStatus.CANCELLED if is_cancelled else GroupStatus.PARTIAL


class Fate(StrEnum):
    """What a failure does to a member that has not started."""

    GO_ON = "go_on"
    CANCEL = "cancel"
    SKIP = "skip"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member as a policy sees it."""

    job: JobId
    """The last of its chain."""
    sequence: int
    """Its place in the group, from 1."""
    status: Status
    is_spared: bool = False
    """It was named to come after the failed one, whether that failed or because it did: a `finished` or `failed` edge
    that somebody asked for."""


class GroupFailurePolicy(Protocol):
    """What becomes of those that have not started when a member has failed."""

    def fates(self, failed: Member, waiting: Sequence[Member]) -> Mapping[JobId, Fate]:
        """By job; who is not in it goes on. Pure: it is asked inside the transaction that books the failure."""
        ...


class Stop(msgspec.Struct, frozen=True):
    def fates(self, failed: Member, waiting: Sequence[Member]) -> Mapping[JobId, Fate]:  # noqa: ARG002
        return {member.job: Fate.CANCEL for member in waiting if not member.is_spared}


class Skip(msgspec.Struct, frozen=True):
    def fates(self, failed: Member, waiting: Sequence[Member]) -> Mapping[JobId, Fate]:  # noqa: ARG002
        return {member.job: Fate.SKIP for member in waiting if not member.is_spared}


class Continue(msgspec.Struct, frozen=True):
    def fates(self, failed: Member, waiting: Sequence[Member]) -> Mapping[JobId, Fate]:  # noqa: ARG002
        return {}


POLICIES: Mapping[str, GroupFailurePolicy] = {"stop": Stop(), "continue": Continue(), "skip": Skip()}
DEFAULT = "stop"


def sort_fates(
    policy: GroupFailurePolicy, failed: Member, waiting: Sequence[Member]
) -> tuple[frozenset[JobId], frozenset[JobId]]:
    """Who is cancelled and who is skipped, of those that it was asked about. What a policy says that is no fate raises,
    as one that cannot decide does."""
    fates = {job: Fate(fate) for job, fate in policy.fates(failed, waiting).items()}
    asked = [member.job for member in waiting]
    cancelled = frozenset(job for job in asked if fates.get(job) is Fate.CANCEL)
    return cancelled, frozenset(job for job in asked if fates.get(job) is Fate.SKIP)
