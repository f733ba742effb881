"""Reason that nothing is running although jobs are waiting: the wait of the job that is nearest to its start."""

from __future__ import annotations

from rota.core.wait import WaitKind
from rota.ids import format_job_id
from rota.store.session import Reader
from rota.view.job import ViewContext, explain_waits, find_job
from rota.view.why import find_blocker

_MAX_DEPTH = 100


def idle_reason(reader: Reader, context: ViewContext) -> str | None:
    """Return the reason, or `None` if nothing holds the jobs.

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
    while wait is not None and wait.kind is WaitKind.DEPENDENCIES and len(visited) < _MAX_DEPTH:
        blocker = find_blocker(reader, job, wait)
        if blocker is None or blocker in visited:
            break
        job = find_job(reader, blocker)
        visited.add(job.id)
        wait = explain_waits(reader, [job], context).get(job.id) or wait
    if wait is None:
        return None
    too_large = "; it cannot start until the pool grows" if wait.cannot_start else ""
    return f"{format_job_id(job.id)}: {wait.detail}{too_large}"
