"""Groups: created with their members or before them, joined, closed, cancelled as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from rota.db.groups import MemberRow
from rota.db.jobs import NewJob
from rota.engine import groups as engine_groups
from rota.engine.settings import load_group_policy
from rota.engine.transaction import Transaction
from rota.errors import Conflict, InvalidInput, error_path
from rota.ids import GroupId, JobId, format_group_id, format_job_id
from rota.jobs.cancel import cancel as cancel_job
from rota.jobs.submission import GroupRequest, Submission
from rota.kernel.edges import DependencyPolicy
from rota.kernel.groups import Group, GroupMode, Member
from rota.kernel.status import Status
from rota.naming import is_name, quote_unusable


class Enrollment(msgspec.Struct, frozen=True, kw_only=True):
    """Group memberships of the jobs of a submit."""

    memberships: Mapping[JobId, tuple[GroupId, int]] = {}
    predecessors: Mapping[JobId, JobId] = {}
    """Previous member of each member of a sequential group."""
    created_group: GroupId | None = None
    joined_groups: Mapping[GroupId, Group] = {}

    def group_of(self, job: JobId) -> GroupId | None:
        membership = self.memberships.get(job)
        return None if membership is None else membership[0]


NO_ENROLLMENT = Enrollment()


def check_group(request: GroupRequest) -> None:
    """Refuse a group request that is invalid by itself."""
    name = request.name
    if name is not None and (not is_name(name) or "/" in name or name.isdecimal() or name.startswith("group-")):
        message = f"not a usable name for a group: {quote_unusable(name)}; use a word without / that is not a group id"
        raise InvalidInput(message).at_path(".group.name")
    with error_path(".group.on_failure"):
        load_group_policy(request.on_failure)


def enroll(
    tx: Transaction,
    ids: Sequence[JobId],
    submissions: Sequence[Submission],
    request: GroupRequest | None,
    actor: str | None,
) -> Enrollment:
    """Create the group of the jobs, or find the groups that they join."""
    named = next((n for n, member in enumerate(submissions) if member.group is not None), None)
    if request is None:
        return NO_ENROLLMENT if named is None else _join_groups(tx, ids, submissions)
    if named is not None:
        message = "jobs that are submitted as a group cannot join another; leave `group` out of the jobs"
        raise InvalidInput(message).at_path(f".jobs[{named}].group")
    group = _create_group(tx, request, is_closed=True, actor=actor)
    is_sequential = GroupMode(request.mode) is GroupMode.SEQUENTIAL
    return Enrollment(
        memberships={job: (group, sequence) for sequence, job in enumerate(ids, 1)},
        predecessors={job: previous for previous, job in pairwise(ids)} if is_sequential else {},
        created_group=group,
    )


def _create_group(tx: Transaction, request: GroupRequest, *, is_closed: bool, actor: str | None) -> GroupId:
    return tx.groups.add(
        name=request.name,
        mode=GroupMode(request.mode),
        on_failure=request.on_failure,
        is_closed=is_closed,
        now=tx.now,
        actor=actor,
    )


def _join_groups(tx: Transaction, ids: Sequence[JobId], submissions: Sequence[Submission]) -> Enrollment:
    """Append each job behind the last member of its group."""
    groups: dict[str, Group] = {}
    last_members: dict[GroupId, tuple[JobId | None, int]] = {}
    memberships: dict[JobId, tuple[GroupId, int]] = {}
    predecessors: dict[JobId, JobId] = {}
    for n, (job, member) in enumerate(zip(ids, submissions, strict=True)):
        if member.group is None:
            continue
        if member.group not in groups:
            with error_path(f".jobs[{n}].group"):
                groups[member.group] = group = _find_joinable(tx, member.group)
            last_members.setdefault(group.id, tx.groups.last_member(group.id) or (None, 0))
        group = groups[member.group]
        previous, sequence = last_members[group.id]
        memberships[job] = (group.id, sequence + 1)
        last_members[group.id] = (job, sequence + 1)
        if previous is not None and group.mode is GroupMode.SEQUENTIAL:
            predecessors[job] = previous
    joined_groups = {group.id: group for group in groups.values()}
    return Enrollment(memberships=memberships, predecessors=predecessors, joined_groups=joined_groups)


def _find_joinable(tx: Transaction, reference: str) -> Group:
    group = tx.groups.find(reference)
    if group.cancelled_at is not None:
        raise Conflict(
            f"{format_group_id(group.id)} was cancelled and takes no further members; submit it without `group`"
        )
    if group.finished_at is not None:
        raise Conflict(f"{format_group_id(group.id)} is over and takes no further members; submit it without `group`")
    return group


def add_members(tx: Transaction, jobs: Sequence[NewJob], enrollment: Enrollment) -> list[NewJob]:
    """Return the jobs as members. After a failure in a group, its policy decides about jobs that join: those that it
    would end at once are refused."""
    for group in enrollment.joined_groups.values():
        _refuse_dropped(tx, group, [job for job in jobs if enrollment.group_of(job.id) == group.id])
    return [
        msgspec.structs.replace(
            job, group=enrollment.memberships[job.id][0], sequence=enrollment.memberships[job.id][1]
        )
        if job.id in enrollment.memberships
        else job
        for job in jobs
    ]


def _refuse_dropped(tx: Transaction, group: Group, jobs: Sequence[NewJob]) -> None:
    if group.on_failure == engine_groups.CONTINUE_POLICY:
        return
    for failed in tx.groups.failed_members(group.id):
        newcomers = [
            Member(job=job.id, sequence=0, status=Status.QUEUED, is_exempt=_is_spared(job, failed)) for job in jobs
        ]
        if any(engine_groups.decide_members(group, failed.member, newcomers)):
            name = format_group_id(group.id)
            raise Conflict(
                f"{name} takes no further members: {format_job_id(failed.job)} is {failed.status} and its policy is"
                f" {group.on_failure}; `rota group rewind {name}` runs the failed members again"
            )


def _is_spared(job: NewJob, failed: MemberRow) -> bool:
    return any(
        edge.chain == failed.chain and not edge.is_implied and edge.policy is not DependencyPolicy.SUCCESS
        for edge, _ in job.edges
    )


def create_group(tx: Transaction, request: GroupRequest, *, actor: str) -> GroupId:
    """Create a group without members; it is open until it is closed."""
    check_group(request)
    return _create_group(tx, request, is_closed=False, actor=actor)


def close(tx: Transaction, reference: str, *, actor: str) -> GroupId:
    """Close a group: it finishes when its present members have ended. Closing it again changes nothing."""
    group = tx.groups.find(reference)
    tx.groups.close(group.id, tx.now, actor)
    engine_groups.finish_if_done(tx, group.id, cause=engine_groups.CAUSE, actor=actor)
    return group.id


def cancel(tx: Transaction, reference: str, *, actor: str) -> GroupId:
    """Cancel a group: end waiting members at once and stop running members. Cancelling it again changes nothing."""
    group = tx.groups.find(reference)
    if group.cancelled_at is None and group.finished_at is not None:
        raise Conflict(f"{format_group_id(group.id)} is over already; nothing was changed")
    tx.groups.cancel(group.id, tx.now, actor)
    waiting = tx.groups.waiting_members(group.id, with_retries=True)
    reason = f"cancelled by {actor}"
    engine_groups.end_members(
        tx, group.id, waiting, Status.CANCELLED, reason=reason, is_dropped=False, actor=actor, cause="cancel"
    )
    for job in tx.groups.started_members(group.id):
        cancel_job(tx, job, actor=actor)
    engine_groups.finish_if_done(tx, group.id, cause="cancel", actor=actor)
    return group.id
