"""`retry`: a chain that ended, or waits to try again, tries again now, and its count begins anew."""

from __future__ import annotations

import msgspec

from rota.command.ring import refuse_rings_of
from rota.core.after import AfterPolicy
from rota.core.status import STARTED, WAITING, Status
from rota.core.unique import refuse_taken
from rota.engine.retry import CAUSE
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, NotFound
from rota.ids import GroupId, JobId, parse_job, parse_run, show_group, show_job

_MOST_NAMES = 5
_MOST_DROPPED = 1000
_CLEARED = {
    "not_before": "its delay",
    "retries": "its count of retries",
    "dispatch_failures": "its count of failed starts",
}


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    """The chain's last job, which is going to run."""
    text: str
    """What was done: a retry never does nothing in silence."""
    blocked: list[JobId] = []
    """Jobs after it that were blocked by its failure, and stay so."""
    dropped: list[JobId] = []
    """Members of its group that the policy ended because one had failed, and that stay so."""
    advice: str | None = None


def retry(work: Work, what: str, *, actor: str) -> Retried:
    """`what` names a run or any job of the chain."""
    return _retry(work, find(work, what), actor)


def checked(what: str) -> str:
    """A job's or a run's id."""
    if not what.startswith(("run-", "job-")):
        raise InvalidInput(f"not a job or run id: {what!r}; they look like job-24 and run-24")
    parse_run(what) if what.startswith("run-") else parse_job(what)
    return what


def find(work: Work, what: str) -> JobId:
    """The job that a job's or a run's id stands for."""
    is_run = checked(what).startswith("run-")
    job = work.session.job_of_run(parse_run(what)) if is_run else parse_job(what)
    if job is not None and work.session.last_of_chain(job) is None:
        raise work.session.no_such_job(job)
    if job is None:
        raise NotFound(f"no such {what.partition('-')[0]}: {what}; `rota list --all` shows what there is")
    return job


def _retry(work: Work, job: JobId, actor: str) -> Retried:
    state = work.session.chains([job])[job]
    last, name = state.last, show_job(state.last)
    if state.status in WAITING:
        return _hurry(work, last, actor)
    if state.status in STARTED:
        raise Conflict(f"{name} is running; `rota wait {name}` for its end, or `rota cancel {name}` first")
    if state.status in (Status.COMPLETED, Status.SKIPPED):
        raise Conflict(f"{name} ended {state.status}, so there is nothing to retry; `rota rewind {name}` runs it again")
    if state.unique is not None:
        active = work.session.active_of([state.unique])
        refuse_taken([(last, state.unique)], active, [state.chain], verb="retry")
    _refuse_what_is_blocked(work, last)
    work.session.reopen(state.chain)
    successor = work.session.add_retry(last, retries=0, not_before=None, now=work.now, cause=CAUSE, actor=actor)
    refuse_rings_of(work, [state.chain])
    blocked = work.session.blocked_by(state.chain)
    dropped: list[JobId] = []
    if state.group is not None:
        work.session.reopen_group(state.group, work.now, cause=CAUSE, actor=actor)
        dropped = [job for job in work.session.dropped_members(state.group, _MOST_DROPPED) if job != last]
    text = f"{show_job(successor)} retries {name} ({state.status})"
    return Retried(
        job=successor, text=text, blocked=blocked, dropped=dropped, advice=_advice(blocked, dropped, state.group)
    )


def _hurry(work: Work, job: JobId, actor: str) -> Retried:
    name = show_job(job)
    cleared = work.session.hurry(job, work.now, actor)
    if not cleared:
        return Retried(job=job, text=f"{name} waits already, and not for a delay; `rota why {name}` says what for")
    return Retried(job=job, text=f"{name} waits already; cleared: {', '.join(_CLEARED[each] for each in cleared)}")


def _refuse_what_is_blocked(work: Work, job: JobId) -> None:
    """A job that would end at once where it stands is not made."""
    edge = work.session.unmeetable(job)
    if edge is None:
        return
    predecessor, policy, status = edge
    name, other = show_job(job), show_job(predecessor)
    if policy is AfterPolicy.FAILED:
        raise Conflict(f"{name} is not needed: it is for a failure of {other}, which ended {status}")
    raise Conflict(
        f"{name} would be blocked again: dependency failed for job {other} ({status}); "
        f"`rota retry {other}` first, then `rota retry {name}`"
    )


def _advice(blocked: list[JobId], dropped: list[JobId], group: GroupId | None) -> str | None:
    said = []
    if blocked:
        commands = ", ".join(f"`rota rewind {show_job(job)}`" for job in blocked[:_MOST_NAMES])
        stay, let, them = ("stays", "lets", "it") if len(blocked) == 1 else ("stay", "let", "them")
        said.append(
            f"{_names(blocked)} {stay} BLOCKED_BY_DEPENDENCY; {commands} {let} {them} follow the chain again"
        )  # fmt: skip
    if dropped and group is not None:
        stay, them = ("stays", "it") if len(dropped) == 1 else ("stay", "them")
        command = f"`rota group rewind {show_group(group)}`"
        said.append(f"{_names(dropped)} {stay} as the group's policy left {them}; {command} lets {them} run too")
    return "; ".join(said) or None


def _names(jobs: list[JobId]) -> str:
    names = [show_job(job) for job in jobs[:_MOST_NAMES]]
    more = f" and {len(jobs) - len(names)} more" if len(jobs) > len(names) else ""
    return f"{', '.join(names)}{more}"
