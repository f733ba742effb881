"""How everybody ended, judged at each commit: by its process, or by what kept it from ever having one (DESIGN 2, 5, 8).

    with a run     as its child ended, and with retries left another job follows it
    without one    FAILED       its start has failed three times in a row, and not for the machine's sake
                   CANCELLED    somebody asked for that; or a clearing that it stood under; or the policy of its group
                   SKIPPED      it was to come after a failure that did not come; or the policy of its group
                   BLOCKED      what it was to come after ended otherwise; or nobody will make what it needs

What people asked for is told by whoever asks, before it is done: a scheduler that is killed may have done it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.referee import MEETS
from harness import Raw
from rota.core.after import AfterPolicy, Edge
from rota.core.breaker import CIRCUIT_BROKEN
from rota.core.control import scopes_of
from rota.core.event import Event
from rota.core.group import FAILED, PREDECESSOR_FAILED
from rota.core.job import Job
from rota.core.run import CANCELLED, CRASH_RECOVERY, TIMED_OUT
from rota.core.status import TERMINAL, WAITING, Status
from rota.duration import show_duration
from rota.engine.control import CLEARED
from rota.executor.port import Exited
from rota.ids import GroupId, JobId, RunId, show_job
from rota.store.moment import from_stored
from sim.outside import Outside

if TYPE_CHECKING:
    from sim.simulation import Simulation

_ENDS = {f"job.{status.lower()}": status for status in TERMINAL}
_MOST_STARTS = 3
"""Starts that fail before a job is given up."""


class Ends:
    def __init__(self, simulation: Simulation, raw: Raw, outside: Outside) -> None:
        self._sim = simulation
        self._raw = raw
        self._outside = outside
        self._asked: set[JobId] = set()
        """Chains that somebody wanted ended."""
        self._unwanted: set[JobId] = set()
        """Those of them whose cancel was answered: they start no more."""
        self._clearings: list[tuple[str, JobId]] = []
        """Scope, and the last job there was."""
        self._news: dict[JobId, set[Status]] = {}
        """How jobs of each chain ended in this commit, whatever became of them then."""
        self._passed = 0
        """Events so far. When a job was last claimed and last ended is told by these: clocks are set."""
        self._claimed: dict[JobId, int] = {}
        self._ended: dict[JobId, int] = {}

    # What people ask for.

    @contextmanager
    def cancelling(self, chains: Sequence[JobId]) -> Iterator[None]:
        self._asked.update(chains)
        yield
        self._unwanted.update(chains)

    @contextmanager
    def clearing(self, scope: str) -> Iterator[None]:
        """When it is over nobody waits that it was about."""
        last = max(self._sim.ids(), default=JobId(0))
        self._clearings.append((scope, last))
        waited = {job.id for job in self._sim.reader.jobs(self._sim.waiting()) if scope in _scopes(job)}
        yield
        left = waited & set(self._sim.waiting())
        assert not left, f"{left} wait, though {scope} is cleared"

    # What became of everybody.

    def at_commit(self, events: Sequence[Event]) -> None:
        self._news = defaultdict(set)
        for event in events:
            self._passed += 1
            if event.job is not None and event.kind == "job.dispatched":
                self._claimed[event.job] = self._passed
            if event.job is not None and event.kind in _ENDS:
                self._ended[event.job] = self._passed
                self._news[self._sim.job(event.job).chain].add(_ENDS[event.kind])
        for event in events:
            if event.job is not None and event.kind.startswith("job."):
                self._meet(event, self._sim.job(event.job))

    def _meet(self, event: Event, job: Job) -> None:
        match event.kind:
            case "job.rewound":
                self._unwanted.discard(job.chain)
            case "job.submitted" if event.actor is not None:
                self._unwanted.discard(job.chain)  # a retry by hand
            case "job.dispatched":
                assert job.chain not in self._unwanted, f"{show_job(job.id)} starts, though its cancel was answered"
            case "job.queued" if job.status in WAITING and event.data.get("from") == "DISPATCHED":
                self._check_returned(job)
            case kind if job.status is _ENDS.get(kind):
                self._check_run(job, event.run) if event.run is not None else self._check_without_run(job)
                if job.group is not None and job.status in FAILED:
                    self._check_policy_spoke(job, job.group)

    # With a run.

    def _check_run(self, job: Job, run: RunId) -> None:
        child = self._sim.supervisor.children.get(run)
        assert child is not None, f"{show_job(job.id)} is {job.status}, and never was"
        assert child.end is not None, f"{show_job(job.id)} is {job.status}, and lives"
        told, wanted = (job.status, job.exit_code, job.reason), self._concluded(job, child.end)
        assert told == wanted, f"{show_job(job.id)} is {told}, and its child ended with {wanted}"
        if job.status is Status.CANCELLED:
            self._check_asked(job)
        if job.status is Status.FAILED:
            self._check_retry(job)

    def _concluded(self, job: Job, end: Exited) -> tuple[Status, int, str | None]:
        """What its child's end makes of a job. A result that came before the stop took effect stands."""
        if end.ended_by == "timeout":
            limit = "its limit" if job.spec.timeout is None else show_duration(job.spec.timeout)
            return Status.FAILED, TIMED_OUT, f"timed out after {limit}"
        if end.ended_by == "stop" and job.stop_requested is not None:
            return Status.CANCELLED, CANCELLED, job.stop_requested
        if end.code is not None:
            return (Status.FAILED, end.code, f"exit code {end.code}") if end.code else (Status.COMPLETED, 0, None)
        if not end.watched:
            return Status.FAILED, 1, CRASH_RECOVERY
        return Status.FAILED, 128 + (end.signal or 0), "killed by SIGTERM"

    def _check_retry(self, job: Job) -> None:
        policy, name = job.spec.retry, show_job(job.id)
        goes_on = policy is not None and job.stop_requested is None and job.retries < policy.max_retries
        assert job.permanently_failed is not goes_on, f"{name} has retries left: {goes_on}"
        if policy is None or not goes_on:
            return
        (next_one,) = self._raw(f"SELECT retries, not_before FROM job WHERE retry_of = {job.id}")
        at = self._sim.clock.now() + min(policy.base * policy.multiplier**job.retries, policy.cap)
        wanted = (job.retries + 1, at)
        assert (next_one[0], from_stored(next_one[1])) == wanted, f"{name} is tried again {next_one}, not {wanted}"

    # Without one.

    def _check_without_run(self, job: Job) -> None:
        said = f"{show_job(job.id)} is {job.status} ({job.reason}) without a run"
        match job.status:
            case Status.FAILED:
                starts = self._sim.supervisor.failed_starts(job.id)
                assert str(job.reason).startswith(CIRCUIT_BROKEN), said
                assert min(job.dispatch_failures, starts) >= _MOST_STARTS, f"{said}, and failed to start {starts} times"
                assert job.permanently_failed, said
            case Status.CANCELLED if job.reason == CLEARED:
                found = [scope for scope, last in self._clearings if job.id <= last and scope in _scopes(job)]
                assert found, f"{said}, and nobody cleared {_scopes(job)}"
            case Status.CANCELLED | Status.SKIPPED if job.reason == PREDECESSOR_FAILED:
                self._check_dropped(job, {Status.CANCELLED: "stop", Status.SKIPPED: "skip"}[job.status])
            case Status.CANCELLED:
                self._check_asked(job)
            case Status.SKIPPED:
                assert any(edge.policy is AfterPolicy.FAILED for edge in self._spoilt(job)), f"{said}, and is needed"
            case Status.BLOCKED_BY_DEPENDENCY:
                is_alone = any(edge.policy is not AfterPolicy.FAILED for edge in self._spoilt(job))
                assert is_alone or self._outside.never_comes(job), f"{said}, and nothing it waits for has failed"
            case _:
                raise AssertionError(said)
        if job.status is Status.CANCELLED:
            assert job.exit_code == CANCELLED, f"{said}, exit code {job.exit_code}"

    def _check_asked(self, job: Job) -> None:
        assert str(job.reason).startswith("cancelled by"), f"{show_job(job.id)} is cancelled: {job.reason}"
        assert job.chain in self._asked, f"{show_job(job.id)} is cancelled, and nobody asked for that"

    def _spoilt(self, job: Job) -> list[Edge]:
        """Its edges that cannot be met any more."""
        return [edge for edge in job.after if any(self._spoils(job, edge, *end) for end in self._ends_of(edge.chain))]

    def _spoils(self, job: Job, edge: Edge, status: Status, dropped_in: int | None) -> bool:
        """What the policy of another group has skipped is no success."""
        is_other = edge.policy is AfterPolicy.SUCCESS and dropped_in is not None and dropped_in != job.group
        return status not in MEETS[edge.policy.value] or is_other

    def _ends_of(self, chain: JobId) -> list[tuple[Status, int | None]]:
        """What it has come to, and in this commit came to on the way there."""
        ((last, dropped, group),) = self._raw(
            f"SELECT status, dropped, job_group FROM job WHERE chain = {chain} ORDER BY id DESC LIMIT 1"
        )
        dropped_in = group if dropped else None
        found = [(status, dropped_in) for status in self._news.get(chain, ())]
        return [*found, (Status(last), dropped_in)] if Status(last) in TERMINAL else found

    # Of groups.

    def _check_dropped(self, job: Job, policy: str) -> None:
        said = f"{show_job(job.id)} is {job.status} ({job.reason})"
        assert job.group is not None, f"{said}, and in no group"
        assert self._policy_of(job.group) == policy, f"{said}, and its group says {self._policy_of(job.group)}"
        failed = [chain for chain in self.chains_of(job.group) if self._has_failed(chain)]
        assert any(not _is_spared(job, chain) for chain in failed), f"{said}, and of its group failed {failed}"

    def _has_failed(self, chain: JobId) -> bool:
        return any(status in FAILED for status, _ in self._ends_of(chain))

    def _check_policy_spoke(self, failed: Job, group: GroupId) -> None:
        """Its chain is spent: of those that have not started nobody waits any more, but who is to come after it."""
        is_followed = self._raw(f"SELECT 1 FROM job WHERE retry_of = {failed.id}")
        if self._policy_of(group) == "continue" or is_followed:
            return
        for member in self._sim.reader.jobs(self._sim.waiting()):
            if member.group == group and not member.retries and not _is_spared(member, failed.chain):
                raise AssertionError(f"{show_job(member.id)} waits, though {show_job(failed.id)} of its group failed")

    def _check_returned(self, job: Job) -> None:
        """A claim that came to nothing: what the policy said meanwhile it says of this one too. Who was claimed after
        the failure was put there by somebody who knew."""
        if job.group is None or job.retries or self._policy_of(job.group) == "continue":
            return
        for chain in self.chains_of(job.group):
            ((last, status),) = self._raw(f"SELECT id, status FROM job WHERE chain = {chain} ORDER BY id DESC LIMIT 1")
            is_meant = Status(status) in FAILED and self._claimed[job.id] < self._ended[last]
            assert not is_meant or _is_spared(job, chain), f"{show_job(job.id)} waits again, and {chain} has failed"

    def _policy_of(self, group: GroupId) -> str:
        return str(self._raw(f"SELECT on_failure FROM job_group WHERE id = {group}")[0][0])

    def chains_of(self, group: GroupId) -> list[JobId]:
        return [JobId(chain) for (chain,) in self._raw(f"SELECT DISTINCT chain FROM job WHERE job_group = {group}")]


def _is_spared(job: Job, chain: JobId) -> bool:
    """Somebody wanted it to come after that one, though it fail."""
    return any(
        edge.chain == chain and not edge.is_implied and edge.policy is not AfterPolicy.SUCCESS for edge in job.after
    )


def _scopes(job: Job) -> tuple[str, ...]:
    return scopes_of(job.draws, job.spec.type, job.spec.flow, job.spec.target)
