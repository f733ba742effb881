"""Changes of jobs: submit, edit, end (including jobs that never started), stop requests and resets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.db.artifacts import Artifacts
from rota.db.database import Database
from rota.db.decoding import delay_to_micros, duration_to_micros, optional_to_micros, to_micros
from rota.db.events import Events
from rota.db.ids import Ids
from rota.db.job_records import LOST_JOBS_KEY, JobRecords
from rota.db.locks import Locks
from rota.db.queue import Queue
from rota.db.runs import OpenRun, Runs
from rota.ids import GroupId, JobId, LaneId
from rota.kernel.artifacts import Artifact, MissingProducer
from rota.kernel.edges import Edge, EdgeState
from rota.kernel.events import Event
from rota.kernel.job import Job, Spec, changed_fields, edit
from rota.kernel.pools import PoolDemand
from rota.kernel.queue import Rank, initial_position
from rota.kernel.run import STOPPED_BY_SHUTDOWN, RunResult, amend
from rota.kernel.status import WAITING, Status, advance, parse_status

_encode = msgspec.json.Encoder(order="sorted").encode


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """Validated job, ready to be stored."""

    id: JobId
    spec: Spec
    priority: int
    not_before: datetime | None
    edges: tuple[tuple[Edge, EdgeState], ...]
    demand: PoolDemand
    group: GroupId | None = None
    sequence: int | None = None
    unique: str | None = None
    is_ready: bool
    """Whether the job has no unmet edge, delay, lock or needed fact, so that it enters its lane without an
    evaluation."""
    needs: tuple[Artifact, ...] = ()
    products: tuple[Artifact, ...] = ()
    missing_producer: MissingProducer | None = None
    """Policy for needs without a producer; None selects the default of each artifact type."""

    @property
    def needs_facts(self) -> bool:
        """Whether the job needs artifacts or has a pinned head."""
        return bool(self.needs) or self.spec.pinned_head is not None

    def to_job(self, now: datetime) -> Job:
        """Return the job as submitted, before its first evaluation."""
        return Job(
            id=self.id,
            spec=self.spec,
            status=Status.QUEUED,
            chain=self.id,
            retry_of=None,
            attempt=1,
            retries=0,
            priority=self.priority,
            position=initial_position(self.id),
            created_at=now,
            queued_at=now,
            started_at=None,
            finished_at=None,
            not_before=self.not_before,
            exit_code=None,
            reason=None,
            wait_kind=None,
            waited_on=(),
            permanently_failed=False,
            dispatch_failures=0,
            last_failure=None,
            stop_requested=None,
            pid=None,
            group=self.group,
            sequence=self.sequence,
            unique=self.unique,
            demand=self.demand,
            after=tuple(edge for edge, _ in self.edges),
            run=None,
        )


class Jobs(JobRecords):
    def __init__(
        self, database: Database, ids: Ids, events: Events, artifacts: Artifacts, locks: Locks, runs: Runs, queue: Queue
    ) -> None:
        super().__init__(database, artifacts)
        self._ids = ids
        self._events = events
        self._artifacts: Artifacts = artifacts
        self._locks = locks
        self._runs = runs
        self._queue = queue

    def environment_id(self, variables: Mapping[str, str]) -> int:
        """Return the id of an environment. Equal environments share one row."""
        text = _encode(variables)
        if text not in self._ids.cache:
            digest = hashlib.sha256(text).hexdigest()
            rows = self._db.rows("find_environment", digest=digest) or self._db.rows(
                "add_environment", digest=digest, variables=text.decode()
            )
            self._ids.cache[text] = int(rows[0][0])
        return self._ids.cache[text]

    def _lane_id(self, job: NewJob) -> LaneId:
        spec = job.spec
        key = (spec.type or "", spec.flow or "", spec.target or "", int(job.needs_facts), *job.demand.items())
        if key not in self._ids.cache:
            text = msgspec.json.encode(job.demand).decode()
            values = {"demand": text, "type": key[0], "flow": key[1], "target": key[2], "needs_facts": key[3]}
            rows = self._db.rows("find_lane", **values) or self._db.rows("add_lane", **values)
            self._ids.cache[key] = rows[0][0]
        return LaneId(self._ids.cache[key])

    def add(self, jobs: Sequence[NewJob], now: datetime, actor: str | None) -> None:
        stored_now = to_micros(now)
        ready: dict[LaneId, int] = {}
        rows = []
        for job in jobs:
            lane = self._lane_id(job)
            if job.is_ready:
                ready[lane] = ready.get(lane, 0) + 1
            rows.append(_job_row(job, lane, stored_now, delay_to_micros(job.not_before, now)))
        # Most submits of a turn read nothing between these writes, so the buffer sends the rows of all of them
        # together.
        self._db.buffer("add_spec", [spec_row(job.id, job.spec) for job in jobs])
        self._db.buffer("add_job", rows)
        self._db.buffer("add_edge", [row for job in jobs for row in _edge_rows(job)])
        self._db.buffer("add_lock", [row for job in jobs for row in _lock_rows(job, stored_now)])
        self._db.buffer("update_ready_count", [{"lane": lane, "delta": count} for lane, count in ready.items()])
        for job in jobs:
            if job.products:
                self._artifacts.add_products(job.id, job.spec, job.products)
        for job in jobs:
            if job.needs_facts:
                self._artifacts.add_needs(job.id, job.spec, job.needs, job.missing_producer)
        for job in jobs:
            self._events.emit(Event(kind="job.submitted", at=stored_now, cause="submit", actor=actor, job=job.id))

    def edit(self, job: Job, changes: Mapping[str, Any], *, now: datetime, actor: str | None) -> bool:
        """Change a waiting job. Return false if it no longer waits.

        Earlier jobs of its chain keep their specs. A change of delay or priority takes effect with the evaluation of
        this turn.
        """
        edited = edit(job, changes)
        rank = Rank(-edited.priority, edited.position, to_micros(edited.created_at), edited.id)
        if edited.spec != job.spec and not self._store_spec(edited.id, edited.spec):
            return False
        if edited.not_before != job.not_before and not self._db.run(
            "set_delay",
            job=job.id,
            not_before=optional_to_micros(edited.not_before),
            delay=delay_to_micros(edited.not_before, now),
        ):
            return False
        if edited.priority != job.priority and not self._queue.set_ranks([rank]):
            return False
        if fields := changed_fields(job, edited):
            # Otherwise an executor that cannot be reached now could start the old version.
            self._db.run("withdraw_prefetch_of_job", job=job.id)
            data = {"fields": fields}
            self._events.emit(
                Event(kind="job.edited", at=to_micros(now), cause="edit", actor=actor, job=job.id, data=data)
            )
        return True

    def _store_spec(self, job: JobId, spec: Spec) -> bool:
        """Store the spec. A job that shares the spec of its chain gets its own copy."""
        row = spec_row(job, spec)
        stored = self._db.rows("spec_of", job=job)
        if not stored:
            return False
        if stored[0][0] == job:
            return bool(self._db.run("edit_spec", **row))
        self._db.run("add_spec", **row)
        return bool(self._db.run("detach_spec", **row))

    def finish(
        self,
        run: OpenRun,
        end: RunResult,
        *,
        finished_at: datetime,
        now: datetime,
        cause: str,
        chain_continues: bool = False,
    ) -> bool:
        """End a run at `finished_at`. Return false if it has ended before. A failure is permanent unless the chain
        continues."""
        values = {
            "now": to_micros(finished_at),
            "status": advance(run.status, end.status).value,
            "exit_code": end.exit_code,
        }
        amended = amend(status=values["status"], finished_at=values["now"], exit_code=end.exit_code, error=end.error)
        if not self._db.run("finish_run", run=run.run, **amended):
            return False
        is_final = int(end.status is Status.FAILED and not chain_continues)
        self._db.run("finish_job", job=run.job, reason=end.reason, permanently_failed=is_final, **values)
        if run.has_locks:
            self._locks.release(run.job)
        data: dict[str, object] = {"from": run.status.value, "exit_code": end.exit_code}
        if end.reason is not None:
            data["reason"] = end.reason
        self._emit_end(run.job, end.status, now, cause, actor=None, run=run, data=data)
        return True

    def abandon(
        self, run: OpenRun, *, dispatch_failures: int, error: str, reason: str, now: datetime, cause: str
    ) -> None:
        """Fail a job that could not be started and is not retried. Its run is deleted."""
        status = advance(run.status, Status.FAILED)
        is_changed = self._db.run(
            "end_dispatched",
            job=run.job,
            status=status.value,
            now=to_micros(now),
            exit_code=1,
            reason=reason,
            dispatch_failures=dispatch_failures,
            last_failure=error,
            permanently_failed=1,
        )
        if not is_changed:
            return
        self._runs.delete(run.run)
        self._locks.release(run.job)
        data = {"from": run.status.value, "reason": reason, "error": error}
        self._emit_end(run.job, Status.FAILED, now, cause, actor=None, run=None, data=data)

    def end_waiting(
        self,
        job: JobId,
        status: Status,
        *,
        exit_code: int | None,
        reason: str,
        now: datetime,
        cause: str,
        actor: str | None,
    ) -> bool:
        """End a job that has not started. Return false if it no longer waits."""
        was_ready, old_status = self._db.rows("readiness_of", job=job)[0]
        if parse_status(old_status) not in WAITING:
            return False
        advance(parse_status(old_status), status)
        lanes = self._db.rows(
            "end_waiting",
            job=job,
            status=status.value,
            now=to_micros(now),
            exit_code=exit_code,
            reason=reason,
            permanently_failed=int(status is Status.FAILED),
        )
        if not lanes:
            return False
        if was_ready:
            self._db.run("update_ready_count", lane=LaneId(lanes[0][0]), delta=-1)
        self._locks.release(job)
        self._emit_end(job, status, now, cause, actor=actor, run=None, data={"from": old_status, "reason": reason})
        return True

    def end_unreadable(
        self, job: JobId, status: Status, *, exit_code: int, reason: str, now: datetime, actor: str | None
    ) -> None:
        """End a job of unknown status that has no open run."""
        was_ready, old_status = self._db.rows("readiness_of", job=job)[0]
        advance(parse_status(old_status), status)
        ((lane,),) = self._db.rows(
            "end_unreadable", job=job, status=status.value, now=to_micros(now), exit_code=exit_code, reason=reason
        )
        if was_ready:
            self._db.run("update_ready_count", lane=LaneId(lane), delta=-1)
        self._locks.release(job)
        self._emit_end(job, status, now, "cancel", actor=actor, run=None, data={"from": old_status, "reason": reason})

    def request_stop(self, job: JobId, reason: str, now: datetime, actor: str | None) -> bool:
        """Record that a running job must be stopped. A cancel replaces the stop request of a shutdown. Return false if
        another stop was requested before, or if the job has ended."""
        if not self._db.run("request_stop", job=job, reason=reason, weaker=STOPPED_BY_SHUTDOWN):
            return False
        event = Event(
            kind="job.stop_requested", at=to_micros(now), cause="cancel", actor=actor, job=job, data={"reason": reason}
        )
        self._events.emit(event)
        return True

    def _emit_end(
        self,
        job: JobId,
        status: Status,
        now: datetime,
        cause: str,
        *,
        actor: str | None,
        run: OpenRun | None,
        data: Mapping[str, object],
    ) -> None:
        self._events.emit(
            Event(
                kind=f"job.{status.lower()}",
                at=to_micros(now),
                cause=cause,
                actor=actor,
                job=job,
                run=None if run is None else run.run,
                data=data,
            )
        )

    def reset_backoff(self, job: JobId, now: datetime, actor: str | None) -> tuple[str, ...]:
        """Clear the delay and the failure counts of a waiting job. Return the names of the fields that were set."""
        ((not_before, retries, dispatch_failures),) = self._db.rows("backoff_of", job=job)
        old_values = {"not_before": not_before, "retries": retries, "dispatch_failures": dispatch_failures}
        cleared = {name: value for name, value in old_values.items() if value}
        if cleared:
            self._db.run("reset_backoff", job=job)
            at = to_micros(now)
            self._events.emit(Event(kind="job.backoff_reset", at=at, cause="retry", actor=actor, job=job, data=cleared))
        return tuple(cleared)

    def mark_permanently_failed(self, job: JobId) -> None:
        self._db.run("mark_permanently_failed", job=job)

    def reset_start_failures(self, job: JobId, *, now: datetime, actor: str | None) -> bool:
        """Clear the count of failed starts of a job, and the delay they caused. Return false if there were none."""
        if not self._db.run("reset_start_failures", job=job):
            return False
        event = Event(kind="job.start_failures_reset", at=to_micros(now), cause="breaker", actor=actor, job=job)
        self._events.emit(event)
        return True

    def record_lost(self, first: int, last: int) -> None:
        """Record that the records of these jobs were lost, in addition to earlier losses."""
        if first > last:
            return
        stored = self._db.rows("get_meta", key=LOST_JOBS_KEY)
        ranges = [*(str(row[0]) for row in stored), f"{first}-{last}"]
        self._db.run("set_meta", key=LOST_JOBS_KEY, value=",".join(ranges))


def spec_row(job: JobId, spec: Spec) -> dict[str, object]:
    return {
        "id": job,
        "command": _encode(spec.command).decode(),
        "cwd": spec.cwd,
        "environment": spec.environment,
        "trace": _encode(spec.trace).decode() if spec.trace else None,
        "name": spec.name,
        "type": spec.type,
        "params": _encode(spec.params).decode() if spec.params else "{}",
        "flow": spec.flow,
        "phase": spec.phase,
        "target": spec.target,
        "pools": _encode(spec.pools).decode() if spec.pools else "{}",
        "timeout": duration_to_micros(spec.timeout),
        "idle_timeout": duration_to_micros(spec.idle_timeout),
        "skip_if": spec.skip_if,
        "retry": None if spec.retry is None else _encode(spec.retry).decode(),
        "repository": spec.repository,
        "workspace": None if spec.workspace is None else _encode(spec.workspace).decode(),
        "template": spec.template,
        "template_snapshot": None if spec.template_snapshot is None else _encode(spec.template_snapshot).decode(),
        "webhook": None if spec.webhook is None else _encode(spec.webhook).decode(),
        "sources": _encode(spec.sources).decode() if spec.sources else None,
    }


def _job_row(job: NewJob, lane: LaneId, now: int, delay: int | None) -> dict[str, object]:
    return {
        "id": job.id,
        "precedence": -job.priority,
        "position": initial_position(job.id),
        "now": now,
        "not_before": optional_to_micros(job.not_before),
        "delay": delay,
        "unmet_edges": sum(1 for _, state in job.edges if state is not EdgeState.MET),
        "group": job.group,
        "sequence": job.sequence,
        "schedule": job.spec.schedule,
        "unique": job.unique,
        "lane": lane,
        "needs_facts": int(job.needs_facts),
        "ready": int(job.is_ready),
        "ready_at": now if job.is_ready else None,
        "dirty": int(not job.is_ready),
    }


def _edge_rows(job: NewJob) -> list[dict[str, object]]:
    return [
        {
            "job": job.id,
            "sequence": n,
            "predecessor": edge.predecessor,
            "chain": edge.chain,
            "policy": edge.policy.value,
            "state": state.value,
            "implied": int(edge.is_implied),
        }
        for n, (edge, state) in enumerate(job.edges)
    ]


def _lock_rows(job: NewJob, now: int) -> list[dict[str, object]]:
    return [
        {
            "job": job.id,
            "key": lock.key,
            "mode": lock.mode.value,
            "precedence": -job.priority,
            "position": initial_position(job.id),
            "now": now,
        }
        for lock in job.spec.locks
    ]
