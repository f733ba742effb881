"""Storage of new jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from rota.core.artifact import Artifact, MissingProducer
from rota.core.edges import Edge, EdgeState
from rota.core.event import Event
from rota.core.job import Job, Spec
from rota.core.pool import PoolDemand
from rota.core.queue import initial_position
from rota.core.status import Status, parse_status
from rota.core.unique import KeyHolder
from rota.ids import GroupId, JobId, LaneId
from rota.store.artifact import ArtifactWriter
from rota.store.timestamp import delay_to_micros, duration_to_micros, optional_to_micros, to_micros

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
    """Whether every gate up to locks passes, so that the job enters its lane without an evaluation."""
    needs: tuple[Artifact, ...] = ()
    products: tuple[Artifact, ...] = ()
    missing_producer: MissingProducer | None = None
    """Policy for needs without a producer; None selects the default of each artifact type."""

    @property
    def needs_facts(self) -> bool:
        """Whether the job needs artifacts or has a pinned head."""
        return bool(self.needs) or self.spec.pinned_head is not None

    def to_job(self, now: datetime) -> Job:
        """Return the job as a reader sees it after the commit."""
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


class ChainState(msgspec.Struct, frozen=True, kw_only=True):
    chain: JobId
    last: JobId
    status: Status
    unique: str | None = None
    group: GroupId | None = None
    is_dropped: bool = False

    def is_dropped_for(self, group: GroupId | None) -> bool:
        """Return whether the policy of its group ended the chain and a dependent in `group` is outside that group."""
        return self.is_dropped and self.group != group


class SubmitWriter(ArtifactWriter):
    def allocate_job_ids(self, count: int) -> list[JobId]:
        first = self.allocate_ids("job", count)
        return [JobId(first + n) for n in range(count)]

    def environment_id(self, variables: Mapping[str, str]) -> int:
        """Return the id of an environment. Equal environments share one row."""
        text = _encode(variables)
        if text not in self._id_cache:
            digest = hashlib.sha256(text).hexdigest()
            rows = self._db.rows("find_environment", digest=digest) or self._db.rows(
                "add_environment", digest=digest, variables=text.decode()
            )
            self._id_cache[text] = int(rows[0][0])
        return self._id_cache[text]

    def _lane_id(self, job: NewJob) -> LaneId:
        spec = job.spec
        key = (spec.type or "", spec.flow or "", spec.target or "", int(job.needs_facts), *job.demand.items())
        if key not in self._id_cache:
            text = msgspec.json.encode(job.demand).decode()
            values = {"demand": text, "type": key[0], "flow": key[1], "target": key[2], "needs_facts": key[3]}
            rows = self._db.rows("find_lane", **values) or self._db.rows("add_lane", **values)
            self._id_cache[key] = rows[0][0]
        return LaneId(self._id_cache[key])

    def chain_states(self, jobs: Sequence[JobId]) -> dict[JobId, ChainState]:
        """Return the state of the chain of each job. Jobs that do not exist are missing from the result."""
        return {
            JobId(job): ChainState(
                chain=JobId(chain),
                last=JobId(last),
                status=parse_status(status),
                unique=unique,
                group=group,
                is_dropped=bool(dropped),
            )
            for job, chain, last, status, unique, group, dropped in self._db.rows("chain_states", ids=list(jobs))
        }

    def key_holders(self, keys: Sequence[str]) -> dict[str, KeyHolder]:
        """Return the holder of each unique key. Keys without a holder are missing from the result."""
        rows = self._db.rows("key_holders", keys=list(keys)) if keys else ()
        return {key: KeyHolder(job=JobId(job), chain=JobId(chain)) for key, job, chain in rows}

    def store_response(self, key: str, digest: str, status: int, response: str, now: datetime) -> None:
        self._db.run("add_response", key=key, digest=digest, status=status, response=response, at=to_micros(now))

    def ended_jobs(self, jobs: Sequence[JobId]) -> list[tuple[JobId, Status, str]]:
        """Return the status and the reason of the jobs among these that have ended."""
        rows = self._db.rows("ended_jobs", ids=list(jobs))
        return [(JobId(job), parse_status(status), reason or "it has ended") for job, status, reason in rows]

    def add_jobs(self, jobs: Sequence[NewJob], now: datetime, actor: str | None) -> None:
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
                self.add_products(job.id, job.spec, job.products)
        for job in jobs:
            if job.needs_facts:
                self.add_needs(job.id, job.spec, job.needs, job.missing_producer)
        for job in jobs:
            self.emit(Event(kind="job.submitted", at=stored_now, cause="submit", actor=actor, job=job.id))


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
