"""Storage of dependency edges, and wake-ups for the jobs whose edges a change decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rota.db.artifacts import Artifacts
from rota.db.database import Database
from rota.db.decoding import RecordDecoder, parse_dependency_policy
from rota.ids import GroupId, JobId
from rota.kernel.edges import DependencyPolicy, Edge, EdgeState, UnmetEdge, edge_state
from rota.kernel.status import Status, parse_status


class EndedDependents(NamedTuple):
    has_products: bool
    group: GroupId | None


class EdgeRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def blocking(self, jobs: Sequence[int]) -> Mapping[int, tuple[UnmetEdge, ...]]:
        if not jobs:
            return {}
        edges: dict[int, tuple[UnmetEdge, ...]] = {}
        for job, predecessor, chain, policy, state, last, status in self._db.rows("blocking_edges", ids=list(jobs)):
            decoder = RecordDecoder()
            edge = Edge(predecessor=JobId(predecessor), chain=JobId(chain), policy=decoder.dependency_policy(policy))
            parsed = None if status is None else parse_status(status)
            if parsed is Status.UNREADABLE:
                decoder.errors.append(f"unknown status {status!r}")
            edges[job] = (
                *edges.get(job, ()),
                UnmetEdge(
                    edge=edge,
                    last_job=None if last is None else JobId(last),
                    status=parsed,
                    is_skipped_by_group=state == EdgeState.UNMEETABLE,
                    error=decoder.error,
                ),
            )
        return edges


class Edges(EdgeRecords):
    def __init__(self, database: Database, artifacts: Artifacts) -> None:
        super().__init__(database)
        self._artifacts = artifacts

    def resolve(self, chain: JobId, met_policies: Sequence[DependencyPolicy]) -> EndedDependents:
        """Resolve the edges to a chain that has ended, and wake the jobs that this decides. Return whether the chain
        produces artifacts, and its group."""
        policies = [policy.value for policy in met_policies]
        ((has_dependents, has_products, group, has_unreadable),) = self._db.rows("chain_dependents", chain=chain)
        result = EndedDependents(has_products=bool(has_products), group=group)
        if has_unreadable:
            self.repair()
        if has_products:
            self._artifacts.clear_rewound(chain)
        if not has_dependents:
            return result
        self._db.run("wake_successors", chain=chain, policies=policies)
        self._db.run("decrement_unmet_of_successors", chain=chain, policies=policies)
        self._db.run("close_edges", chain=chain, policies=policies)
        return result

    def reopen(self, chain: JobId) -> None:
        """Reopen the edges of waiting jobs to a chain that had ended and continues."""
        self.repair()
        self._db.run("increment_unmet_of_successors", chain=chain)
        self._db.run("reopen_edges", chain=chain)

    def repair(self) -> None:
        """Recompute the edges of unknown state from the statuses of their predecessors, and wake their jobs.

        This runs at scheduler start and whenever a chain ends, so that no such edge holds a job forever."""
        jobs = [JobId(job) for (job,) in self._db.rows("unreadable_edges")]
        if jobs:
            self.reevaluate(jobs)
            self._db.run("wake_jobs", ids=jobs)

    def reevaluate(self, jobs: Sequence[JobId]) -> None:
        """Recompute the edges of jobs that wait again. An edge to a chain of unknown status keeps its state."""
        changed = []
        for job, sequence, policy, state, status, is_dropped in self._db.rows(
            "edges_with_chain_status", jobs=list(jobs)
        ):
            parsed = None if status is None else parse_status(status)
            if parsed not in (None, Status.UNREADABLE):
                new_state = edge_state(parse_dependency_policy(policy), parsed, is_skipped_by_group=bool(is_dropped))
                if new_state != state:
                    changed.append({"job": job, "sequence": sequence, "state": new_state.value})
        if changed:
            self._db.run_many("set_edge", changed)
            self._db.run("recount_unmet", jobs=sorted({edge["job"] for edge in changed}))
