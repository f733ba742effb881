"""Who starts in a turn, and who is left behind in it: judged at its commit, from the records of all (INV-004).

The referee is shown everything as it was before anybody of this turn started. Whoever started is among those that he
lets start. Whoever is left behind while somebody further down the queue started is not, or is still being looked at
outside. And nobody is passed: who stands first for a pool that has no room for him keeps it from all behind him, and
so does who waits for a key that another wants too (DESIGN 4). So the number of later ones that take what an earlier one
waits for is not only bounded, it is nought.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from engine.referee import Party, Referee, used
from rota.core.event import Event
from rota.core.job import Job
from rota.core.pool import Limits
from rota.core.slot import Slot, SlotState, owner_of
from rota.core.status import Status
from rota.ids import JobId, parse_slot

if TYPE_CHECKING:
    from sim.judge import Judge
    from sim.simulation import Simulation


class Order:
    def __init__(self, simulation: Simulation, judge: Judge) -> None:
        self._sim = simulation
        self._raw = judge.raw
        self._started: set[JobId] = set()
        self._later: set[JobId | None] = set()
        """Who starts now or after that."""
        self._passed: set[JobId] = set()
        self._undecided: set[JobId] = set()
        self._now = simulation.hands.now()
        self._is_held = False
        self._sizes: dict[str, int] = {}

    def at_commit(self, events: Sequence[Event]) -> None:
        """What the executor took by itself it took before anything of this turn: it goes by what was so at the commit
        before it."""
        causes = {event.cause for event in events if _started(event) is not None}
        if causes != {"ahead"}:
            self._see()
        self._judge_all(events)
        self._see()

    def _see(self) -> None:
        self._now, self._is_held = self._sim.clock.now(), self._sim.engine.held is not None
        self._sizes = dict(self._sim.sizes)

    def _judge_all(self, events: Sequence[Event]) -> None:
        """What was taken one after the other is judged so, what was claimed together together."""
        starts = [n for n, event in enumerate(events) if _started(event) is not None]
        alone = [n for n in starts if events[n].cause == "ahead"]
        together = [n for n in starts if events[n].cause != "ahead"]
        for numbers in (*([n] for n in alone), together):
            if numbers and not self._is_unclear():
                self._started = {owner for n in numbers if (owner := _started(events[n])) is not None}
                self._later = {event.job for event in events[numbers[0] :] if event.kind == "job.dispatched"}
                self._judge_some()

    def _judge_some(self) -> None:
        ready = {JobId(job) for (job,) in self._raw("SELECT id FROM job WHERE ready = 1")}
        contending = {JobId(job) for (job,) in self._raw("SELECT job FROM lock WHERE state = 'contending'")}
        self._passed, self._undecided = ready | contending, contending - ready
        self._judge(self._referee())

    def _is_unclear(self) -> bool:
        """A breaker lets one through, and a clearing ends jobs bit by bit: who may start then is theirs to say."""
        clearing = self._raw("SELECT 1 FROM meta WHERE key = 'clearing' AND value NOT IN ('', '[]')")
        return bool(self._sim.reader.breakers() or self._sim.engine.clearings or clearing)

    def _referee(self) -> Referee:
        paused = {scope for (scope,) in self._raw("SELECT scope FROM pause")}
        if self._is_held:
            paused.add("global")
        jobs = [self._before(job) for job in self._sim.reader.jobs(self._sim.ids())]
        slots = [self._slot_before(slot) for slot in self._sim.reader.open_slots()]
        self._undecided &= {job.id for job in jobs if self._asks(job)}
        return Referee(jobs, slots, self._sizes, paused, self._now, self._outside, self._undecided)

    def _before(self, job: Job) -> Job:
        """One that could not be started is put off by that, and not before."""
        if job.id not in self._later:
            return job
        is_put_off = job.status is Status.QUEUED
        return msgspec.structs.replace(job, status=Status.QUEUED, not_before=None if is_put_off else job.not_before)

    def _slot_before(self, slot: Slot) -> Slot:
        is_new = owner_of(slot.id) in self._started
        return msgspec.structs.replace(slot, state=SlotState.WAITING) if is_new else slot

    def _outside(self, job: Job) -> str | None:
        """Who hangs on the world outside goes by what was last seen of it, which the store knows. After a restart
        nothing is: who waited for a key keeps its turn there, and for a pool it counts when it has been looked at."""
        return "dependencies" if self._asks(job) and job.id not in self._passed | self._started else None

    def _asks(self, job: Job) -> bool:
        return bool(job.spec.needs) or job.spec.pinned_head is not None

    def _judge(self, referee: Referee) -> None:
        everybody = {party.owner: party for party in (*referee.slots, *referee.jobs)}
        begun = sorted((everybody[owner] for owner in self._started), key=lambda party: party.rank)
        left = [party for party in referee.contenders if party.owner not in self._started]
        for party in left:
            self._check_not_passed(party, referee, [other for other in begun if other.rank > party.rank])
        for party in begun:
            assert party in referee.able, f"{party.owner} starts, though {referee.kind(party)} keeps it"
        for party in referee.able:
            is_passed = party.rank < begun[-1].rank and party.owner not in self._started
            assert not is_passed or self._is_asking(party), f"{begun[-1].owner} starts before {party.owner}"

    def _is_asking(self, party: Party) -> bool:
        """What it hangs on is looked at once more before it starts, and its room is kept."""
        return party.owner > 0 and self._asks(self._sim.job(party.owner))

    def _check_not_passed(self, party: Party, referee: Referee, later: list[Party]) -> None:
        for other in later:
            assert not party.clashes(other), f"{other.owner} passes {party.owner}, which waits for its key"
        if not later or party.owner < 0 or party.owner in self._undecided or referee.barred(party):
            return
        limits = Limits(self._sizes)
        limited = {pool for pool in party.draws if limits.size(pool) is not None}
        earlier = [other for other in referee.contenders if other.rank < party.rank]
        before = [other for other in earlier if other.owner not in self._undecided]
        if any(limited & other.draws.keys() for other in before if other.owner not in self._started):
            return  # it is not its turn in one of them
        total = used([*referee.running, *(other for other in before if other.owner in self._started)])
        for pool in limited:
            size = limits.size(pool) or 0
            if total.get(pool, 0) + party.draws[pool] > size:
                passing = [other.owner for other in later if pool in other.draws]
                assert not passing, f"{passing} pass {party.owner}, which waits for {pool}"


def _started(event: Event) -> JobId | None:
    if event.kind == "slot.started":
        return owner_of(parse_slot(str(event.data["slot"])))
    return event.job if event.kind == "job.dispatched" else None
