"""How a group gets on, for somebody who follows it: what runs, and what has ended since he last looked."""

from __future__ import annotations

from rota.errors import InvalidInput
from rota.ids import JobId, show_job
from rota.store.session import Reader
from rota.wire.group import group_form
from rota.wire.progress import EndedForm, ProgressForm, RunningForm

_MOST_ENDED = 500
_MOST_RUNNING = 20


def progress(reader: Reader, group: str, seen: str | None) -> ProgressForm:
    found = reader.group_called(group)
    form = group_form(found, reader.tallies([found])[found.id])
    since = _since(seen)
    ended = reader.ended_since(found.id, since, limit=_MOST_ENDED)
    running = reader.running_in(found.id, limit=_MOST_RUNNING)
    at, job = ended[-1].since if ended else since
    return ProgressForm(
        id=form.id,
        name=form.name,
        status=form.status,
        counts=form.counts,
        total=form.total,
        running=[RunningForm(id=show_job(one.job), name=one.name, started_at=one.started_at) for one in running],
        ended=[
            EndedForm(
                id=show_job(one.job), name=one.name, status=one.status.shown.value, reason=one.reason,
                exit_code=one.exit_code, retried_as=_shown(one.retried_as),
            )
            for one in ended
        ],
        seen=".".join(map(str, (at, job, *(one.job for one in running)))),
    )  # fmt: skip


def _shown(job: JobId | None) -> str | None:
    return None if job is None else show_job(job)


def _since(seen: str | None) -> tuple[int, int]:
    try:
        at, job = (0, 0) if seen is None else (int(part) for part in seen.split(".")[:2])
    except ValueError:
        raise _no_mark(seen) from None
    if not (0 <= at < 2**62 and 0 <= job < 2**62):
        raise _no_mark(seen)
    return at, job


def _no_mark(seen: str | None) -> InvalidInput:
    return InvalidInput(f"not a mark of progress: {seen!r}; use the `seen` of the answer before").under(".seen")
