"""Groups, inside the transaction in which a member ends: what its failure does to the others, and whether all is over.

    a member's chain ends ──▶ has it failed? its group's policy speaks, before the marked successors are looked at
                          ──▶ is no member active and the group closed? it is finished, with the event `group.finished`

Upholds INV-006 and DEC-012.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rota.core.group import FAILED, PREDECESSOR_FAILED, Group, GroupFailurePolicy, Member, Stop, sort_fates, status_of
from rota.core.run import CANCELLED
from rota.core.status import Status
from rota.engine.outside import disturb
from rota.engine.policy import group_policy_named
from rota.engine.work import Work
from rota.errors import InvalidInput
from rota.ids import GroupId, JobId, show_group
from rota.store.group import WaitingMember

log = logging.getLogger("rota.engine")

CAUSE = "group"
CONTINUE = "continue"
"""Nothing is asked for it: ten thousand failures are ten thousand times nothing."""


def book_end(work: Work, group: GroupId, chain: JobId, status: Status) -> None:
    """A member's chain has ended so."""
    if status in FAILED:
        _speak(work, group, chain)
    finish(work, group, cause=CAUSE)


def _speak(work: Work, group: GroupId, chain: JobId) -> None:
    found = next(iter(work.session.groups([group])), None)
    if found is None or found.on_failure == CONTINUE:
        return
    waiting = work.session.waiting_members(group, with_begun=False)
    if not waiting:
        return
    _ask(work, found, work.session.member(chain).member, chain, waiting)


def _ask(work: Work, group: Group, failed: Member, chain: JobId, waiting: Sequence[WaitingMember]) -> None:
    """What the policy says of these when this one has failed, whose chain that is."""
    spared = work.session.spared_members(group.id, chain)
    asked = [
        Member(job=each.job, sequence=each.sequence, status=each.status, is_spared=each.job in spared)
        for each in waiting
    ]
    cancelled, skipped = fates_of(group, failed, asked)
    drop(work, group.id, [each for each in waiting if each.job in cancelled], Status.CANCELLED)
    drop(work, group.id, [each for each in waiting if each.job in skipped], Status.SKIPPED)


def book_return(work: Work, group: GroupId, job: JobId) -> None:
    """A member that was claimed waits again. If the policy has spoken meanwhile it speaks of this one too; who was
    claimed after that was put there by somebody who knew."""
    (found,) = work.session.groups([group])
    failed = [] if found.on_failure == CONTINUE else work.session.failed_members(group)
    waiting = [each for each in work.session.waiting_members(group, with_begun=False) if each.job == job]
    if not failed or not waiting:
        return
    before = work.session.failed_before_claim(job, [member.job for member in failed])
    for member in failed:
        if member.job not in before:
            _ask(work, found, member.member, member.chain, waiting)
    finish(work, group, cause=CAUSE)  # it may have been the last


def fates_of(group: Group, failed: Member, waiting: Sequence[Member]) -> tuple[frozenset[JobId], frozenset[JobId]]:
    """Who is cancelled and who is skipped. A policy that raises harms nobody: then the default holds."""
    try:
        return sort_fates(policy_of(group), failed, waiting)
    except Exception:
        log.exception("the failure policy %s of %s failed; stop is used", group.on_failure, show_group(group.id))
        return sort_fates(Stop(), failed, waiting)


def policy_of(group: Group) -> GroupFailurePolicy:
    """One that is not installed any more harms nobody: then the default holds."""
    try:
        return group_policy_named(group.on_failure)
    except InvalidInput as error:
        log.error("%s: %s; stop is used", show_group(group.id), error.message)
        return Stop()


def drop(work: Work, group: GroupId, members: list[WaitingMember], status: Status) -> None:
    """The policy has ended these."""
    end(work, group, members, status, reason=PREDECESSOR_FAILED, is_dropped=True, actor=None, cause=CAUSE)


def end(
    work: Work, group: GroupId, members: list[WaitingMember], status: Status, *, reason: str, is_dropped: bool,
    actor: str | None, cause: str,
) -> None:  # fmt: skip
    """End members that wait, all at once. Such an end is no failure, so the policy has nothing to say of it."""
    if not members:
        return
    making = work.session.end_members(
        group, members, status, exit_code=CANCELLED if status is Status.CANCELLED else None, reason=reason,
        is_dropped=is_dropped, now=work.now, cause=cause, actor=actor,
    )  # fmt: skip
    for chain in making:
        disturb(work, chain)


def finish(work: Work, group: GroupId, *, cause: str, actor: str | None = None) -> bool:
    """Whether it is over with this."""
    if not work.session.finish_group(group, work.now):
        return False
    (found,) = work.session.groups([group])
    tally = work.session.tallies([found])[group]
    status = status_of(tally, is_closed=True, is_cancelled=found.cancelled_at is not None)
    counts = {each.value: count for each, count in sorted(tally.counts.items())}
    data = {"status": status.value, "counts": counts, "total": tally.total}
    work.session.emit_of_group("finished", group, work.now, cause=cause, actor=actor, data=data)
    return True


def recover(work: Work, cause: str) -> int:
    """Groups that were left without an active member are finished; how many. One transaction books the last end and
    this, so there should be none: this is for a store that something else has written to."""
    return sum(finish(work, group, cause=cause) for group in work.session.unfinished_groups())
