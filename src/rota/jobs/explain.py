"""Explanation of why a job has not started, down to the jobs that block it, and of why nothing is running."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rota.db.session import AnyReader, Reader
from rota.duration import format_duration
from rota.errors import escape_unprintable
from rota.ids import JobId, format_group_id, format_job_id
from rota.jobs.queries import ViewContext, explain_waits, find_job
from rota.jobs.schemas import WaitExplanation, render_wait
from rota.kernel.artifacts import describe_awaited_event
from rota.kernel.groups import PREDECESSOR_FAILED
from rota.kernel.job import Job
from rota.kernel.locks import Lock, LockMode
from rota.kernel.reservations import format_owner, lock_owner
from rota.kernel.retry import format_progress
from rota.kernel.status import STARTED, TERMINAL, WAITING, Status
from rota.kernel.verdict import Wait, WaitKind

_MAX_DEPTH = 5
_MAX_NAMES = 5
_MAX_IDLE_DEPTH = 100


def explain_wait(reader: Reader, job: JobId, context: ViewContext) -> WaitExplanation:
    record = find_job(reader, job)
    wait = explain_waits(reader, [record], context).get(job)
    is_explained = record.status in TERMINAL or (wait is not None and wait.cannot_start)
    lines = _with_executor_silence(_explain_lines(reader, record, wait, context), record, context)
    return WaitExplanation(
        job=format_job_id(job),
        status=record.status.public.value,
        wait=None if wait is None else render_wait(wait),
        text="\n".join(map(escape_unprintable, lines)),
        warnings=[] if is_explained else context.limits.warnings(record.demand, record.spec.pools),
    )


def _with_executor_silence(lines: list[str], job: Job, context: ViewContext) -> list[str]:
    """Add a line if the supervisor does not answer: until it does, no job starts and no end is reported, whatever else
    the job waits for."""
    if (
        context.executor_silence is None
        or job.status in TERMINAL
        or any(context.executor_silence in line for line in lines)
    ):
        return lines
    return [*lines, context.executor_silence]


def _explain_lines(reader: Reader, job: Job, wait: Wait | None, context: ViewContext) -> list[str]:
    """Return a line for the job, then one for each blocking job upstream."""
    lines = [_explain_line(reader, job, wait, context)]
    if job.unreadable is not None and job.unreadable not in lines[0]:
        lines.append(f"  its stored record has errors: {job.unreadable}")
    visited = {job.id}
    last = reader.chains.last_job(job.id) if job.status in TERMINAL else None
    if last is not None and last[0] != job.id:
        job = find_job(reader, last[0])
        visited.add(job.id)
        wait = explain_waits(reader, [job], context).get(job.id)
        lines = [f"{lines[0]}; its last retry is {format_job_id(job.id)}"]
        lines.append("  " + _explain_line(reader, job, wait, context))
    while wait is not None and wait.kind is WaitKind.DEPENDENCIES and len(lines) < _MAX_DEPTH:
        blocker = find_blocker(reader, job, wait)
        if blocker is None or blocker in visited:
            break
        job = find_job(reader, blocker)
        visited.add(job.id)
        wait = explain_waits(reader, [job], context).get(job.id)
        lines.append("  " * len(lines) + _explain_line(reader, job, wait, context))
    return lines


def find_blocker(reader: Reader, job: Job, wait: Wait) -> JobId | None:
    """Return the job that this one waits for: its predecessor, or the first producer of the awaited artifact."""
    kind, _, name = wait.on[0].partition(":")
    if kind == "job":
        last = reader.chains.last_job(JobId(int(name)))
        return None if last is None else last[0]
    needs = reader.artifacts.needs_of([job.chain]).get(job.chain, ())
    keys = [(need.scope, name) for need in needs if str(need.artifact) == name]
    producers = [producer for producer in reader.artifacts.active_producers(keys) if producer != job.chain]
    last = reader.chains.last_job(producers[0]) if producers else None
    return None if last is None else last[0]


def _explain_line(reader: Reader, job: Job, wait: Wait | None, context: ViewContext) -> str:
    head = f"{format_job_id(job.id)} is {job.status.public}"
    if job.status is Status.UNREADABLE:
        return f"{head}: {job.unreadable}; `rota cancel {format_job_id(job.id)}` ends it"
    if job.status in TERMINAL:
        return f"{head}: {job.reason or 'it has ended'}{_no_retry_note(job)}{_group_policy_note(reader, job)}"
    progress = format_progress(job.spec.retry, job.retries)
    head = f"{head}: {progress}, " if progress else f"{head}: "
    if wait is not None:
        is_failure_in_wait = not job.dispatch_failures or wait.kind is WaitKind.DELAY
        failed = "" if is_failure_in_wait else f"; an earlier start failed: {job.last_failure}"
        held_by = describe_blockers(reader, wait, job.spec.locks) or _describe_awaited_artifacts(reader, job, wait)
        return f"{head}{wait.detail}{held_by}{failed}{_retry_note(reader, job)}"
    if job.status is Status.DISPATCHED and job.started_at is not None:
        ago = format_duration(timedelta(seconds=max(0, int((context.now - job.started_at).total_seconds()))))
        return f"{head}its start was ordered {ago} ago, and the supervisor has not confirmed it{_stop_note(job)}"
    if job.status in STARTED:
        pid = f" as pid {job.pid}" if job.pid is not None else ""
        return f"{head}it runs{pid} since {job.started_at:%Y-%m-%d %H:%M:%S} UTC{_stop_note(job)}"
    if job.status in WAITING and not reader.queue.candidates([job.id]):
        return (
            f"{head}its record cannot be read: {job.unreadable}; it fails when it is evaluated,"
            f" and `rota cancel {format_job_id(job.id)}` ends it now"
        )
    return f"{head}{context.hold_reason or 'nothing holds it; it starts with the next tick'}"


def _stop_note(job: Job) -> str:
    if job.stop_requested is None:
        return ""
    return f"; a stop was requested ({job.stop_requested}), and the supervisor has not reported its end"


def _retry_note(reader: Reader, job: Job) -> str:
    """Return the outcome of the job that this one retries."""
    previous = None if job.retry_of is None else reader.jobs.find(job.retry_of)
    return (
        ""
        if previous is None
        else f"; {format_job_id(previous.id)} {previous.status}: {previous.reason or 'it has ended'}"
    )


def _no_retry_note(job: Job) -> str:
    """Return the reason that a failed job was not retried automatically, if a retry could be expected."""
    policy = job.spec.retry
    if not job.permanently_failed or policy is None or not policy.max_retries:
        return ""
    if job.retries >= policy.max_retries:
        return f"; retry {job.retries} of {policy.max_retries} was the last"
    if job.exit_code is None and policy.unknown_exit == "hold":
        return '; not retried automatically, because retry.unknown_exit is "hold"'
    if (
        job.current_run is not None
        and job.exit_code is not None
        and policy.exit_codes
        and job.exit_code not in policy.exit_codes
    ):
        return f"; only exit codes {', '.join(map(str, policy.exit_codes))} are retried"
    return "; not retried"


def _group_policy_note(reader: Reader, job: Job) -> str:
    """Return the failures because of which the policy of the group ended the job."""
    if job.group is None or job.reason != PREDECESSOR_FAILED:
        return ""
    failed = [member.job for member in reader.groups.failed_members(job.group)]
    policy = "".join(f", and its policy is {group.on_failure}" for group in reader.groups.find_all([job.group]))
    others = (
        f"{_join_names(failed)} of {format_group_id(job.group)} failed"
        if failed
        else f"another member of {format_group_id(job.group)} failed"
    )
    return f"; {others}{policy}"


def describe_blockers(reader: AnyReader, wait: Wait, locks: Sequence[Lock]) -> str:
    """Name the holders of the locks or pools that a job or reservation with these locks waits for."""
    if wait.kind is WaitKind.LOCKS:
        keys = [topic.removeprefix("lock:") for topic in wait.on]
        return ": " + ", ".join(f"{key} ({describe_lock_blockers(reader, key, locks)})" for key in keys) if keys else ""
    if wait.cannot_start:
        return "; it cannot start until the pool grows"
    if wait.kind is WaitKind.CAPACITY:
        pool, *jobs_before = (topic.partition(":")[2] for topic in wait.on)
        users = [*reader.jobs.using_pool(pool), *map(lock_owner, reader.reservations.using_pool(pool))]
        used = f", used by {_join_names(users)}" if users else ""
        return used + "".join(
            f"; {format_job_id(JobId(int(job)))} is before it and needs more room" for job in jobs_before
        )
    return ""


def describe_lock_blockers(reader: AnyReader, key: str, locks: Sequence[Lock]) -> str:
    """Name the holders of the lock. If the holders share it and this one would too, other waiters are before it."""
    holders = reader.locks.owners([key]).get(key, [])
    shares = any(lock.key == key and lock.mode is LockMode.SHARED for lock in locks)
    blocking = [owner for owner, mode in holders if not (shares and mode is LockMode.SHARED)]
    return f"held by {_join_names(blocking)}" if blocking else "others are before it"


def _describe_awaited_artifacts(reader: Reader, job: Job, wait: Wait) -> str:
    """Explain what ends the wait for an artifact that no job produces."""
    names = [topic.removeprefix("artifact:") for topic in wait.on if topic.startswith("artifact:")]
    needs = reader.artifacts.needs_of([job.chain]).get(job.chain, ()) if names else ()
    awaited = [need.artifact for need in needs if str(need.artifact) in names and not need.producers]
    return "".join(
        f"; no job produces it, so it waits until {describe_awaited_event(artifact)}" for artifact in awaited
    )


def _join_names(jobs: list[JobId]) -> str:
    shown = ", ".join(format_owner(job) for job in jobs[:_MAX_NAMES])
    return f"{shown} and {len(jobs) - _MAX_NAMES} more" if len(jobs) > _MAX_NAMES else shown


def idle_reason(reader: Reader, context: ViewContext) -> str | None:
    """Return the reason that nothing is running although jobs are waiting, or `None` if nothing holds them.

    A hold of everything takes precedence over the gates. Otherwise the reason is the wait of the job that would start
    next, or, if it waits for other jobs, of the job at the end of that chain of dependencies. If all jobs are delayed,
    the job with the earliest time gives the reason.
    """
    if context.hold_reason is not None:
        return context.hold_reason
    nearest = reader.queue.next_to_start()
    if nearest is None:
        return None
    job = find_job(reader, nearest)
    wait = explain_waits(reader, [job], context).get(job.id)
    visited = {job.id}
    while wait is not None and wait.kind is WaitKind.DEPENDENCIES and len(visited) < _MAX_IDLE_DEPTH:
        blocker = find_blocker(reader, job, wait)
        if blocker is None or blocker in visited:
            break
        visited.add(blocker)
        next_job = find_job(reader, blocker)
        next_wait = explain_waits(reader, [next_job], context).get(blocker)
        if next_wait is None:
            break
        job, wait = next_job, next_wait
    if wait is None:
        return None
    too_large = "; it cannot start until the pool grows" if wait.cannot_start else ""
    return f"{format_job_id(job.id)}: {wait.detail}{too_large}"
