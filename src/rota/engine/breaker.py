"""Breakers, inside a transaction: what ends, starts and time make of them.

A run that is no probe costs nothing when it does not fail, and one statement when it does, unless that opens a breaker.
"""

from __future__ import annotations

from datetime import datetime

from rota.core.breaker import (
    Closed,
    HalfOpen,
    Open,
    Probed,
    State,
    Told,
    after_end,
    after_while,
    told_by,
)
from rota.core.run import Conclusion
from rota.core.tick import Plan
from rota.engine.work import Work
from rota.ids import JobId
from rota.store.claim import OpenRun

PROBES = 100
"""Parked jobs that are looked at in one go when one may try: some of them may still have to wait for their locks."""


def book_end(work: Work, run: OpenRun, end: Conclusion, *, at: datetime) -> None:
    """A run has ended."""
    told = told_by(end)
    failures = work.settings.breaker.failures
    if told is Told.BAD and run.keys and failures is not None:
        since = work.now - work.settings.breaker.window
        for tally in work.session.add_failure(run.keys, at, since=since, most=failures):
            _book(work, tally.key, tally.state, run.job, told, recent=tally.others + (at > since))
    elif run.is_probe:
        _book_probe(work, run.job, told)


def book_nothing(work: Work, run: OpenRun) -> None:
    """A claim came to nothing: if it was to try, another may."""
    if run.is_probe:
        _book_probe(work, run.job, Told.NOTHING)


def book_plan(work: Work, chosen: Plan) -> bool:
    """Of what was just claimed some may be the ones that try: the others of their kind, which may have come as far as
    their locks meanwhile, are held again. Where nobody could try, the next that are parked have their look. Whether
    somebody was marked, so that another turn should follow."""
    probes = [(key, claim.job) for claim in chosen.claims for key in claim.probes]
    for key, job in probes:
        _change(work, key, Probed(job), cause="tick", job=job)
    untried = () if chosen.is_cut_short else chosen.pauses.breakers.untried
    has_next = bool(untried) and work.session.stir_idle(untried, chosen.pauses, PROBES)
    return has_next or bool(probes)


def book_time(work: Work) -> None:
    """What is over its time, or not wanted any more, changes."""
    for record in work.session.breakers():
        after = after_while(record.state, work.settings.breaker, work.now)
        if after != record.state:
            _change(work, record.key, after, cause="tick")


def close(work: Work, key: str, *, actor: str) -> None:
    """By hand."""
    _change(work, key, Closed(), cause="breaker", actor=actor)


def _book_probe(work: Work, job: JobId, told: Told) -> None:
    for record in work.session.breakers():
        if record.state == Probed(job):
            _book(work, record.key, record.state, job, told, recent=0)


def _book(work: Work, key: str, state: State, job: JobId, told: Told, *, recent: int) -> None:
    after = after_end(state, job, told, recent=recent, policy=work.settings.breaker, now=work.now)
    if after != state:
        _change(work, key, after, cause="executor", job=job)


def _change(
    work: Work, key: str, after: State, *, cause: str, actor: str | None = None, job: JobId | None = None
) -> None:
    """Store it, and mark whom it concerns beyond the lanes: jobs with locks."""
    work.session.set_breaker(key, after, now=work.now, cause=cause, actor=actor, job=job)
    lanes = work.session.lanes_of(key)
    match after:
        case Open() | Probed():
            work.session.stir_contending(lanes)
        case HalfOpen():
            work.session.stir_parked(lanes, PROBES)
        case Closed():
            work.session.stir_parked(lanes)
