"""Any graph, any outcomes, any job rewound: all downstream runs again in its order, and nothing else is touched."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import Scheduler
from rota.core.fact import File
from rota.core.job import Job
from rota.core.status import ACTIVE, TERMINAL
from rota.executor.port import Exited
from rota.ids import JobId, RunId
from rota.store.sqlite.store import SqliteStore
from sample import sample
from store.invariants import check_store

MEMORY = Path("/dev/shm")


class Node(msgspec.Struct, frozen=True):
    """What it comes after and what it needs: earlier ones, counted round."""

    after: list[tuple[int, str]]
    needs: list[int]
    codes: tuple[int, int]
    """How its run ends, before and after the rewind."""
    makes: tuple[bool, bool]
    """Whether there is then what it said it makes."""


codes = st.sampled_from([0, 0, 0, 1])
nodes = st.builds(
    Node,
    after=st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from(["success", "success", "finished", "failed"])), max_size=2
    ),
    needs=st.just([]) | st.lists(st.integers(0, 99), max_size=2),
    codes=st.tuples(codes, codes),
    makes=st.tuples(st.booleans(), st.booleans()),
)


class World:
    def __init__(self, home: Path, graph: list[Node]) -> None:
        self.scheduler = Scheduler(SqliteStore(home / "rota.db"), home, {"global": -1})
        self.connection = sqlite3.connect(home / "rota.db", isolation_level=None)
        self.nodes: dict[JobId, Node] = {}
        self.before: dict[JobId, set[JobId]] = {}
        self.ended: set[RunId] = set()
        for node in graph:
            self._submit(node)

    def _submit(self, node: Node) -> None:
        jobs = list(self.nodes)
        after = {jobs[n % len(jobs)]: policy for n, policy in node.after if jobs}
        needs = {jobs[n % len(jobs)] for n in node.needs if jobs}
        job = self.scheduler.submit(
            after=[f"job-{predecessor}:{policy}" for predecessor, policy in after.items()],
            needs=[f"file:/{maker}" for maker in sorted(needs)],
            produces=[f"file:/{len(jobs) + 1}"],
        )
        self.nodes[job] = node
        self.before[job] = set(after) | needs

    def raw(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    def jobs(self) -> dict[JobId, Job]:
        return {job.id: job for job in self.scheduler.reader.jobs(list(self.nodes))}

    def play(self, part: int, members: set[JobId]) -> None:
        """End what runs, the latest first, until nothing does. Of the members none starts before those of them that
        it follows have ended."""
        while running := [start for start in self.scheduler.executor.starts if start.run not in self.ended]:
            statuses = {job: found.status for job, found in self.jobs().items()}
            for start in running:
                for predecessor in self.before[start.job] & members if start.job in members else ():
                    assert statuses[predecessor] in TERMINAL, (start.job, predecessor)
            run, job = running[-1].run, running[-1].job
            node = self.nodes[job]
            self.ended.add(run)
            if node.codes[part] == 0:
                self.scheduler.probe.world[File(f"/{job}")] = node.makes[part]
            at = self.scheduler.clock.moment.timestamp()
            self.scheduler.say(Exited(run=run, at=at, code=node.codes[part]))
        check_store(self.raw)

    def downstream(self, root: JobId) -> set[JobId]:
        found = {root}
        for job in self.nodes:  # each follows earlier ones only
            if self.before[job] & found:
                found.add(job)
        return found

    def close(self) -> None:
        self.connection.close()
        self.scheduler.close()


@settings(max_examples=sample(50), suppress_health_check=list(HealthCheck))
@given(graph=st.lists(nodes, min_size=1, max_size=8), pick=st.integers(0, 99), is_half_way=st.booleans())
def test_any_job_of_any_graph(graph: list[Node], pick: int, is_half_way: bool) -> None:
    home = Path(tempfile.mkdtemp(prefix="rota-rewind-", dir=MEMORY if MEMORY.is_dir() else None))
    world = World(home, graph)
    try:
        world.play(0, set())
        assert all(job.status in TERMINAL for job in world.jobs().values())
        root = list(world.nodes)[pick % len(world.nodes)]
        members, before = world.downstream(root), world.jobs()
        if is_half_way:  # a scheduler that knows nothing of what it saw
            world.scheduler.crash()
        report = world.scheduler.rewind(root)
        assert set(report.rewind_set) == {f"job-{job}" for job in members}
        after = world.jobs()
        for job in world.nodes.keys() - members:
            assert after[job] == before[job]
        # What is upstream of the set was left as it is, and may decide some of it at once; else all waits for the root.
        is_decided = after[root].status in TERMINAL or any(world.before[job] - members for job in members - {root})
        for job in members:
            assert is_decided or after[job].status in ACTIVE
            assert is_decided or job == root or after[job].run == before[job].run
            assert (f"job-{job}" in report.restarted) <= (after[job].current_run is not None)
        world.play(1, members)
        ends = world.jobs()
        for job in members:
            assert ends[job].status in TERMINAL
            run = ends[job].current_run
            assert ends[job].reason is not None if run is None else run.status is ends[job].status
        assert {job: ends[job] for job in world.nodes.keys() - members} == {
            job: before[job] for job in world.nodes.keys() - members
        }
    finally:
        world.close()
        shutil.rmtree(home)
