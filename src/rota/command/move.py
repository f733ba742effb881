"""`move` and `reorder`: another place for jobs that wait, among those of their priority (DEC-005)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec

from rota.command.edit import whom_to_ask
from rota.core.queue import Rank, are_told_apart, position_behind, position_between
from rota.core.status import STARTED, WAITING
from rota.engine.work import Work
from rota.errors import Conflict, InvalidInput, within
from rota.ids import JobId, parse_job, show_job
from rota.store.move import Queued, ends_of
from rota.wire.text import JobText


class Move(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to: one of these."""

    first: bool = False
    """Before all others of its priority."""
    last: bool = False
    """Behind all others of its priority."""
    to: Annotated[int, msgspec.Meta(le=2**53)] | None = None
    """To this place among those of its priority, from 1; higher than there are is the last."""
    before: JobText | None = None
    """Right before this job, which waits too."""
    after: JobText | None = None
    """Right behind this job, which waits too."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    jobs: list[JobId]
    has_moved: bool
    """Else they stood there already."""


Bounds = tuple[Rank | None, Rank | None]
"""Between whom; none where nobody waits on that side."""


def move(work: Work, job: JobId, wanted: Move, *, actor: str) -> Moved:
    find = _finder(job, wanted)
    mover = _waiting(work, job, "moved")
    lower, upper = find(work, mover)
    if (lower is None or lower < mover.rank) and (upper is None or mover.rank < upper):
        return Moved(jobs=[job], has_moved=False)
    position = _position(work, lower, upper)
    if position is None:
        work.session.respace(mover.rank.precedence, now=work.now)
        mover = work.session.queued([job])[job]
        position = _position(work, *find(work, mover))
    if position is None:
        raise Conflict(f"there is no room for {show_job(job)}; nothing was moved")
    _store(work, [mover.rank._replace(position=position)], [mover.rank.position], actor)
    return Moved(jobs=[job], has_moved=True)


def reorder(work: Work, order: Sequence[str], *, actor: str) -> Moved:
    """These share out the places they have among them, in this order; all others stay where they are."""
    jobs = _named(order)
    found = work.session.queued(jobs)
    for n, job in enumerate(jobs):
        with within(f".order[{n}]"):
            _refuse_unless_waiting(work, job, found, "reordered")
            _refuse_other_priority(found[jobs[0]], found[job])
    line = [found[job] for job in jobs]
    ranks = [each.rank for each in line]
    if ranks == sorted(ranks):
        return Moved(jobs=jobs, has_moved=False)
    precedence, positions = ranks[0].precedence, [rank.position for rank in ranks]
    if not are_told_apart(positions) or work.session.is_crowded(precedence, positions):
        work.session.respace(precedence, now=work.now)
        found = work.session.queued(jobs)
        ranks = [found[job].rank for job in jobs]
        positions = [rank.position for rank in ranks]
    moved = [
        (rank._replace(position=position), rank.position)
        for rank, position in zip(ranks, sorted(positions), strict=True)
        if rank.position != position
    ]
    _store(work, [rank for rank, _ in moved], [was for _, was in moved], actor)
    return Moved(jobs=jobs, has_moved=True)


def _named(order: Sequence[str]) -> list[JobId]:
    """Each once."""
    jobs: dict[JobId, None] = {}
    for n, text in enumerate(order):
        with within(f".order[{n}]"):
            job = parse_job(text)
            if job in jobs:
                raise InvalidInput(f"{show_job(job)} is named more than once; name each job once")
        jobs[job] = None
    return list(jobs)


def _store(work: Work, ranks: Sequence[Rank], was: Sequence[int], actor: str) -> None:
    if not work.session.move(ranks, was, now=work.now, actor=actor):
        raise Conflict("a job was changed by somebody else meanwhile; nothing was moved, so try again")


def _waiting(work: Work, job: JobId, moved: str) -> Queued:
    """As it stands, if it is there and waits."""
    found = work.session.queued([job])
    _refuse_unless_waiting(work, job, found, moved)
    return found[job]


def _refuse_unless_waiting(work: Work, job: JobId, found: Mapping[JobId, Queued], moved: str) -> None:
    if job not in found:
        raise work.session.no_such_job(job)
    status = found[job].status
    if status in STARTED:
        raise Conflict(f"{show_job(job)} is {status.shown}: only what waits can be {moved}")
    if status not in WAITING:
        raise Conflict(f"{show_job(job)} has ended ({status}) and cannot be {moved}; {whom_to_ask(work, job, status)}")


def _refuse_other_priority(one: Queued, other: Queued) -> None:
    if other.rank.precedence != one.rank.precedence:
        raise Conflict(
            f"{show_job(other.job)} has priority {-other.rank.precedence} and {show_job(one.job)} has"
            f" {-one.rank.precedence}: places are within a priority;"
            f" `rota edit {show_job(one.job)} --priority {-other.rank.precedence}` changes that first"
        )


def _position(work: Work, lower: Rank | None, upper: Rank | None) -> int | None:
    if upper is not None:
        return position_between(None if lower is None else lower.position, upper.position)
    if lower is None:
        raise AssertionError("one that is alone in its priority stands where it is to stand")
    return position_behind(lower.position, work.session.upcoming())


def _finder(job: JobId, wanted: Move) -> Callable[[Work, Queued], Bounds]:
    """How to find between whom it is to stand."""
    asked = [name for name, value in msgspec.structs.asdict(wanted).items() if value is not None and value is not False]
    if len(asked) != 1:
        said = "say where to move it, in one way: first, last, to N, before JOB or after JOB"
        raise InvalidInput(said).under(f".{asked[1]}" if asked else "")
    if wanted.to is not None:
        if wanted.to < 1:
            said = f"places are counted from 1, so there is no place {wanted.to}; `first` is place 1"
            raise InvalidInput(said).under(".to")
        place = wanted.to
        return lambda work, mover: _at(work, mover, place)
    if wanted.before is not None or wanted.after is not None:
        is_before = wanted.before is not None
        with within(f".{asked[0]}"):
            other = parse_job(wanted.before or wanted.after or "")
            if other == job:
                raise InvalidInput(f"{show_job(job)} cannot stand {asked[0]} itself; name another job")
        return lambda work, mover: _beside(work, mover, other, is_before=is_before)
    if wanted.first:
        return lambda work, mover: _at(work, mover, 1)
    return lambda work, mover: (work.session.waits_before(ends_of(mover.rank.precedence)[1], but=mover.job), None)


def _at(work: Work, mover: Queued, place: int) -> Bounds:
    """Before the one that is at this place when the job itself is out of the way."""
    start, end = ends_of(mover.rank.precedence)
    upper = work.session.waits_behind(start, but=mover.job, skipped=place - 1)
    if upper is not None:
        return work.session.waits_before(upper, but=mover.job), upper
    lower = work.session.waits_before(end, but=mover.job)
    places = 1 if lower is None else work.session.place_of(max(lower, mover.rank))
    if place > places:
        raise Conflict(
            f"there is no place {place}: {places} {'job waits' if places == 1 else 'jobs wait'} at priority"
            f" {-mover.rank.precedence}; `last` puts it last"
        ).under(".to")
    return lower, None


def _beside(work: Work, mover: Queued, other: JobId, *, is_before: bool) -> Bounds:
    with within(".before" if is_before else ".after"):
        mark = _waiting(work, other, "a mark for others")
        _refuse_other_priority(mover, mark)
    if is_before:
        return work.session.waits_before(mark.rank, but=mover.job), mark.rank
    return mark.rank, work.session.waits_behind(mark.rank, but=mover.job)
