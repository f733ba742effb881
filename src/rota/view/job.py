"""Jobs as people and programs see them, each with why it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from rota.core.artifact import Outside
from rota.core.backpressure import QueueLimits
from rota.core.breaker import BreakerPolicy, keys_of
from rota.core.control import NOTHING_HELD, Holds, scopes_of
from rota.core.gate import OF_READY, Facts, Standing, first_verdict
from rota.core.job import Job
from rota.core.lock import LockBoard
from rota.core.pace import Outlook
from rota.core.pool import Limits
from rota.core.queue import Rank
from rota.core.status import WAITING
from rota.core.verdict import PASS, Pass, Unknown, Verdict, Wait
from rota.engine.dispatch import choose, choose_all
from rota.engine.work import Work
from rota.ids import JobId, LaneId
from rota.report import session_path, worktree_path
from rota.store.session import Looking
from rota.store.submit import NewJob
from rota.wire.job import JobForm, job_form


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What every view needs beside the store: the limits in force, the time, where the jobs' files are."""

    limits: Limits
    batch_size: int | None
    now: datetime
    jobs: Path
    breaker: BreakerPolicy = BreakerPolicy()
    held_by: str | None = None
    """Why nothing at all starts, whatever the gates say."""
    holds: Holds = NOTHING_HELD
    outside: Outside = Outside()
    outlook: Outlook = Outlook()
    queue: QueueLimits = QueueLimits()


def waits(reader: Looking, jobs: Sequence[Job], sight: Sight) -> dict[JobId, Wait]:
    """Why each of these waits, said by the gates themselves; a job that starts with the next tick is not here."""
    return waits_of(reader, [job.id for job in jobs if job.status in WAITING], sight)


def waits_of(reader: Looking, waiting: Sequence[JobId], sight: Sight) -> dict[JobId, Wait]:
    """The same of jobs that are known to wait."""
    if not waiting:
        return {}
    standings = reader.standings(waiting)
    contending = [standing.rank.job for standing in standings if standing.locks]
    # Where nothing starts in this moment, nobody has taken room before the others.
    most = 0 if sight.outlook.is_for_later(sight.now) else sight.batch_size
    planned = choose(reader, sight.limits, most, holds=sight.holds)
    starting = {claim.job for claim in planned.claims}
    facts = Facts(
        now=sight.now,
        pauses=planned.pauses,
        locks=LockBoard(reader.fronts_of(contending) if contending else {}),
        pools=planned.pools,
        outside=sight.outside,
    )
    said = {
        standing.rank.job: _said(PASS if standing.rank.job in starting else first_verdict(standing, facts), sight)
        for standing in standings
    }
    return {job: wait for job, wait in said.items() if wait is not None}


def next_starts(reader: Looking, sight: Sight) -> set[JobId]:
    """What the next tick starts, as things stand."""
    chosen = choose_all(reader, sight.limits, sight.batch_size, holds=sight.holds, is_left=True)
    return {claim.job for claim in chosen.claims}


def _said(verdict: Verdict, sight: Sight) -> Wait | None:
    match verdict:
        case Pass():
            return sight.outlook.wait(sight.now)
        case Wait():
            return verdict
        case Unknown():
            return verdict.meanwhile
        case _:
            return None


def find(reader: Looking, job: JobId) -> Job:
    found = reader.job(job)
    if found is None:
        raise reader.no_such_job(job)
    return found


def forms(reader: Looking, jobs: Sequence[Job], sight: Sight) -> list[JobForm]:
    why = waits(reader, jobs, sight)
    return [
        job_form(
            job,
            sight.jobs,
            wait=why.get(job.id),
            session_path=None if job.current_run is None else session_path(f"{sight.jobs}/{job.id}"),
            worktree=None if job.spec.workspace is None else worktree_path(f"{sight.jobs}/{job.id}"),
        )
        for job in jobs
    ]


def just_stored(
    work: Work, jobs: Sequence[JobId], new: Mapping[JobId, NewJob], sight: Sight
) -> Mapping[JobId, JobForm]:
    """Jobs at the end of the turn that stored them, or found them stored: of most all is at hand, and the others
    are looked up together."""
    shown: dict[JobId, JobForm] = {}
    plan = work.plan
    if plan is not None:
        chosen = {claim.job for claim in plan.claims}
        facts = Facts(now=work.now, pauses=plan.pauses, locks=LockBoard({}), pools=plan.pools)
        shown = {
            job: _fresh(new[job], work.now, facts, sight)
            for job in jobs
            if job in new and new[job].is_ready and job not in chosen
        }
    rest = work.session.jobs([job for job in jobs if job not in shown])
    return shown | dict(zip((job.id for job in rest), forms(work.session, rest, sight), strict=True))


def _fresh(new: NewJob, now: datetime, facts: Facts, sight: Sight) -> JobForm:
    """A job that was stored in this very turn, ready, and not chosen to start: all of it is at hand."""
    job = new.as_stored(now)
    standing = Standing(
        rank=Rank(-job.priority, job.position, 0, job.id),
        chain=job.chain,
        status=job.status,
        wait_kind=None,
        waited_on=(),
        is_ready=True,
        scopes=scopes_of(job.draws, job.spec.type, job.spec.flow, job.spec.target),
        keys=keys_of(job.spec.type, job.spec.target),
        contends=False,
        not_before=None,
        lane=LaneId(0),
        draws=job.draws,
        locks=(),
        edges=(),
    )
    return job_form(job, sight.jobs, wait=_said(first_verdict(standing, facts, OF_READY), sight))


def show(reader: Looking, job: JobId, sight: Sight) -> JobForm:
    return forms(reader, [find(reader, job)], sight)[0]
