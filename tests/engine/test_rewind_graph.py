"""Property test of rewind on arbitrary graphs: all downstream jobs run again in order, and no others change."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.db.sqlite.store import SqliteStore
from rota.executor.port import ExitReport
from rota.ids import JobId, RunId
from rota.kernel.facts import FileExists
from rota.kernel.job import Job
from rota.kernel.status import ACTIVE, TERMINAL
from tests.db.invariants import check_store
from tests.harness import Scheduler
from tests.sample import sample

MEMORY = Path("/dev/shm")


class Node(msgspec.Struct, frozen=True):
    """Edges and needs of a job on earlier jobs, by number modulo their count."""

    after: list[tuple[int, str]]
    needs: list[int]
    codes: tuple[int, int]
    """Exit codes of its run, before and after the rewind."""
    makes: tuple[bool, bool]
    """Whether its product exists after the run, before and after the rewind."""


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


class GraphRun:
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
            needs=[f"file:/{producer}" for producer in sorted(needs)],
            produces=[f"file:/{len(jobs) + 1}"],
        )
        self.nodes[job] = node
        self.before[job] = set(after) | needs

    def run_sql(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    def jobs(self) -> dict[JobId, Job]:
        return {job.id: job for job in self.scheduler.reader.jobs.find_all(list(self.nodes))}

    def run_jobs(self, part: int, members: set[JobId]) -> None:
        """End running jobs, the latest first, until none runs. Check that no member starts before the members that it
        follows have ended."""
        while running := [start for start in self.scheduler.executor.starts if start.run not in self.ended]:
            statuses = {job: record.status for job, record in self.jobs().items()}
            for start in running:
                for predecessor in self.before[start.job] & members if start.job in members else ():
                    assert statuses[predecessor] in TERMINAL, (start.job, predecessor)
            run, job = running[-1].run, running[-1].job
            node = self.nodes[job]
            self.ended.add(run)
            if node.codes[part] == 0:
                self.scheduler.probe.values[FileExists(f"/{job}")] = node.makes[part]
            at = self.scheduler.clock.moment.timestamp()
            self.scheduler.receive(ExitReport(run=run, at=at, code=node.codes[part]))
        check_store(self.run_sql)

    def downstream(self, root: JobId) -> set[JobId]:
        result = {root}
        for job in self.nodes:  # each job follows earlier ones only
            if self.before[job] & result:
                result.add(job)
        return result

    def close(self) -> None:
        self.connection.close()
        self.scheduler.close()


@settings(max_examples=sample(50), suppress_health_check=list(HealthCheck))
@given(graph=st.lists(nodes, min_size=1, max_size=8), pick=st.integers(0, 99), has_crashed=st.booleans())
def test_rewind_of_any_job_of_any_graph(graph: list[Node], pick: int, has_crashed: bool) -> None:
    home = Path(tempfile.mkdtemp(prefix="rota-rewind-", dir=MEMORY if MEMORY.is_dir() else None))
    graph_run = GraphRun(home, graph)
    try:
        graph_run.run_jobs(0, set())
        assert all(job.status in TERMINAL for job in graph_run.jobs().values())
        root = list(graph_run.nodes)[pick % len(graph_run.nodes)]
        members, before = graph_run.downstream(root), graph_run.jobs()
        if has_crashed:  # a scheduler without cached facts
            graph_run.scheduler.crash()
        report = graph_run.scheduler.rewind(root)
        assert set(report.rewind_set) == {f"job-{job}" for job in members}
        after = graph_run.jobs()
        for job in graph_run.nodes.keys() - members:
            assert after[job] == before[job]
        # Jobs upstream of the set were left as they are, and may decide some members; otherwise all wait for the root.
        is_decided = after[root].status in TERMINAL or any(graph_run.before[job] - members for job in members - {root})
        for job in members:
            assert is_decided or after[job].status in ACTIVE
            assert is_decided or job == root or after[job].run == before[job].run
            assert (f"job-{job}" in report.restarted) <= (after[job].current_run is not None)
        graph_run.run_jobs(1, members)
        ends = graph_run.jobs()
        for job in members:
            assert ends[job].status in TERMINAL
            run = ends[job].current_run
            assert ends[job].reason is not None if run is None else run.status is ends[job].status
        assert {job: ends[job] for job in graph_run.nodes.keys() - members} == {
            job: before[job] for job in graph_run.nodes.keys() - members
        }
    finally:
        graph_run.close()
        shutil.rmtree(home)
