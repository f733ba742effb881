"""Stores what was submitted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from rota.core.after import Edge, EdgeState
from rota.core.artifact import Artifact, MissingProducer
from rota.core.event import Event
from rota.core.job import Job, Spec
from rota.core.pool import Draws
from rota.core.queue import position_of
from rota.core.status import Status
from rota.core.unique import Active
from rota.ids import GroupId, JobId, LaneId
from rota.store.artifact import Crafting
from rota.store.moment import duration_to_stored, maybe_to_stored, to_stored

_encode = msgspec.json.Encoder(order="sorted").encode


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has been checked and can be stored."""

    id: JobId
    spec: Spec
    priority: int
    not_before: datetime | None
    edges: tuple[tuple[Edge, EdgeState], ...]
    draws: Draws
    group: GroupId | None = None
    sequence: int | None = None
    unique: str | None = None
    is_ready: bool
    """No gate up to locks has anything to ask of it: it goes straight to its lane."""
    needs: tuple[Artifact, ...] = ()
    products: tuple[Artifact, ...] = ()
    missing_producer: MissingProducer = MissingProducer.BLOCK

    @property
    def asks(self) -> bool:
        """The gates of artifacts and pinned heads have something to ask of it."""
        return bool(self.needs) or self.spec.pinned_head is not None

    def as_stored(self, now: datetime) -> Job:
        """The job that a reader finds once this is stored."""
        return Job(
            id=self.id, spec=self.spec, status=Status.QUEUED, chain=self.id, retry_of=None, attempt=1, retries=0,
            priority=self.priority, position=position_of(self.id), created_at=now, queued_at=now, started_at=None,
            finished_at=None, not_before=self.not_before, exit_code=None, reason=None, wait_kind=None, waited_on=(),
            permanently_failed=False, dispatch_failures=0, last_failure=None, stop_requested=None, pid=None,
            group=self.group, sequence=self.sequence, unique=self.unique, draws=self.draws,
            after=tuple(edge for edge, _ in self.edges), run=None,
        )  # fmt: skip


class ChainState(msgspec.Struct, frozen=True, kw_only=True):
    chain: JobId
    last: JobId
    status: Status
    unique: str | None = None
    group: GroupId | None = None
    dropped: bool = False

    def is_dropped_for(self, group: GroupId | None) -> bool:
        """Its group's policy has ended it, as one sees it who is in this group."""
        return self.dropped and self.group != group


class Submitting(Crafting):
    def next_job_ids(self, count: int) -> list[JobId]:
        first = self.take("job", count)
        return [JobId(first + n) for n in range(count)]

    def surroundings(self, variables: Mapping[str, str]) -> int:
        """The id under which this environment is stored, once for each distinct content."""
        text = _encode(variables)
        if text not in self._known:
            digest = hashlib.sha256(text).hexdigest()
            rows = self._db.rows("find_surroundings", digest=digest) or self._db.rows(
                "add_surroundings", digest=digest, variables=text.decode()
            )
            self._known[text] = int(rows[0][0])
        return self._known[text]

    def _lane(self, job: NewJob) -> LaneId:
        spec = job.spec
        place = (spec.type or "", spec.flow or "", spec.target or "", int(job.asks), *job.draws.items())
        if place not in self._known:
            text = msgspec.json.encode(job.draws).decode()
            values = {"draws": text, "type": place[0], "flow": place[1], "target": place[2], "asks": place[3]}
            rows = self._db.rows("find_lane", **values) or self._db.rows("add_lane", **values)
            self._known[place] = rows[0][0]
        return LaneId(self._known[place])

    def chains(self, jobs: Sequence[JobId]) -> dict[JobId, ChainState]:
        """What the chains of these jobs have come to; a job that does not exist is not in the answer."""
        return {
            JobId(job): ChainState(
                chain=JobId(chain),
                last=JobId(last),
                status=Status(status),
                unique=unique,
                group=group,
                dropped=bool(dropped),
            )
            for job, chain, last, status, unique, group, dropped in self._db.rows("chains", ids=list(jobs))
        }

    def active_of(self, keys: Sequence[str]) -> dict[str, Active]:
        """Who has each of these unique keys; one that nobody has is not in the answer."""
        rows = self._db.rows("active_of_keys", keys=list(keys)) if keys else ()
        return {key: Active(job=JobId(job), chain=JobId(chain)) for key, job, chain in rows}

    def remember_answer(self, key: str, digest: str, status: int, answer: str, now: datetime) -> None:
        self._db.run("add_answer", key=key, digest=digest, status=status, answer=answer, at=to_stored(now))

    def add(self, jobs: Sequence[NewJob], now: datetime, actor: str | None) -> None:
        stored_now = to_stored(now)
        ready: dict[LaneId, int] = {}
        rows = []
        for job in jobs:
            lane = self._lane(job)
            if job.is_ready:
                ready[lane] = ready.get(lane, 0) + 1
            rows.append(_job_row(job, lane, stored_now))
        # Most submits of a turn ask nothing of the database: what they store goes to it together.
        self._db.put_off("add_spec", [spec_row(job.id, job.spec) for job in jobs])
        self._db.put_off("add_job", rows)
        self._db.put_off("add_edge", [row for job in jobs for row in _edge_rows(job)])
        self._db.put_off("add_lock", [row for job in jobs for row in _lock_rows(job, stored_now)])
        self._db.put_off("count_ready", [{"lane": lane, "change": count} for lane, count in ready.items()])
        for job in jobs:
            if job.products:
                self.add_products(job.id, job.spec, job.products)
        for job in jobs:
            if job.asks:
                self.add_needs(job.id, job.spec, job.needs, job.missing_producer)
        for job in jobs:
            self.emit(Event(kind="job.submitted", at=stored_now, cause="submit", actor=actor, job=job.id))


def spec_row(job: JobId, spec: Spec) -> dict[str, object]:
    return {
        "id": job,
        "command": _encode(spec.command).decode(),
        "cwd": spec.cwd,
        "surroundings": spec.surroundings,
        "trace": _encode(spec.trace).decode() if spec.trace else None,
        "name": spec.name,
        "type": spec.type,
        "params": _encode(spec.params).decode() if spec.params else "{}",
        "flow": spec.flow,
        "phase": spec.phase,
        "target": spec.target,
        "pools": _encode(spec.pools).decode() if spec.pools else "{}",
        "timeout": duration_to_stored(spec.timeout),
        "idle_timeout": duration_to_stored(spec.idle_timeout),
        "skip_if": spec.skip_if,
        "retry": None if spec.retry is None else _encode(spec.retry).decode(),
        "repository": spec.repository,
        "workspace": None if spec.workspace is None else _encode(spec.workspace).decode(),
        "template": spec.template,
        "recipe": None if spec.recipe is None else _encode(spec.recipe).decode(),
        "webhook": None if spec.webhook is None else _encode(spec.webhook).decode(),
    }


def _job_row(job: NewJob, lane: LaneId, now: int) -> dict[str, object]:
    return {
        "id": job.id,
        "precedence": -job.priority,
        "position": position_of(job.id),
        "now": now,
        "not_before": maybe_to_stored(job.not_before),
        "unmet": sum(1 for _, state in job.edges if state is not EdgeState.MET),
        "group": job.group,
        "sequence": job.sequence,
        "schedule": job.spec.schedule,
        "unique": job.unique,
        "lane": lane,
        "asks": int(job.asks),
        "ready": int(job.is_ready),
        "ready_at": now if job.is_ready else None,
        "stirred": int(not job.is_ready),
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
            "position": position_of(job.id),
            "now": now,
        }
        for lock in job.spec.locks
    ]
