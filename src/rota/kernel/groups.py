"""The group: the combined status of its members' chains (INV-006), and the effect of a failure on the other members
(DEC-012).

    a member's chain is exhausted, circuit-broken or BLOCKED ──▶ policy ──▶ outcome of each member that has not
                                                                            started: cancel, skip or continue

The status is computed from the members and never stored. A policy is a pure object. Rota includes `stop`, `continue`
and `skip`; a plugin package can add others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

import msgspec

from rota.ids import GroupId, JobId
from rota.kernel.status import ACTIVE, Status

PREDECESSOR_FAILED = "predecessor failed"
FAILED_STATUSES = frozenset({Status.FAILED, Status.BLOCKED_BY_DEPENDENCY})
"""Statuses of a failed member. A member that was cancelled by a user has not failed."""
_SUCCEEDED = frozenset({Status.COMPLETED, Status.SKIPPED})


class GroupMode(StrEnum):
    SEQUENTIAL = "sequential"
    """Each member comes after the previous member, whatever its outcome."""
    PARALLEL = "parallel"


class GroupStatus(StrEnum):
    QUEUED = "QUEUED"
    """No member has started."""
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    """Every chain COMPLETED or was SKIPPED."""
    CANCELLED = "CANCELLED"
    """Cancelled as a whole."""
    PARTIAL = "PARTIAL"


FINISHED_STATUSES = frozenset({GroupStatus.COMPLETED, GroupStatus.CANCELLED, GroupStatus.PARTIAL})


class Group(msgspec.Struct, frozen=True, kw_only=True):
    id: GroupId
    name: str | None
    mode: GroupMode
    on_failure: str
    """Name of the failure policy."""
    actor: str | None
    created_at: datetime
    closed_at: datetime | None
    """Time from which no job can join. An open group waits for further members; a closed group ends with its
    members."""
    cancelled_at: datetime | None
    """Time when the group was cancelled as a whole."""
    finished_at: datetime | None
    removed: Mapping[str, int] = {}
    """Number of members that retention removed, by status."""
    unreadable: str | None = None
    """Error that makes the stored record unusable, if any."""


class GroupCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Number of chains in each status, by the last job of each chain."""

    counts: Mapping[Status, int] = {}
    has_started: bool = False

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def group_status(counts: GroupCounts, *, is_closed: bool, is_cancelled: bool) -> GroupStatus:
    """Return the status of a group.

    A group is finished only when every member has ended and no further member can join, so it is RUNNING while a member
    waits for its retry. A cancelled group whose members had all succeeded before is COMPLETED.
    """
    if not is_closed or any(counts.counts.get(status) for status in ACTIVE):
        return GroupStatus.RUNNING if counts.has_started else GroupStatus.QUEUED
    if is_cancelled and not counts.total:
        return GroupStatus.CANCELLED
    if all(status in _SUCCEEDED for status, count in counts.counts.items() if count):
        return GroupStatus.COMPLETED
    return GroupStatus.CANCELLED if is_cancelled else GroupStatus.PARTIAL


class MemberOutcome(StrEnum):
    """Effect of a failure on a member that has not started."""

    CONTINUE = "continue"
    CANCEL = "cancel"
    SKIP = "skip"


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member, as input of a failure policy."""

    job: JobId
    """Last job of the chain."""
    sequence: int
    """Position in the group, from 1."""
    status: Status
    is_exempt: bool = False
    """Whether the member was explicitly requested to follow the failed member, by a `finished` or `failed` edge."""


class GroupFailurePolicy(Protocol):
    """Policy for the members that have not started when a member has failed."""

    def outcomes(self, failed: Member, waiting: Sequence[Member]) -> Mapping[JobId, MemberOutcome]:
        """Return the outcome of members by job; members that are left out continue. Must be pure: the call runs inside
        the transaction that records the failure."""
        ...


class StopPolicy(msgspec.Struct, frozen=True):
    def outcomes(self, failed: Member, waiting: Sequence[Member]) -> Mapping[JobId, MemberOutcome]:  # noqa: ARG002
        return {member.job: MemberOutcome.CANCEL for member in waiting if not member.is_exempt}


class SkipPolicy(msgspec.Struct, frozen=True):
    def outcomes(self, failed: Member, waiting: Sequence[Member]) -> Mapping[JobId, MemberOutcome]:  # noqa: ARG002
        return {member.job: MemberOutcome.SKIP for member in waiting if not member.is_exempt}


class ContinuePolicy(msgspec.Struct, frozen=True):
    def outcomes(self, failed: Member, waiting: Sequence[Member]) -> Mapping[JobId, MemberOutcome]:  # noqa: ARG002
        return {}


POLICIES: Mapping[str, GroupFailurePolicy] = {"stop": StopPolicy(), "continue": ContinuePolicy(), "skip": SkipPolicy()}
DEFAULT_POLICY = "stop"


def decide_outcomes(
    policy: GroupFailurePolicy, failed: Member, waiting: Sequence[Member]
) -> tuple[frozenset[JobId], frozenset[JobId]]:
    """Return the jobs to cancel and the jobs to skip, among the waiting members. A policy that returns an invalid
    outcome raises."""
    outcomes = {job: MemberOutcome(outcome) for job, outcome in policy.outcomes(failed, waiting).items()}
    jobs = [member.job for member in waiting]
    cancelled = frozenset(job for job in jobs if outcomes.get(job) is MemberOutcome.CANCEL)
    return cancelled, frozenset(job for job in jobs if outcomes.get(job) is MemberOutcome.SKIP)
