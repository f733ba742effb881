"""Groups: made with their members or before them, joined, closed, cancelled as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from rota.command.cancel import cancel as cancel_job
from rota.command.submission import GroupWanted, Submission
from rota.core.after import AfterPolicy
from rota.core.group import Group, GroupMode, Member
from rota.core.status import Status
from rota.engine import group as engine
from rota.engine.policy import group_policy_named
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, within
from rota.ids import GroupId, JobId, show_group, show_job
from rota.names import is_name
from rota.store.group import MemberRow
from rota.store.submit import NewJob


class Enrolment(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the jobs of a submit are members of which groups."""

    places: Mapping[JobId, tuple[GroupId, int]] = {}
    before: Mapping[JobId, JobId] = {}
    """In a sequential group, the member that each comes after."""
    made: GroupId | None = None
    joined: Mapping[GroupId, Group] = {}

    def group_of(self, job: JobId) -> GroupId | None:
        place = self.places.get(job)
        return None if place is None else place[0]


NOWHERE = Enrolment()


def check_group(wanted: GroupWanted) -> None:
    """What is wrong with it by itself."""
    name = wanted.name
    if name is not None and (not is_name(name) or "/" in name or name.isdecimal() or name.startswith("group-")):
        said = f"not a usable name for a group: {name!r}; use a word without / that is not a group id"
        raise InvalidInput(said).under(".group.name")
    with within(".group.on_failure"):
        group_policy_named(wanted.on_failure)


def enrol(
    work: Work, ids: Sequence[JobId], wanted: Sequence[Submission], group: GroupWanted | None, actor: str | None
) -> Enrolment:
    """Make the group that the jobs are to be, or find those that they join."""
    named = next((n for n, member in enumerate(wanted) if member.group is not None), None)
    if group is None:
        return NOWHERE if named is None else _join(work, ids, wanted)
    if named is not None:
        said = "jobs that are submitted as a group cannot join another; leave `group` out of them"
        raise InvalidInput(said).under(f".jobs[{named}].group")
    made = _add(work, group, is_closed=True, actor=actor)
    places = {job: (made, place) for place, job in enumerate(ids, 1)}
    is_sequential = GroupMode(group.mode) is GroupMode.SEQUENTIAL
    return Enrolment(
        places=places, before={job: before for before, job in pairwise(ids)} if is_sequential else {}, made=made
    )


def _add(work: Work, wanted: GroupWanted, *, is_closed: bool, actor: str | None) -> GroupId:
    return work.session.add_group(
        name=wanted.name, mode=GroupMode(wanted.mode), on_failure=wanted.on_failure, is_closed=is_closed,
        now=work.now, actor=actor,
    )  # fmt: skip


def _join(work: Work, ids: Sequence[JobId], wanted: Sequence[Submission]) -> Enrolment:
    """Each behind the member that stands last."""
    called: dict[str, Group] = {}
    last: dict[GroupId, tuple[JobId | None, int]] = {}
    places: dict[JobId, tuple[GroupId, int]] = {}
    before: dict[JobId, JobId] = {}
    for n, (job, member) in enumerate(zip(ids, wanted, strict=True)):
        if member.group is None:
            continue
        if member.group not in called:
            with within(f".jobs[{n}].group"):
                called[member.group] = group = _joinable(work, member.group)
            last.setdefault(group.id, work.session.last_member(group.id) or (None, 0))
        group = called[member.group]
        previous, place = last[group.id]
        places[job] = (group.id, place + 1)
        last[group.id] = (job, place + 1)
        if previous is not None and group.mode is GroupMode.SEQUENTIAL:
            before[job] = previous
    return Enrolment(places=places, before=before, joined={group.id: group for group in called.values()})


def _joinable(work: Work, text: str) -> Group:
    group = work.session.group_called(text)
    if group.cancelled_at is not None:
        raise Conflict(f"{show_group(group.id)} was cancelled and takes no further members; submit it without `group`")
    if group.finished_at is not None:
        raise Conflict(f"{show_group(group.id)} is over and takes no further members; submit it without `group`")
    return group


def admit(work: Work, jobs: Sequence[NewJob], enrolment: Enrolment) -> list[NewJob]:
    """The same jobs as members. Who joins a group in which one has failed is asked of its policy: what that would end
    at once is not taken."""
    for group in enrolment.joined.values():
        _refuse_dropped(work, group, [job for job in jobs if enrolment.group_of(job.id) == group.id])
    return [
        msgspec.structs.replace(job, group=enrolment.places[job.id][0], sequence=enrolment.places[job.id][1])
        if job.id in enrolment.places
        else job
        for job in jobs
    ]


def _refuse_dropped(work: Work, group: Group, jobs: Sequence[NewJob]) -> None:
    if group.on_failure == engine.CONTINUE:
        return
    for failed in work.session.failed_members(group.id):
        newcomers = [
            Member(job=job.id, sequence=0, status=Status.QUEUED, is_spared=_is_spared(job, failed)) for job in jobs
        ]
        if any(engine.fates_of(group, failed.member, newcomers)):
            name = show_group(group.id)
            raise Conflict(
                f"{name} takes no further members: {show_job(failed.job)} is {failed.status} and its policy is"
                f" {group.on_failure}; `rota group rewind {name}` runs again what has failed"
            )


def _is_spared(job: NewJob, failed: MemberRow) -> bool:
    return any(
        edge.chain == failed.chain and not edge.is_implied and edge.policy is not AfterPolicy.SUCCESS
        for edge, _ in job.edges
    )


def add(work: Work, wanted: GroupWanted, *, actor: str) -> GroupId:
    """One without members, that stays open until it is closed."""
    check_group(wanted)
    return _add(work, wanted, is_closed=False, actor=actor)


def close(work: Work, text: str, *, actor: str) -> GroupId:
    """It ends with its members from now on; to close it again changes nothing."""
    group = work.session.group_called(text)
    work.session.close_group(group.id, work.now, actor)
    engine.finish(work, group.id, cause=engine.CAUSE, actor=actor)
    return group.id


def cancel(work: Work, text: str, *, actor: str) -> GroupId:
    """Those that wait end at once, those that run are asked to; to cancel it again changes nothing."""
    group = work.session.group_called(text)
    if group.cancelled_at is None and group.finished_at is not None:
        raise Conflict(f"{show_group(group.id)} is over already; nothing was changed")
    work.session.cancel_group(group.id, work.now, actor)
    waiting = work.session.waiting_members(group.id, with_begun=True)
    reason = f"cancelled by {actor}"
    engine.end(
        work, group.id, waiting, Status.CANCELLED, reason=reason, is_dropped=False, actor=actor, cause="cancel"
    )  # fmt: skip
    for job in work.session.started_members(group.id):
        cancel_job(work, job, actor=actor)
    engine.finish(work, group.id, cause="cancel", actor=actor)
    return group.id
