"""Outcomes of jobs, checked at each commit against their processes, or against the reasons to end without one.

    with a run     the outcome matches the end of the process, and a retry follows if retries are left
    without one    FAILED       three consecutive starts failed, not because of the machine
                   CANCELLED    by a cancel, a clear, or the policy of its group
                   SKIPPED      it comes after a failure that did not happen, or by the policy of its group
                   BLOCKED      a predecessor ended otherwise, or no job can produce a needed artifact

Requests are recorded before they are executed, because a killed scheduler may have executed them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rota.db.decoding import from_micros
from rota.duration import format_duration
from rota.engine.control import CLEARED_REASON
from rota.executor.port import ExitReport
from rota.ids import GroupId, JobId, RunId, format_job_id
from rota.kernel.breaker import CIRCUIT_BROKEN
from rota.kernel.edges import DependencyPolicy, Edge
from rota.kernel.events import Event
from rota.kernel.groups import FAILED_STATUSES, PREDECESSOR_FAILED
from rota.kernel.holds import scopes_of
from rota.kernel.job import Job
from rota.kernel.run import CRASH_RECOVERY, EXIT_CANCELLED, EXIT_TIMED_OUT
from rota.kernel.status import TERMINAL, WAITING, Status
from tests.engine.referee import SATISFYING_STATUSES
from tests.harness import SqlRunner
from tests.sim.environment import ExternalFactChecker

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

_ENDS = {f"job.{status.lower()}": status for status in TERMINAL}
_MAX_FAILED_STARTS = 3
"""Number of failed starts after which a job fails."""


class EndChecker:
    def __init__(self, simulation: Simulation, run_sql: SqlRunner, external_facts: ExternalFactChecker) -> None:
        self._sim = simulation
        self._run_sql = run_sql
        self._external_facts = external_facts
        self._cancel_requested: set[JobId] = set()
        """Chains for which a cancel was requested."""
        self._cancelled: set[JobId] = set()
        """Chains whose cancel was confirmed. Their jobs do not start."""
        self._clears: list[tuple[str, JobId]] = []
        """Scope of each clear, and the last job at that time."""
        self._new_ends: dict[JobId, set[Status]] = {}
        """Outcomes of the jobs of each chain in this commit, including those that were followed by a retry."""
        self._event_count = 0
        """Number of events so far. It orders claims and ends, because the clocks can be set."""
        self._claimed: dict[JobId, int] = {}
        self._claimed_run: dict[JobId, RunId] = {}
        self._ended: dict[JobId, int] = {}

    # Requests.

    @contextmanager
    def expecting_cancel(self, chains: Sequence[JobId]) -> Iterator[None]:
        self._cancel_requested.update(chains)
        yield
        self._cancelled.update(chains)

    @contextmanager
    def expecting_clear(self, scope: str) -> Iterator[None]:
        """After the clear, no job of the scope that was waiting before is waiting."""
        last = max(self._sim.job_ids(), default=JobId(0))
        self._clears.append((scope, last))
        waiting = {job.id for job in self._sim.reader.jobs.find_all(self._sim.waiting_jobs()) if scope in _scopes(job)}
        yield
        remaining = waiting & set(self._sim.waiting_jobs())
        assert not remaining, f"{remaining} are waiting after {scope} was cleared"

    # Outcomes.

    def at_commit(self, events: Sequence[Event]) -> None:
        self._new_ends = defaultdict(set)
        for event in events:
            self._event_count += 1
            if event.job is not None and event.kind == "job.dispatched":
                self._claimed[event.job] = self._event_count
                if event.run is not None:
                    self._claimed_run[event.job] = event.run
            if event.job is not None and event.kind in _ENDS:
                self._ended[event.job] = self._event_count
                self._new_ends[self._sim.job(event.job).chain].add(_ENDS[event.kind])
        for event in events:
            if event.job is not None and event.kind.startswith("job."):
                self._check_event(event, self._sim.job(event.job))

    def _check_event(self, event: Event, job: Job) -> None:
        match event.kind:
            case "job.rewound":
                self._cancelled.discard(job.chain)
            case "job.submitted" if event.actor is not None:
                self._cancelled.discard(job.chain)  # a manual retry
            case "job.dispatched":
                assert job.chain not in self._cancelled, (
                    f"{format_job_id(job.id)} starts after its cancel was confirmed"
                )
            case "job.queued" if job.status in WAITING and event.data.get("from") == "DISPATCHED":
                self._check_requeued(job)
            case kind if job.status is _ENDS.get(kind):
                self._check_run(job, event.run) if event.run is not None else self._check_without_run(job)
                if job.group is not None and job.status in FAILED_STATUSES:
                    self._check_policy_applied(job, job.group)

    # Outcomes with a run.

    def _check_run(self, job: Job, run: RunId) -> None:
        child = self._sim.supervisor.children.get(run)
        assert child is not None, f"{format_job_id(job.id)} is {job.status} without a process"
        assert child.end is not None, f"{format_job_id(job.id)} is {job.status} and its process is alive"
        actual, expected = (job.status, job.exit_code, job.reason), self._expected_outcome(job, child.end)
        assert actual == expected, f"{format_job_id(job.id)} is {actual}, expected {expected}"
        if job.status is Status.CANCELLED:
            self._check_cancel_requested(job)
        if job.status is Status.FAILED:
            self._check_retry(job)

    def _expected_outcome(self, job: Job, end: ExitReport) -> tuple[Status, int | None, str | None]:
        """Return the outcome for the end of the process. A process that ended before the stop keeps its result."""
        if end.ended_by == "timeout":
            limit = "its limit" if job.spec.timeout is None else format_duration(job.spec.timeout)
            return Status.FAILED, EXIT_TIMED_OUT, f"timed out after {limit}"
        if end.ended_by == "stop" and job.stop_requested is not None:
            return Status.CANCELLED, EXIT_CANCELLED, job.stop_requested
        if end.code is not None:
            return (Status.FAILED, end.code, f"exit code {end.code}") if end.code else (Status.COMPLETED, 0, None)
        if not end.is_observed:
            return Status.FAILED, None, CRASH_RECOVERY
        return Status.FAILED, 128 + (end.signal or 0), "killed by SIGTERM"

    def _check_retry(self, job: Job) -> None:
        policy, name = job.spec.retry, format_job_id(job.id)
        has_retry = policy is not None and job.stop_requested is None and job.retries < policy.max_retries
        assert job.permanently_failed is not has_retry, f"{name} has retries left: {has_retry}"
        if policy is None or not has_retry:
            return
        (row,) = self._run_sql(f"SELECT retries, not_before FROM job WHERE retry_of = {job.id}")
        at = self._sim.clock.now() + min(policy.base * policy.multiplier**job.retries, policy.cap)
        expected = (job.retries + 1, at)
        assert (row[0], from_micros(row[1])) == expected, f"the retry of {name} is {row}, expected {expected}"

    # Outcomes without a run.

    def _check_without_run(self, job: Job) -> None:
        description = f"{format_job_id(job.id)} is {job.status} ({job.reason}) without a run"
        match job.status:
            case Status.FAILED:
                starts = self._sim.supervisor.failed_starts(job.id)
                assert str(job.reason).startswith(CIRCUIT_BROKEN), description
                assert min(job.dispatch_failures, starts) >= _MAX_FAILED_STARTS, f"{description} after {starts} starts"
                assert job.permanently_failed, description
            case Status.CANCELLED if job.reason == CLEARED_REASON:
                clears = [scope for scope, last in self._clears if job.id <= last and scope in _scopes(job)]
                assert clears, f"{description} without a clear of {_scopes(job)}"
            case Status.CANCELLED | Status.SKIPPED if job.reason == PREDECESSOR_FAILED:
                self._check_dropped(job, {Status.CANCELLED: "stop", Status.SKIPPED: "skip"}[job.status])
            case Status.CANCELLED:
                self._check_cancel_requested(job)
            case Status.SKIPPED:
                assert any(edge.policy is DependencyPolicy.FAILED for edge in self._unmeetable_edges(job)), (
                    f"{description} although its predecessors may still fail"
                )
            case Status.BLOCKED_BY_DEPENDENCY:
                has_failed_edge = any(
                    edge.policy is not DependencyPolicy.FAILED for edge in self._unmeetable_edges(job)
                )
                assert has_failed_edge or self._external_facts.is_unmeetable(job), (
                    f"{description} although all dependencies can be met"
                )
            case _:
                raise AssertionError(description)
        if job.status is Status.CANCELLED:
            assert job.exit_code == EXIT_CANCELLED, f"{description}, exit code {job.exit_code}"

    def _check_cancel_requested(self, job: Job) -> None:
        assert str(job.reason).startswith("cancelled by"), f"{format_job_id(job.id)} is cancelled: {job.reason}"
        assert job.chain in self._cancel_requested, f"{format_job_id(job.id)} is cancelled without a request"

    def _unmeetable_edges(self, job: Job) -> list[Edge]:
        """Return the edges that cannot be met any more."""
        return [
            edge for edge in job.after if any(self._is_unmet_by(job, edge, *end) for end in self._ends_of(edge.chain))
        ]

    def _is_unmet_by(self, job: Job, edge: Edge, status: Status, dropped_in: int | None) -> bool:
        """A job that the policy of another group skipped is no success."""
        is_other = edge.policy is DependencyPolicy.SUCCESS and dropped_in is not None and dropped_in != job.group
        return status not in SATISFYING_STATUSES[edge.policy.value] or is_other

    def _ends_of(self, chain: JobId) -> list[tuple[Status, int | None]]:
        """Return the last outcome of the chain, and its other outcomes in this commit."""
        ((last, dropped, group),) = self._run_sql(
            f"SELECT status, dropped, job_group FROM job WHERE chain = {chain} ORDER BY id DESC LIMIT 1"
        )
        dropped_in = group if dropped else None
        new_ends = [(status, dropped_in) for status in self._new_ends.get(chain, ())]
        return [*new_ends, (Status(last), dropped_in)] if Status(last) in TERMINAL else new_ends

    # Groups.

    def _check_dropped(self, job: Job, policy: str) -> None:
        description = f"{format_job_id(job.id)} is {job.status} ({job.reason})"
        assert job.group is not None, f"{description} without a group"
        actual = self._policy_of(job.group)
        assert actual == policy, f"{description} with the policy {actual}"
        failed = [chain for chain in self.chains_of(job.group) if self._has_failed(chain)]
        assert any(not _is_exempt(job, chain) for chain in failed), f"{description} with the failed members {failed}"

    def _has_failed(self, chain: JobId) -> bool:
        return any(status in FAILED_STATUSES for status, _ in self._ends_of(chain))

    def _check_policy_applied(self, failed: Job, group: GroupId) -> None:
        """After the failure of a chain, no member that has not started is waiting, except those that come after it."""
        has_retry = self._run_sql(f"SELECT 1 FROM job WHERE retry_of = {failed.id}")
        if self._policy_of(group) == "continue" or has_retry:
            return
        for member in self._sim.reader.jobs.find_all(self._sim.waiting_jobs()):
            if member.group == group and not member.retries and not _is_exempt(member, failed.chain):
                raise AssertionError(
                    f"{format_job_id(member.id)} is waiting after {format_job_id(failed.id)} of its group failed"
                )

    def _check_requeued(self, job: Job) -> None:
        """Check that a requeued job has no process. The policy of its group also applies to it, if the failure came
        after the claim."""
        run = self._claimed_run[job.id]
        child = self._sim.supervisor.children.get(run)
        assert child is None, f"{format_job_id(job.id)} is queued again although run-{run} has started"
        unread = [start.run for start in self._sim.connection.unread_starts]
        assert run not in unread, f"{format_job_id(job.id)} is queued again although run-{run} may still start"
        if job.group is None or job.retries or self._policy_of(job.group) == "continue":
            return
        for chain in self.chains_of(job.group):
            ((last, status),) = self._run_sql(
                f"SELECT id, status FROM job WHERE chain = {chain} ORDER BY id DESC LIMIT 1"
            )
            is_affected = Status(status) in FAILED_STATUSES and self._claimed[job.id] < self._ended[last]
            assert not is_affected or _is_exempt(job, chain), (
                f"{format_job_id(job.id)} is waiting again after {chain} failed"
            )

    def _policy_of(self, group: GroupId) -> str:
        return str(self._run_sql(f"SELECT on_failure FROM job_group WHERE id = {group}")[0][0])

    def chains_of(self, group: GroupId) -> list[JobId]:
        return [JobId(chain) for (chain,) in self._run_sql(f"SELECT DISTINCT chain FROM job WHERE job_group = {group}")]


def _is_exempt(job: Job, chain: JobId) -> bool:
    """Return whether the job is meant to come after the chain even if it fails."""
    return any(
        edge.chain == chain and not edge.is_implied and edge.policy is not DependencyPolicy.SUCCESS
        for edge in job.after
    )


def _scopes(job: Job) -> tuple[str, ...]:
    return scopes_of(job.demand, job.spec.type, job.spec.flow, job.spec.target)
