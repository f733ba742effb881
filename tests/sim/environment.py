"""Gates of external facts, computed from the true state of the world, whatever the scheduler has observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rota.ids import JobId, format_job_id
from rota.kernel.events import Event
from rota.kernel.facts import BranchHead, Fact, FactValue, FileExists
from rota.kernel.job import Job
from rota.kernel.status import STARTED, TERMINAL, Status
from tests.harness import SqlRunner

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation


class ExternalFactChecker:
    def __init__(self, simulation: Simulation, run_sql: SqlRunner) -> None:
        self._sim = simulation
        self._run_sql = run_sql
        self._not_working: set[JobId] = set()
        """Chains that the commit claims, and that are not at work yet when an earlier job of the commit starts."""

    @property
    def _facts(self) -> Mapping[Fact, FactValue]:
        return self._sim.probe.values

    def at_commit(self, events: Sequence[Event]) -> None:
        """Check the facts of each job that starts. Jobs that start after it in the same turn are not at work yet."""
        started = [self._sim.job(event.job) for event in events if event.kind == "job.dispatched" and event.job]
        for n, job in enumerate(started):
            self._not_working = {later.chain for later in started[n:]}
            gate = self.find_gate(job) if job.status in STARTED else None
            assert gate is None, f"{format_job_id(job.id)} starts although {gate} holds it"
        self._not_working = set()

    def find_gate(self, job: Job) -> str | None:
        """Return the first gate that holds the job because of an external fact."""
        if self.find_missing(job) is not None:
            return "dependencies"
        pin = job.spec.pinned_head
        if pin is not None and self._facts.get(BranchHead("/repo/.git", pin.branch)) != pin.oid:
            return "pinned_head"
        return None

    def find_missing(self, job: Job) -> str | None:
        """Return the first needed artifact that does not exist."""
        return next((need for need in map(str, job.spec.needs) if not self._exists(need, job.chain)), None)

    def is_unmeetable(self, job: Job) -> bool:
        """Return whether an artifact is missing and no active job can produce it."""
        missing = [need for need in map(str, job.spec.needs) if not self._exists(need, job.chain)]
        return any(self._has_no_producer_left(need, job.chain) for need in missing)

    def _has_no_producer_left(self, name: str, chain: JobId) -> bool:
        producers = self._producers(name, chain)
        ((policy,),) = self._run_sql(
            "SELECT missing_producer FROM need JOIN artifact ON artifact.id = need.artifact"
            f" WHERE need.chain = {chain} AND name = '{name}'"
        )
        return all(status in TERMINAL for status, _ in producers) and (bool(producers) or policy == "block")

    def _exists(self, name: str, chain: JobId) -> bool:
        """An artifact from before a rewind does not count, nor does a file while a producer is running."""
        producers = self._producers(name, chain)
        if any(is_rewound for _, is_rewound in producers):
            return False
        if name.startswith("file:") and any(status in STARTED for status, _ in producers):
            return False
        fact: Fact = (
            FileExists(name.removeprefix("file:")) if name.startswith("file:") else BranchHead("/repo/.git", "c")
        )
        return bool(self._facts.get(fact))

    def _producers(self, name: str, chain: JobId) -> list[tuple[Status, bool]]:
        """Return the last status of each other chain that produces the artifact, with whether it is rewound."""
        rows = self._run_sql(
            "SELECT is_rewound, (SELECT status FROM job WHERE job.chain = product.chain ORDER BY id DESC LIMIT 1)"
            " FROM product JOIN artifact ON artifact.id = product.artifact"
            f" WHERE name = '{name}' AND product.chain NOT IN ({', '.join(map(str, (chain, *self._not_working)))})"
        )
        return [(Status(status), bool(is_rewound)) for is_rewound, status in rows]
