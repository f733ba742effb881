"""Jobs as people and programs see them, each with why it waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from rota.core.breaker import BreakerPolicy
from rota.core.gate import Facts, first_verdict
from rota.core.job import Job
from rota.core.lock import LockBoard
from rota.core.pool import Limits
from rota.core.status import WAITING
from rota.core.verdict import Wait
from rota.engine.dispatch import choose
from rota.errors import NotFound
from rota.ids import JobId, show_job
from rota.report import session_path
from rota.store.session import Reader
from rota.wire import JobForm, job_form


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What every view needs beside the store: the limits in force, the time, where the jobs' files are."""

    limits: Limits
    batch_size: int | None
    now: datetime
    jobs: Path
    breaker: BreakerPolicy = BreakerPolicy()
    held_by: str | None = None
    """Why nothing at all starts, whatever the gates say."""


def waits(reader: Reader, jobs: Sequence[Job], sight: Sight) -> dict[JobId, Wait]:
    """Why each of these waits, said by the gates themselves; a job that starts with the next tick is not here."""
    waiting = [job.id for job in jobs if job.status in WAITING]
    if not waiting:
        return {}
    standings = reader.standings(waiting)
    planned = choose(reader, sight.limits, sight.batch_size)
    starting = {claim.job for claim in planned.claims}
    facts = Facts(
        now=sight.now,
        pauses=planned.pauses,
        locks=LockBoard(reader.fronts(lock.key for standing in standings for lock in standing.locks)),
        pools=planned.pools,
    )
    verdicts = {
        standing.rank.job: first_verdict(standing, facts) for standing in standings if standing.rank.job not in starting
    }
    return {job: verdict for job, verdict in verdicts.items() if isinstance(verdict, Wait)}


def find(reader: Reader, job: JobId) -> Job:
    found = reader.job(job)
    if found is None:
        raise NotFound(f"no such job: {show_job(job)}; `rota list --all` shows what there is")
    return found


def forms(reader: Reader, jobs: Sequence[Job], sight: Sight) -> list[JobForm]:
    why = waits(reader, jobs, sight)
    return [
        job_form(
            job,
            sight.jobs,
            wait=why.get(job.id),
            session_path=None if job.run is None else session_path(sight.jobs / str(job.id)),
        )
        for job in jobs
    ]


def show(reader: Reader, job: JobId, sight: Sight) -> JobForm:
    return forms(reader, [find(reader, job)], sight)[0]
