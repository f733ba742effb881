"""What is true after every step, whatever happened in it.

The store is asked in SQL past its own verbs, the children in the supervisor's memory are the truth about what ran, and
the referee works out the slow way who may start and why the others wait.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.referee import Party, Referee, of_job, of_slot, used
from rota.core.event import Event
from rota.core.job import Job
from rota.core.pool import Limits
from rota.core.slot import SlotState, owner_of
from rota.core.status import STARTED, TERMINAL, WAITING, Status
from rota.executor.port import Acknowledge, Ahead, Order, Start, Stop
from rota.ids import JobId, RunId, SlotId, parse_slot, show_job
from rota.view import slot as view_slot
from rota.view.job import forms
from sim.accepted import Accepted
from sim.ends import Ends
from sim.order import Order as QueueOrder
from sim.outside import Outside
from sim.schedule import Fires
from sim.template import Snapshots
from sim.webhook import Deliveries
from store.invariants import check_store

if TYPE_CHECKING:
    from sim.simulation import Simulation

_GONE = {f"job.{status.lower()}" for status in (*TERMINAL, Status.QUEUED)} | {"slot.ended", "slot.returned"}
_WAITS = {
    "dependencies": Status.WAITING_ON_DEPS,
    "pinned_head": Status.WAITING_ON_DEPS,
    "locks": Status.WAITING_ON_LOCKS,
}


class Judge:
    def __init__(self, simulation: Simulation, path: Path) -> None:
        self._sim = simulation
        self._path = path
        self.paused: set[str] = set()
        self.running: dict[JobId, Party] = {}
        """What has started and is not over, by the events."""
        self.new: list[Party] = []
        self._seen = 0
        self._stopped: set[RunId] = set()
        self._was_held = False
        self._waited: set[JobId] = set()
        self._fixed: dict[int, list[Any]] = {}
        self._ended: dict[int, list[Any]] = {}
        self._order = QueueOrder(simulation, self)
        self.snapshots = Snapshots(self.raw)
        self._deliveries = Deliveries(self.raw)
        self.accepted = Accepted(self.raw)
        self._outside = Outside(simulation, self.raw)
        self.ends = Ends(simulation, self.raw, self._outside)
        self._fires = Fires(simulation, self.raw)
        self._committed = 0
        self._fault: Exception | None = None

    def open(self) -> None:
        self._connection = sqlite3.connect(self._path, isolation_level=None)

    def close(self) -> None:
        self._connection.close()

    def raw(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    # While it happens.

    def at_order(self, order: Order) -> None:
        """What leaves the scheduler is on disk by then."""
        match order:
            case Start():
                rows = (
                    self.raw(f"SELECT status FROM job WHERE id = {order.job}")
                    if order.job > 0
                    else self.raw(f"SELECT 'RUNNING' FROM slot WHERE id = {-order.job} AND run = {order.run}")
                )
                assert rows, f"{order.run} is started, and nobody knows it"
                if order.job > 0:
                    runs = self.raw(f"SELECT job FROM run WHERE id = {order.run} AND status IS NULL")
                    assert runs == [(order.job,)], f"run-{order.run} is started before its claim is on disk"
                    assert Status(rows[0][0]) in STARTED
            case Ahead():
                for start in order.starts:
                    rows = self.raw(f"SELECT status FROM ahead JOIN job ON job.id = job WHERE run = {start.run}")
                    assert rows == [("QUEUED",)], f"run-{start.run} is given ahead before that is on disk: {rows}"
            case Stop():
                self._stopped.add(order.run)
            case Acknowledge():
                rows = self.raw(f"SELECT 1 FROM run WHERE id = {order.run} AND status IS NULL")
                assert not rows, f"the end of run-{order.run} is acknowledged before it is on disk"

    def at_spawn(self, order: Start) -> None:
        """A process begins: nothing that lives may be in its way, whatever the store believes."""
        party, chain = self._party(order.job), self._chain(order.job)
        for child in self._sim.supervisor.alive():
            other = child.order.job
            assert self._chain(other) != chain, f"two of chain {chain} at once: {order.job} and {other}"
            assert not party.clashes(self._party(other)), f"{order.job} and {other} hold one key"
        for child in self._sim.supervisor.of_job(order.job):
            assert child.end is not None
            is_done = child.end.code is not None and child.order.run not in self._stopped
            since = self.raw(f"SELECT rewound_run FROM job WHERE id = {order.job}")[0][0] or 0 if order.job > 0 else 0
            assert not is_done or child.order.run <= since, f"{show_job(order.job)} runs again though nobody asked"

    def at_commit(self) -> None:
        """The engine takes whatever fails in a turn for a defect of its own: what is found is told later."""
        try:
            news = list(self._sim.reader.events_since(self._committed, 100_000))
            self._committed = news[-1][0] if news else self._committed
            events = [event for _, event in news]
            self._order.at_commit(events)
            self.snapshots.at_commit(events)
            self._deliveries.at_commit(events)
            self.accepted.at_commit(events)
            self._outside.at_commit(events)
            self.ends.at_commit(events)
            self._fires.at_commit(events)
        except Exception as error:  # noqa: BLE001 - raised by `check`
            self._fault = self._fault or error

    def _party(self, owner: JobId) -> Party:
        if owner > 0:
            return of_job(self._sim.job(owner))
        slot = self._sim.reader.slot(SlotId(-owner))
        assert slot is not None
        return of_slot(slot)

    def _chain(self, owner: JobId) -> JobId:
        return self._sim.job(owner).chain if owner > 0 else owner

    def begin(self) -> None:
        self.new = []
        self._was_held = self._sim.engine.held is not None
        slots = self._sim.reader.open_slots()
        self._waited = {owner_of(slot.id) for slot in slots if slot.state is SlotState.WAITING}

    # Afterwards.

    def check(self) -> None:
        if self._fault is not None:
            raise self._fault
        assert self._sim.engine.trouble is None, self._sim.engine.trouble
        check_store(self.raw)
        self._meet()
        self.accepted.check()
        self._check_frozen()
        self.snapshots.check()
        self._deliveries.check()
        self._fires.check()
        self._check_truth()
        if self._sim.wire.is_idle and self._sim.engine.held_by is None:
            self._check_rest()

    def _meet(self) -> None:
        """What was booked, in its order."""
        news = list(self._sim.reader.events_since(self._seen, 100_000))
        for n, (seq, event) in enumerate(news):
            self._seen = seq
            if event.cause == "ahead":
                self._forget_ended([later for _, later in news[n + 1 :]])
            self._meet_event(event)

    def _forget_ended(self, later: list[Event]) -> None:
        """What was started ahead of a lost connection is booked with the accounts, the ends before it right after."""
        if any(event.kind == "scheduler.recovered" for event in later[:2]):
            for event in later:
                if event.job is not None and event.kind in _GONE:
                    self.running.pop(event.job, None)

    def _meet_event(self, event: Event) -> None:
        job = event.job
        slot = parse_slot(str(event.data["slot"])) if "slot" in event.data else None
        match event.kind:
            case "scheduler.paused":
                self.paused.add(str(event.data["scope"]))
            case "scheduler.resumed":
                self.paused.discard(str(event.data["scope"]))
            case "job.rewound" if job is not None:
                self.running.pop(job, None)
            case "job.dispatched" if job is not None:
                self._check_start(of_job(self._sim.job(job)))
            case "slot.started" if slot is not None:
                found = self._sim.reader.slot(slot)
                assert found is not None
                self._check_start(of_slot(found))
            case kind if kind in _GONE:
                owner = job if slot is None else owner_of(slot)
                assert owner is not None
                self.running.pop(owner, None)

    def _check_start(self, one: Party) -> None:
        assert one.owner not in self.running, f"{one.owner} has started twice"
        assert not (self._was_held and self._sim.engine.held), "the file holds everything"
        assert not self.paused & set(one.scopes), f"{one.owner} is paused"
        for other in self.running.values():
            assert not one.clashes(other), f"{one.owner} and {other.owner} hold one key"
        self.running[one.owner] = one
        self.new.append(one)
        total, limits = used(self.running.values()), Limits(self._sim.sizes)
        for pool in one.draws:
            size = limits.size(pool)
            assert size is None or total[pool] <= size, f"{one.owner} takes {pool} to {total[pool]}/{size}"

    def _check_frozen(self) -> None:
        """What a job that has run is, and what its runs were, does not change any more (INV-001, INV-002)."""
        for run, *fixed in self.raw(
            "SELECT run.id, run.job, run.worker, run.started_at, spec.command, spec.params"
            " FROM run JOIN job ON job.id = run.job JOIN spec ON spec.id = job.spec"
        ):
            assert self._fixed.setdefault(run, fixed) == fixed, f"run-{run} was {self._fixed[run]}, and is {fixed}"

    def _check_truth(self) -> None:
        """What the store says of a run is what became of its process, and stays so."""
        for run, *end in self.raw("SELECT id, status, exit_code, error FROM run WHERE status IS NOT NULL"):
            status, exit_code, error = self._ended.setdefault(run, end)
            assert end == [status, exit_code, error], f"run-{run} was {self._ended[run]}, and is {end}"
            child = self._sim.supervisor.children.get(RunId(run))
            assert child is not None, f"run-{run} is {status}, and never was"
            assert child.end is not None, f"run-{run} is {status}, and lives"
            if child.end.code is not None:
                wanted = ("COMPLETED" if child.end.code == 0 else "FAILED", child.end.code)
                assert (status, exit_code) == wanted, (run, status, child.end)
            assert child.end.watched or status != Status.COMPLETED, f"run-{run} is {status}, and nobody saw its end"
            is_unknown = "crash recovery" in str(error).lower()
            assert child.end.watched is not is_unknown, f"run-{run}: {error}, and its end was seen: {child.end.watched}"

    # When nothing is under way.

    def _check_rest(self) -> None:
        jobs, slots = self._sim.reader.jobs(self._sim.ids()), self._sim.reader.open_slots()
        paused = self.paused | ({"global"} if self._sim.engine.held is not None else set())
        referee = Referee(jobs, slots, self._sim.sizes, paused, self._sim.clock.now(), self._outside.holds)
        running = {party.owner for party in referee.running}
        assert running == self.running.keys(), f"running {running}, and by the events {set(self.running)}"
        alive = {child.order.job for child in self._sim.supervisor.alive()}
        with_child = {party.owner for party in referee.running if party.owner > 0 or self._has_command(party.owner)}
        assert alive == with_child, f"alive {alive}, and the store says {with_child}"
        self._check_room_of_slots(referee)
        self._check_slots(referee)
        self._check_jobs(referee, {job.id: job for job in jobs})
        self._check_still()

    def _check_room_of_slots(self, referee: Referee) -> None:
        """No job took what a direct execution waits for, be it in the step in which that came."""
        waited = [slot for slot in referee.slots if slot.owner in self._waited and referee.reserves(slot)]
        for job in self.new:
            for slot in waited if job.owner > 0 and job.owner in self.running else ():
                shared = {pool for pool in job.draws.keys() & slot.draws.keys() if referee.is_limited(pool)}
                assert not any(map(referee.is_overdrawn, shared)), f"{job.owner} went before {slot.owner}"

    def _check_slots(self, referee: Referee) -> None:
        shown = {form.id: form for form in view_slot.listing(self._sim.reader, self._sim.sight)[0]}
        for slot in referee.slots:
            wait = shown[f"slot-{-slot.owner}"].wait
            assert wait is not None, f"{slot.owner} waits, and nothing says why"
            assert str(wait.kind) == referee.kind(slot), (slot.owner, wait, referee.kind(slot))
            topics = referee.topics(slot)
            assert topics is None or list(wait.on) == topics, (slot.owner, wait, topics)

    def _has_command(self, owner: JobId) -> bool:
        slot = self._sim.reader.slot(SlotId(-owner))
        return slot is not None and slot.command is not None

    def _check_jobs(self, referee: Referee, jobs: dict[JobId, Job]) -> None:
        waiting = [job for job in jobs.values() if job.status in WAITING]
        shown = {form.id: form for form in forms(self._sim.reader, waiting, self._sim.sight)}
        is_paced = bool(referee.able)
        if is_paced and not self._has_open_breaker():
            assert self._sim.engine.outlook.is_for_later(self._sim.clock.now()), (
                f"{[(party.owner, shown[show_job(party.owner)].wait) for party in referee.able]} could start now"
            )
        for party in referee.jobs:
            assert not referee.is_decided(party), f"{party.owner} waits for what cannot come any more"
            kind, wait = referee.kind(party), shown[show_job(party.owner)].wait
            said = None if wait is None else str(wait.kind)
            if wait is not None and "breaker" in str(wait.on):
                continue
            if self._has_open_breaker() or (is_paced and kind in (None, "slot", "capacity")):
                assert said in (None, "delay", "slot", "capacity", "locks", "paused", kind), (party.owner, said, kind)
            else:
                assert said == kind, (party.owner, said, kind, wait)
                assert jobs[party.owner].status is _WAITS.get(str(kind), Status.QUEUED), (party.owner, kind)
                topics = self._topics(referee, party, jobs[party.owner])
                assert wait is None or list(wait.on) == topics, (party.owner, wait, topics)
        self._check_words([party.owner for party in referee.jobs if shown[show_job(party.owner)].wait is None])

    def _topics(self, referee: Referee, party: Party, job: Job) -> list[str]:
        """What it waits for."""
        inside = referee.topics(party)
        if inside is not None:
            return inside
        pin = job.spec.pinned_head
        match referee.kind(party):
            case "dependencies":
                return [f"artifact:{self._outside.missing(job)}"]
            case "pinned_head" if pin is not None:
                return [f"head:/repo/.git:{pin.branch}"]
            case _:
                return ["pause"] if self.paused & {"global", *party.scopes} else ["hold_file"]

    def _has_open_breaker(self) -> bool:
        return bool(self._sim.reader.breakers())

    def _check_words(self, free: list[JobId]) -> None:
        """Whoever is said to start with the next tick does."""
        if free:
            would = self._sim.dry_run()["would_dispatch"]
            for job in free:
                text = self._sim.why(job)["text"]
                assert ("it starts with the next" in text) == (show_job(job) in would), text

    def _check_still(self) -> None:
        """When nothing happens, another turn changes nothing."""
        before = (self.raw("PRAGMA data_version"), len(self._sim.wire.orders))
        self._sim.turn()
        assert (self.raw("PRAGMA data_version"), len(self._sim.wire.orders)) == before
