"""Groups, inside the transaction in which a member ends: failure policy and end of the group.

    a member's chain ends ──▶ failed: apply the failure policy of the group, before dirty dependents are evaluated
                          ──▶ group closed, no member active: finish the group, with the event `group.finished`

Upholds INV-006 and DEC-012.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rota.db.groups import WaitingMember
from rota.engine.facts import invalidate_products
from rota.engine.settings import load_group_policy
from rota.engine.transaction import Transaction
from rota.errors import InvalidInput
from rota.ids import GroupId, JobId, format_group_id
from rota.kernel.groups import (
    FAILED_STATUSES,
    PREDECESSOR_FAILED,
    Group,
    GroupFailurePolicy,
    Member,
    StopPolicy,
    decide_outcomes,
    group_status,
)
from rota.kernel.run import EXIT_CANCELLED
from rota.kernel.status import Status

log = logging.getLogger("rota.engine")

CAUSE = "group"
CONTINUE_POLICY = "continue"
"""Name of the policy that does nothing; it is recognized by name, so that failures cost no further queries."""


def record_end(tx: Transaction, group: GroupId, chain: JobId, status: Status) -> None:
    """Record the end of a member's chain."""
    if status in FAILED_STATUSES:
        _apply_policy(tx, group, chain)
    finish_if_done(tx, group, cause=CAUSE)


def _apply_policy(tx: Transaction, group: GroupId, chain: JobId) -> None:
    record = next(iter(tx.groups.find_all([group])), None)
    if record is None or record.on_failure == CONTINUE_POLICY:
        return
    waiting = tx.groups.waiting_members(group, with_retries=False)
    if not waiting:
        return
    _drop_by_policy(tx, record, tx.groups.member(chain).member, chain, waiting)


def _drop_by_policy(
    tx: Transaction, group: Group, failed: Member, chain: JobId, waiting: Sequence[WaitingMember]
) -> None:
    """Cancel or skip waiting members as the policy decides after the failure of `failed`, a member of `chain`."""
    exempt = tx.groups.failure_tolerant_members(group.id, chain)
    members = [
        Member(job=member.job, sequence=member.sequence, status=member.status, is_exempt=member.job in exempt)
        for member in waiting
    ]
    cancelled, skipped = decide_members(group, failed, members)
    drop_members(tx, group.id, [member for member in waiting if member.job in cancelled], Status.CANCELLED)
    drop_members(tx, group.id, [member for member in waiting if member.job in skipped], Status.SKIPPED)


def record_requeue(tx: Transaction, group: GroupId, job: JobId) -> None:
    """Apply the policy to a claimed member that waits again, for the failures since its claim. A member claimed after a
    failure was added on purpose, and is exempt from it."""
    (record,) = tx.groups.find_all([group])
    failed = [] if record.on_failure == CONTINUE_POLICY else tx.groups.failed_members(group)
    if not failed:
        return
    failed_before = tx.groups.failed_before_claim(job, [member.job for member in failed])
    for member in failed:
        # Read again each time: the policy may have dropped the job for an earlier failure.
        waiting = [waiter for waiter in tx.groups.waiting_members(group, with_retries=False) if waiter.job == job]
        if waiting and member.job not in failed_before:
            _drop_by_policy(tx, record, member.member, member.chain, waiting)
    finish_if_done(tx, group, cause=CAUSE)  # it may have been the last


def decide_members(
    group: Group, failed: Member, waiting: Sequence[Member]
) -> tuple[frozenset[JobId], frozenset[JobId]]:
    """Return the members to cancel and the members to skip. If the policy raises, use the default, `stop`."""
    try:
        return decide_outcomes(load_policy(group), failed, waiting)
    except Exception:
        log.exception("the failure policy %s of %s failed; stop is used", group.on_failure, format_group_id(group.id))
        return decide_outcomes(StopPolicy(), failed, waiting)


def load_policy(group: Group) -> GroupFailurePolicy:
    """Return the policy of a group. If it is not installed, use the default, `stop`."""
    try:
        return load_group_policy(group.on_failure)
    except InvalidInput as error:
        log.error("%s: %s; stop is used", format_group_id(group.id), error.message)
        return StopPolicy()


def drop_members(tx: Transaction, group: GroupId, members: list[WaitingMember], status: Status) -> None:
    """End members that the policy drops."""
    end_members(tx, group, members, status, reason=PREDECESSOR_FAILED, is_dropped=True, actor=None, cause=CAUSE)


def end_members(
    tx: Transaction,
    group: GroupId,
    members: list[WaitingMember],
    status: Status,
    *,
    reason: str,
    is_dropped: bool,
    actor: str | None,
    cause: str,
) -> None:
    """End waiting members in one statement. Such an end is not a failure, so the policy does not apply to it."""
    if not members:
        return
    producers = tx.groups.end_members(
        group,
        members,
        status,
        exit_code=EXIT_CANCELLED if status is Status.CANCELLED else None,
        reason=reason,
        is_dropped=is_dropped,
        now=tx.now,
        cause=cause,
        actor=actor,
    )
    for chain in producers:
        invalidate_products(tx, chain)


def finish_if_done(tx: Transaction, group: GroupId, *, cause: str, actor: str | None = None) -> bool:
    """Finish the group if it is closed and no member is active. Return whether this call finished it."""
    if not tx.groups.finish(group, tx.now):
        return False
    (record,) = tx.groups.find_all([group])
    counts = tx.groups.counts([record])[group]
    status = group_status(counts, is_closed=True, is_cancelled=record.cancelled_at is not None)
    by_status = {member_status.value: count for member_status, count in sorted(counts.counts.items())}
    data = {"status": status.value, "counts": by_status, "total": counts.total}
    tx.groups.emit_event("finished", group, tx.now, cause=cause, actor=actor, data=data)
    return True


def finish_abandoned_groups(tx: Transaction, cause: str) -> int:
    """Finish groups that are unfinished without an active member, and return their number.

    The last end and the end of the group share a transaction, so there are none unless another program has written to
    the store."""
    return sum(finish_if_done(tx, group, cause=cause) for group in tx.groups.unfinished())
