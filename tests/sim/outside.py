"""What of the world outside holds a job, by looking at all of it: the truth, whatever the scheduler has seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from harness import Raw
from rota.core.event import Event
from rota.core.fact import Fact, File, Head, Seen
from rota.core.job import Job
from rota.core.status import STARTED, TERMINAL, Status
from rota.ids import JobId, show_job

if TYPE_CHECKING:
    from sim.simulation import Simulation


class Outside:
    def __init__(self, simulation: Simulation, raw: Raw) -> None:
        self._sim = simulation
        self._raw = raw
        self._idle: set[JobId] = set()

    @property
    def _world(self) -> Mapping[Fact, Seen]:
        return self._sim.probe.world

    def at_commit(self, events: Sequence[Event]) -> None:
        """Who starts was looked at a moment before; who starts after it in the same turn is not yet at work."""
        begun = [self._sim.job(event.job) for event in events if event.kind == "job.dispatched" and event.job]
        for n, job in enumerate(begun):
            self._idle = {later.chain for later in begun[n:]}
            held = self.holds(job) if job.status in STARTED else None
            assert held is None, f"{show_job(job.id)} starts, though {held} keeps it"
        self._idle = set()

    def holds(self, job: Job) -> str | None:
        """The first gate that does."""
        if self.missing(job) is not None:
            return "dependencies"
        pin = job.spec.pinned_head
        if pin is not None and self._world.get(Head("/repo/.git", pin.branch)) != pin.oid:
            return "pinned_head"
        return None

    def missing(self, job: Job) -> str | None:
        """The first that it needs and that is not there."""
        return next((need for need in map(str, job.spec.needs) if not self._is_there(need, job.chain)), None)

    def never_comes(self, job: Job) -> bool:
        """Something that it needs is not there, and nobody who could make it is left."""
        needs = [need for need in map(str, job.spec.needs) if not self._is_there(need, job.chain)]
        return any(self._is_given_up(need, job.chain) for need in needs)

    def _is_given_up(self, name: str, chain: JobId) -> bool:
        producers = self._producers(name, chain)
        ((policy,),) = self._raw(
            "SELECT missing_producer FROM need JOIN artifact ON artifact.id = need.artifact"
            f" WHERE need.chain = {chain} AND name = '{name}'"
        )
        return all(status in TERMINAL for status, _ in producers) and (bool(producers) or policy == "block")

    def _is_there(self, name: str, chain: JobId) -> bool:
        """What is of before a rewind does not count, nor a file that somebody is at work on."""
        producers = self._producers(name, chain)
        if any(is_rewound for _, is_rewound in producers):
            return False
        if name.startswith("file:") and any(status in STARTED for status, _ in producers):
            return False
        fact: Fact = File(name.removeprefix("file:")) if name.startswith("file:") else Head("/repo/.git", "c")
        return bool(self._world.get(fact))

    def _producers(self, name: str, chain: JobId) -> list[tuple[Status, bool]]:
        """What the other chains that are to make it have come to."""
        rows = self._raw(
            "SELECT is_rewound, (SELECT status FROM job WHERE job.chain = product.chain ORDER BY id DESC LIMIT 1)"
            " FROM product JOIN artifact ON artifact.id = product.artifact"
            f" WHERE name = '{name}' AND product.chain NOT IN ({', '.join(map(str, (chain, *self._idle)))})"
        )
        return [(Status(status), bool(is_rewound)) for is_rewound, status in rows]
