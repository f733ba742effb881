"""What the engine knows of the world outside, and how it learns of changes there.

The tick does no I/O: artifacts and heads are looked at by the prober, in a thread of its own, and what it saw comes
back as a request.

    look ── undecided ──▶ prober ──▶ observe ──▶ the job is looked at again
    plan ── to be certain ──▶ prober ──▶ observe ──▶ claimed, if it is still so
    a timer, or `rota tick` ──▶ all that is watched ──▶ observe what has changed
    submit, rewind ──▶ bring what they saw themselves

A job that needs artifacts or is pinned starts only in a turn that brings what was seen of them, by a look that began
after it was chosen, or after any run last ended: however old the sight that let it pass, what starts was looked at a
moment before. In the same way a job is blocked for want of an artifact only by a look that began after it was found to
be missing, for that is an end. What was seen is kept in memory only (`known.py`), for nobody knows what happened
outside while no scheduler ran.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from rota.core.artifact import Outside, Places, fact_of, judge_needs, names_of
from rota.core.fact import Fact, File, Head, Seen
from rota.core.gate import Facts, Standing
from rota.core.pinned_head import judge_pin
from rota.core.snapshot import Claim
from rota.core.status import Status
from rota.core.tick import Placement, look
from rota.core.verdict import PASS
from rota.engine.known import Known
from rota.engine.work import Question, Work
from rota.ids import JobId
from rota.probe.port import Probe
from rota.store.session import Looking


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen, and whom it concerns."""

    seen: Mapping[Fact, Seen]
    began: int
    """The number of the look."""
    questions: Sequence[Question] = ()
    """Who wanted to know."""


def watched(reader: Looking, places: Places) -> frozenset[Fact]:
    """All that the jobs which wait hang on."""
    facts = (fact_of(made.need, places) for made in reader.watched_artifacts())
    return frozenset((*(fact for fact in facts if fact is not None), *reader.watched_heads()))


def look_at(facts: Collection[Fact], probe: Probe, known: Known, questions: Sequence[Question] = ()) -> Sighting:
    """Takes as long as the file system does; not inside a transaction."""
    began = known.begin()
    return Sighting(seen=probe.look(facts) if facts else {}, began=began, questions=questions)


def changes(sighting: Sighting, known: Mapping[Fact, Seen]) -> Sighting:
    """Only what is news."""
    seen = {fact: seen for fact, seen in sighting.seen.items() if fact not in known or known[fact] != seen}
    return msgspec.structs.replace(sighting, seen=seen)


def observe(work: Work, sighting: Sighting) -> None:
    """Take up what was seen; the jobs that this concerns are looked at again."""
    work.learn(sighting.seen, sighting.began)
    for question in sighting.questions:
        work.answered.add(question.job)
        if question.is_undecided:
            work.session.stir(question.job)


def stir_changed(work: Work) -> None:
    """Who hangs on what is news is looked at again, whoever brought it."""
    if not work.changed:
        return
    places = work.settings.places
    names = [name for fact in work.changed if isinstance(fact, File) for name in names_of(fact, places)]
    numbers = work.session.numbers_named(names)
    for repository in sorted({fact.repository for fact in work.changed if not isinstance(fact, File)}):
        made = work.session.artifacts_in(repository)
        numbers += [each.id for each in made if fact_of(each.need, places) in work.changed]
    work.session.stir_needing(numbers)
    for fact in work.changed:
        if isinstance(fact, Head):
            work.session.stir_pinned(fact)


def disturb(work: Work, chain: JobId) -> None:
    """Something happened to a chain that makes artifacts: what was seen of them counts no more, and who needs them
    is looked at again."""
    made = work.session.made_by(chain)
    work.overlook(fact for each in made if (fact := fact_of(each.need, work.settings.places)) is not None)
    work.session.stir_needing([each.id for each in made])


def ask_for(work: Work, standings: Iterable[Standing], placements: Iterable[Placement]) -> None:
    """Let those facts be looked at without which the look could not decide."""
    for standing, placement in zip(standings, placements, strict=True):
        work.watches |= bool(standing.needs) or standing.pin is not None
        if placement.is_undecided:
            _ask(work, standing, is_undecided=True)


def confirmed(
    work: Work, standings: Sequence[Standing], placements: Sequence[Placement], facts: Facts
) -> list[Placement]:  # fmt: skip
    """The same, but for those that would be blocked by what was seen a while ago: they are undecided until it is looked
    at once more. What a turn brings itself was seen a moment ago, if no run has ended since."""
    blind = msgspec.structs.replace(facts, outside=Outside(seen={}, places=work.settings.places))
    sure = list(placements)
    for n, (standing, placement) in enumerate(zip(standings, placements, strict=True)):
        job, doubted = standing.rank.job, work.known.doubted
        if not standing.needs or placement.to is not Status.BLOCKED_BY_DEPENDENCY or _is_certain(work, standing):
            doubted.pop(job, None)
            continue
        (sure[n],) = look([standing], blind)
        if sure[n].is_undecided:
            doubted.setdefault(job, work.known.begin())
    return sure


def _is_certain(work: Work, standing: Standing) -> bool:
    asked = work.known.doubted.get(standing.rank.job)
    if asked is None:
        return all(work.began.get(fact, 0) > work.known.last_end for fact in standing.facts(work.outside))
    return all(max(work.began.get(fact, 0), work.known.since(fact)) > asked for fact in standing.facts(work.outside))


def _ask(work: Work, standing: Standing, *, is_undecided: bool) -> None:
    facts = tuple(standing.facts(work.outside))
    work.questions.append(Question(job=standing.rank.job, facts=facts, is_undecided=is_undecided))


def certain(work: Work, claims: Sequence[Claim]) -> tuple[tuple[Claim, ...], bool]:
    """Of what was chosen, what may start in this turn, and whether somebody was marked for another look instead. Of the
    rest, what it hangs on is looked at now; its room is kept meanwhile, and nobody behind it takes it."""
    work.asked = {}
    asking = [claim.job for claim in claims if claim.asks]
    if not asking:
        return tuple(claims), False
    standings = {standing.rank.job: standing for standing in work.session.standings(asking)}
    making = work.session.made_by_jobs([claim.job for claim in claims])
    being_made: set[tuple[str, str]] = set()
    sure, has_marked = [], False
    for claim in claims:
        standing = standings.get(claim.job)
        if standing is not None and not _is_fresh(work, standing, being_made):
            _ask_again(work, standing)
            continue
        if standing is not None and not _passes(work, standing):
            work.session.stir(claim.job)
            has_marked = True
            continue
        sure.append(claim)
        being_made.update(making.get(claim.job, ()))
    return tuple(sure), has_marked


def _ask_again(work: Work, standing: Standing) -> None:
    """Once for each time that it is chosen; who waits for an answer goes on waiting for it."""
    job, asked = standing.rank.job, work.known.asked
    is_pending = job in asked and job not in work.answered
    work.asked = {**(work.asked or {}), job: asked[job] if is_pending else work.known.begin()}
    if not is_pending:
        _ask(work, standing, is_undecided=False)


def _passes(work: Work, standing: Standing) -> bool:
    """What another wanted to know may have changed it."""
    outside = work.outside
    return judge_needs(standing.needs, outside) is PASS and judge_pin(standing.pin, outside) is PASS


def _is_fresh(work: Work, standing: Standing, being_made: Collection[tuple[str, str]]) -> bool:
    """This turn brings what was seen of all it hangs on, by a look that began after the last end of a run, or after it
    was chosen."""
    if any((need.scope, str(need.artifact)) in being_made for need in standing.needs):
        return False
    since = min(work.known.last_end, work.known.asked.get(standing.rank.job, work.known.last_end))
    return all(work.began.get(fact, 0) > since for fact in standing.facts(work.outside))
