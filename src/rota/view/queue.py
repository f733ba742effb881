"""The queue: what waits, in the order in which it would go."""

from __future__ import annotations

import msgspec

from rota.core.queue import Rank
from rota.core.status import WAITING
from rota.ids import JobId, show_job
from rota.store.record import FIRST_RANK
from rota.store.session import Looking, Reader
from rota.view.job import Sight, show, waits
from rota.wire.job import JobForm, wait_form
from rota.wire.queue import QueueForm

FRONT = Rank._make(FIRST_RANK)


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[QueueForm]
    last: Rank | None
    """Where the next page goes on; none when this is the last."""


def queue(reader: Reader, sight: Sight, *, behind: Rank = FRONT, limit: int) -> QueuePage:
    ranks = reader.waiting_line(behind, limit + 1)
    shown = ranks[:limit]
    jobs = reader.jobs([rank.job for rank in shown])
    why = waits(reader, jobs, sight)
    forms: list[QueueForm] = []
    place, precedence = 0, None
    for job in jobs:
        rank = shown[len(forms)]
        place = place + 1 if rank.precedence == precedence else reader.place_of(rank)
        precedence, wait = rank.precedence, why.get(job.id)
        forms.append(
            QueueForm(
                id=show_job(job.id), name=job.spec.name, status=job.status.shown.value, priority=job.priority,
                position=job.position, place=place,
                wait=None if wait is None else wait_form(wait),
            )
        )  # fmt: skip
    return QueuePage(jobs=forms, last=shown[-1] if len(ranks) > limit else None)


def placed(reader: Looking, job: JobId, sight: Sight) -> tuple[JobForm, int | None]:
    """The job, and its place while it waits."""
    found = reader.queued([job]).get(job)
    place = reader.place_of(found.rank) if found is not None and found.status in WAITING else None
    return show(reader, job, sight), place
