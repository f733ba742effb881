"""The queue: waiting jobs in the order in which they would start."""

from __future__ import annotations

import msgspec

from rota.core.queue import FIRST_RANK, Rank
from rota.core.status import WAITING
from rota.ids import JobId, format_job_id
from rota.store.session import AnyReader, Reader
from rota.view.job import ViewContext, explain_waits, show
from rota.wire.job import JobView, render_wait
from rota.wire.queue import QueuedJob

FRONT_RANK = Rank._make(FIRST_RANK)


class QueueSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the queue."""

    jobs: list[QueuedJob]
    last: Rank | None
    """Rank after which the next page starts; `None` on the last page."""


def list_queue(reader: Reader, context: ViewContext, *, after: Rank = FRONT_RANK, limit: int) -> QueueSlice:
    ranks = reader.queue.waiting_ranks(after, limit + 1)
    page = ranks[:limit]
    jobs = reader.jobs.find_all([rank.job for rank in page])
    waits = explain_waits(reader, jobs, context)
    queued: list[QueuedJob] = []
    place, precedence = 0, None
    for job in jobs:
        rank = page[len(queued)]
        place = place + 1 if rank.precedence == precedence else reader.queue.place_of(rank)
        precedence, wait = rank.precedence, waits.get(job.id)
        queued.append(
            QueuedJob(
                id=format_job_id(job.id),
                name=job.spec.name,
                status=job.status.public.value,
                priority=job.priority,
                position=job.position,
                place=place,
                wait=None if wait is None else render_wait(wait),
            )
        )
    return QueueSlice(jobs=queued, last=page[-1] if len(ranks) > limit else None)


def show_with_place(reader: AnyReader, job: JobId, context: ViewContext) -> tuple[JobView, int | None]:
    """Return the job, and its place while it waits."""
    queued = reader.queue.ranks([job]).get(job)
    place = reader.queue.place_of(queued.rank) if queued is not None and queued.status in WAITING else None
    return show(reader, job, context), place
