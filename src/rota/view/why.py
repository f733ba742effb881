"""`why`: the reason a job has not started, in words, down to what holds up what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rota.core.group import PREDECESSOR_FAILED
from rota.core.job import Job
from rota.core.lock import Lock, LockMode
from rota.core.retry import show_progress
from rota.core.slot import owner_of, show_owner
from rota.core.status import STARTED, TERMINAL, Status
from rota.core.verdict import Wait
from rota.core.wait import WaitKind
from rota.duration import show_duration
from rota.ids import JobId, show_group, show_job
from rota.store.session import Looking, Reader
from rota.view.job import Sight, find, next_starts, waits
from rota.wire.job import WhyForm, wait_form

_DEEPEST = 5
_MOST_NAMES = 5


def why(reader: Reader, job: JobId, sight: Sight) -> WhyForm:
    found = find(reader, job)
    wait = waits(reader, [found], sight).get(job)
    return WhyForm(
        job=show_job(job),
        status=found.status.shown.value,
        wait=None if wait is None else wait_form(wait),
        text="\n".join(_lines(reader, found, wait, sight)),
        warnings=sight.limits.warnings(found.draws, found.spec.pools) if found.status not in TERMINAL else [],
    )


def _lines(reader: Reader, job: Job, wait: Wait | None, sight: Sight) -> list[str]:
    """One line for the job, then one for each thing further up that it hangs on."""
    lines = [_line(reader, job, wait, sight)]
    seen = {job.id}
    last = reader.last_of_chain(job.id) if job.status in TERMINAL else None
    if last is not None and last[0] != job.id:
        job = find(reader, last[0])
        seen.add(job.id)
        wait = waits(reader, [job], sight).get(job.id)
        lines = [f"{lines[0]}; retried, and its chain has come to {show_job(job.id)}"]
        lines.append("  " + _line(reader, job, wait, sight))
    while wait is not None and wait.kind is WaitKind.DEPENDENCIES and len(lines) < _DEEPEST:
        following = held_up_by(reader, job, wait)
        if following is None or following in seen:
            break
        job = find(reader, following)
        seen.add(job.id)
        wait = waits(reader, [job], sight).get(job.id)
        lines.append("  " * len(lines) + _line(reader, job, wait, sight))
    return lines


def held_up_by(reader: Reader, job: Job, wait: Wait) -> JobId | None:
    """The job that this one waits for: its predecessor, or the first that is to make what it needs."""
    kind, _, name = wait.on[0].partition(":")
    if kind == "job":
        last = reader.last_of_chain(JobId(int(name)))
        return None if last is None else last[0]
    needs = reader.needs_of([job.chain]).get(job.chain, ())
    keys = [(need.scope, name) for need in needs if str(need.artifact) == name]
    makers = [maker for maker in reader.makers_of(keys) if maker != job.chain]
    last = reader.last_of_chain(makers[0]) if makers else None
    return None if last is None else last[0]


def _line(reader: Reader, job: Job, wait: Wait | None, sight: Sight) -> str:
    head = f"{show_job(job.id)} is {job.status.shown}"
    if job.status in TERMINAL:
        return f"{head}: {job.reason or 'it has ended'}{_spent(job)}{_dropped(reader, job)}"
    progress = show_progress(job.spec.retry, job.retries)
    head = f"{head}: {progress}, " if progress else f"{head}: "
    if wait is not None:
        failed = f", after it could not be started: {job.last_failure}" if job.dispatch_failures else ""
        is_paced = sight.outlook.needs_tick and wait == sight.outlook.wait(sight.now)
        by_tick = f"; {_by_tick(reader, job, sight)}" if is_paced else ""
        return f"{head}{wait.detail}{by_tick}{obstacles(reader, wait, job.spec.locks)}{failed}{_before(reader, job)}"
    if job.status is Status.DISPATCHED and job.started_at is not None:
        ago = show_duration(timedelta(seconds=max(0, int((sight.now - job.started_at).total_seconds()))))
        return f"{head}its start was ordered {ago} ago, and the supervisor has not confirmed it"
    if job.status in STARTED:
        pid = f" as pid {job.pid}" if job.pid is not None else ""
        return f"{head}it runs{pid} since {job.started_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{head}{sight.held_by or f'nothing holds it; {_by_tick(reader, job, sight)}'}"


def _by_tick(reader: Reader, job: Job, sight: Sight) -> str:
    """Where only ticks start jobs, a tick starts so many."""
    is_by_hand = sight.outlook.needs_tick and sight.outlook.not_before is None
    tick = "`rota tick`" if is_by_hand else "tick"
    is_next = not sight.outlook.needs_tick or job.id in next_starts(reader, sight)
    return f"it starts with the next {tick}" if is_next else f"others come before it; its turn is with a later {tick}"


def _before(reader: Reader, job: Job) -> str:
    """What became of the job that it retries."""
    before = None if job.retry_of is None else reader.job(job.retry_of)
    return "" if before is None else f"; {show_job(before.id)} {before.status}: {before.reason or 'it has ended'}"


def _spent(job: Job) -> str:
    """Why the chain of a failed job did not go on by itself, where it could have been expected to."""
    policy = job.spec.retry
    if not job.permanently_failed or policy is None or not policy.max_retries:
        return ""
    if job.retries >= policy.max_retries:
        return f"; retry {job.retries} of {policy.max_retries} was the last"
    if job.current_run is not None and policy.exit_codes and job.exit_code not in policy.exit_codes:
        return f"; only exit codes {', '.join(map(str, policy.exit_codes))} are retried"
    return "; not retried"


def _dropped(reader: Reader, job: Job) -> str:
    """Whose failure its group's policy ended it for."""
    if job.group is None or job.reason != PREDECESSOR_FAILED:
        return ""
    failed = [member.job for member in reader.failed_members(job.group)]
    policy = "".join(f", and its policy is {group.on_failure}" for group in reader.groups([job.group]))
    others = (
        f"{_names(failed)} of {show_group(job.group)} failed"
        if failed
        else f"another of {show_group(job.group)} had failed"
    )
    return f"; {others}{policy}"


def obstacles(reader: Looking, wait: Wait, locks: Sequence[Lock]) -> str:
    """Who is in the way of a job or slot with these locks, by name."""
    if wait.kind is WaitKind.LOCKS:
        keys = [topic.removeprefix("lock:") for topic in wait.on]
        return ": " + ", ".join(f"{key} ({in_the_way(reader, key, locks)})" for key in keys) if keys else ""
    if wait.kind is WaitKind.CAPACITY:
        pool, *before = (topic.partition(":")[2] for topic in wait.on)
        users = [*reader.users_of(pool), *map(owner_of, reader.slots_drawing(pool))]
        used = f", used by {_names(users)}" if users else ""
        return used + "".join(f"; {show_job(JobId(int(job)))} is before it and needs more room" for job in before)
    return ""


def in_the_way(reader: Looking, key: str, locks: Sequence[Lock]) -> str:
    """Holders, unless both they and this one share the key: then it is somebody in line."""
    held = reader.lock_owners([key]).get(key, [])
    shares = any(lock.key == key and lock.mode is LockMode.SHARED for lock in locks)
    barring = [owner for owner, mode in held if not (shares and mode is LockMode.SHARED)]
    return f"held by {_names(barring)}" if barring else "others are before it"


def _names(jobs: list[JobId]) -> str:
    shown = ", ".join(show_owner(job) for job in jobs[:_MOST_NAMES])
    return f"{shown} and {len(jobs) - _MOST_NAMES} more" if len(jobs) > _MOST_NAMES else shown
