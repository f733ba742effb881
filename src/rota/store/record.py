"""Reads whole records for people and programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rota.core.after import AfterPolicy, Edge
from rota.core.backpressure import Depth
from rota.core.event import Event
from rota.core.job import Job, Spec
from rota.core.lock import Lock, LockMode
from rota.core.retry import RetryPolicy
from rota.core.run import Run
from rota.core.status import ACTIVE, TERMINAL, Status
from rota.core.template import Recipe
from rota.core.trace import Trace
from rota.core.wait import WaitKind
from rota.core.webhook import JobHook
from rota.core.workspace import Workspace
from rota.ids import GroupId, JobId, RunId, ScheduleId, TemplateId
from rota.names import GLOBAL
from rota.store.artifact import ArtifactRecords, Named
from rota.store.database import Row
from rota.store.event import event_of
from rota.store.moment import duration_from_stored, from_stored, maybe_from_stored
from rota.store.readable import readable
from rota.store.run import RunRecords, run_of
from rota.store.snapshot import decode_draws, decode_waited_on

FIRST_RANK = (-(2**62), -(2**62), 0, 0)
_NAMELESS = Named()
LAST_RANK = (2**62, 2**62, 2**62, 2**62)
LISTED_BY = ("name", "type", "flow", "phase", "target")


class Records(RunRecords, ArtifactRecords):
    def answer(self, key: str) -> tuple[str, int, str] | None:
        """The digest of the request that came with this key before, and what it was told: status and body."""
        rows = self._db.rows("find_answer", key=key)
        return None if not rows else (rows[0][0], rows[0][1], rows[0][2])

    def jobs(self, ids: Sequence[JobId]) -> list[Job]:
        """The jobs that exist of these, in the order asked for."""
        wanted = list(ids)
        if not wanted:
            return []
        edges: dict[int, list[Edge]] = {}
        for job, predecessor, chain, policy, implied in self._db.rows("edges_of", ids=wanted):
            edge = Edge(
                predecessor=JobId(predecessor), chain=JobId(chain), policy=AfterPolicy(policy), is_implied=bool(implied)
            )
            edges.setdefault(job, []).append(edge)
        locks: dict[int, list[Lock]] = {}
        for job, key, mode, _state in self._db.rows("locks_of", ids=wanted):
            locks.setdefault(job, []).append(Lock(key=key, mode=LockMode(mode)))
        runs = {row[1]: run_of(row) for row in self._db.rows("latest_runs", ids=wanted)}
        rows = self._db.rows("jobs", ids=wanted)
        named = self.named_by(sorted({row[1] for row in rows}))
        found = {
            row[0]: _job(
                row, edges.get(row[0], ()), locks.get(row[0], ()), runs.get(row[0]), named.get(row[1], _NAMELESS)
            )
            for row in rows
        }
        return [found[job] for job in wanted if job in found]

    def job(self, job: JobId) -> Job | None:
        return next(iter(self.jobs([job])), None)

    def list_jobs(
        self,
        statuses: Iterable[Status],
        *,
        limit: int,
        after: JobId | None = None,
        is_past_active: bool = False,
        behind: tuple[int, ...] | None = None,
        only: Mapping[str, str] | None = None,
        group: GroupId | None = None,
    ) -> list[JobId]:
        """Active jobs in queue order, then ended ones from the newest: one page, behind the job `after`.

        `is_past_active` says in which part that job stood when it was listed: it may have ended since. With `behind`,
        an active job's place of then, that place counts and not the job: it may stand elsewhere by now, or be gone.
        `only` has the name, type, flow, phase or target that they must have; `group` the one that they must be in.
        """
        of, asked = ("", dict[str, str | int | None]())
        if only or group is not None:
            of, asked = "_of", {name: (only or {}).get(name) for name in LISTED_BY}
        if group is not None:
            of, asked = "_in", {**asked, "group": group}
        wanted = {status.value for status in statuses}
        rank, below = behind or FIRST_RANK, after if after is not None and is_past_active else 2**62
        if after is not None and not is_past_active:
            rank = tuple(self._db.rows("rank_of", job=after)[0])
        ids: list[JobId] = []
        if wanted & {s.value for s in ACTIVE} and not is_past_active:
            names = ("precedence", "position", "created_at", "job")
            place = dict(zip(names, rank, strict=True))
            rows = self._db.rows(f"active_ids{of}", statuses=list(wanted), limit=limit, **place, **asked)
            ids += [JobId(row[0]) for row in rows]
        if wanted & {s.value for s in TERMINAL} and len(ids) < limit:
            rows = self._db.rows(f"ended_ids{of}", statuses=list(wanted), below=below, limit=limit - len(ids), **asked)
            ids += [JobId(row[0]) for row in rows]
        return ids

    def stands_at(self, job: JobId) -> tuple[int, ...]:
        """Of an active job, in queue order."""
        return tuple(map(int, self._db.rows("rank_of", job=job)[0]))

    def newest_jobs(self, statuses: Iterable[Status], *, limit: int) -> list[JobId]:
        """The newest first, active or ended."""
        wanted = [status.value for status in statuses]
        if len(wanted) == len(Status):
            return [JobId(row[0]) for row in self._db.rows("newest_ids", limit=limit)]
        active = self._db.rows("newest_active_ids", statuses=wanted, limit=limit)
        ended = self._db.rows("ended_ids", statuses=wanted, below=2**62, limit=limit)
        return [JobId(row[0]) for row in sorted([*active, *ended], reverse=True)[:limit]]

    def counts(self) -> dict[Status, int]:
        """Jobs by status, from what the indexes and the lanes already count: never a walk over the queue."""
        return self.ended_counts() | self.active_counts()[0]

    def ended_counts(self) -> dict[Status, int]:
        return {Status(status): count for status, count in self._db.rows("count_ended")}

    def active_counts(self) -> tuple[dict[Status, int], dict[WaitKind, int]]:
        """Those that have not ended by status, however many have, and those that wait by what for: each index is
        walked once for both. Those that wait for capacity are the lanes' business."""
        by_status = {Status(status): count for status, count in self._db.rows("count_started")}
        by_reason: dict[WaitKind, int] = {}
        for kind, status, count in self._db.rows("count_waiting"):
            by_status[Status(status)] = by_status.get(Status(status), 0) + count
            by_reason[WaitKind(kind)] = by_reason.get(WaitKind(kind), 0) + count
        ((held, delayed),) = self._db.rows("count_held")
        if queued := self._db.rows("count_ready_now")[0][0] + held:
            by_status[Status.QUEUED] = int(queued)
        if delayed:
            by_reason[WaitKind.DELAY] = delayed
        return by_status, by_reason

    def lanes(self) -> list[tuple[dict[str, int], int]]:
        """Draws and number of ready jobs of each lane that has any."""
        return [(dict(decode_draws(draws) or {}), ready) for draws, ready in self._db.rows("lane_depths")]

    def depth(self) -> Depth:
        """How many jobs are ready, by what the lanes count."""
        total, by_flow = 0, dict[str, int]()
        for flow, ready in self._db.rows("depths"):
            total += ready
            if flow:
                by_flow[flow] = by_flow.get(flow, 0) + ready
        return Depth(total=total, by_flow=dict(sorted(by_flow.items())))

    def variables(self, surroundings: int) -> Mapping[str, str]:
        rows = self._db.rows("variables", id=surroundings)
        if not rows:
            raise LookupError(f"its environment ({surroundings}) is gone from the store")
        return msgspec.json.decode(rows[0][0], type=dict[str, str])

    def running_jobs(self) -> list[JobId]:
        return [JobId(job) for job, _ in self._db.rows("running_jobs")]

    def users_of(self, pool: str) -> list[JobId]:
        """The running jobs that draw from this pool."""
        return [
            JobId(job) for job, draws in self._db.rows("running_jobs") if pool in (decode_draws(draws) or {GLOBAL: 1})
        ]

    def last_dispatch(self) -> int | None:
        rows = self._db.rows("last_dispatch")
        return int(rows[0][0]) if rows else None

    def last_of_chain(self, job: JobId) -> tuple[JobId, Status] | None:
        rows = self._db.rows("last_of_chain", job=job)
        return (JobId(rows[0][0]), Status(rows[0][1])) if rows else None

    def events_since(self, seq: int, limit: int) -> list[tuple[int, Event]]:
        """Each with its number, in order."""
        return [(row[0], event_of(row)) for row in self._db.rows("events_since", seq=seq, limit=limit)]

    def touches_since(self, seq: int, limit: int) -> list[tuple[int, str, JobId]]:
        """Of each event its number, its kind and the job it is about; those about no job are left out."""
        return [(row[0], row[1], JobId(row[2])) for row in self._db.rows("touches_since", seq=seq, limit=limit)]

    def events_of(self, job: JobId) -> list[tuple[int, Event]]:
        return [(row[0], event_of(row)) for row in self._db.rows("events_of_job", job=job)]

    def meta(self, key: str) -> str | None:
        rows = self._db.rows("get_meta", key=key)
        return None if not rows else str(rows[0][0])


def _job(row: Row, edges: Sequence[Edge], locks: Sequence[Lock], run: Run | None, named: Named) -> Job:
    return Job(
        id=JobId(row[0]),
        chain=JobId(row[1]),
        retry_of=None if row[2] is None else JobId(row[2]),
        attempt=row[3],
        status=Status(row[4]),
        priority=-row[5],
        position=row[6],
        created_at=from_stored(row[7]),
        queued_at=maybe_from_stored(row[8]),
        started_at=maybe_from_stored(row[9]),
        finished_at=maybe_from_stored(row[10]),
        not_before=maybe_from_stored(row[11]),
        exit_code=row[12],
        reason=row[13],
        wait_kind=None if row[14] is None else WaitKind(row[14]),
        waited_on=_known_kinds(row[15]),
        permanently_failed=bool(row[16]),
        dispatch_failures=row[17],
        last_failure=row[18],
        stop_requested=row[19],
        pid=row[20],
        retries=row[21],
        draws=decode_draws(row[22]) or {},
        rewound_run=None if row[23] is None else RunId(row[23]),
        unique=row[24],
        group=None if row[25] is None else GroupId(row[25]),
        sequence=row[26],
        spec=_spec(row[27:], locks, named),
        after=tuple(edges),
        run=run,
    )


def _spec(row: Sequence[Any], locks: Sequence[Lock], named: Named) -> Spec:
    return Spec(
        command=readable(row[0], tuple[str, ...], ()),
        cwd=row[1],
        surroundings=row[2],
        name=row[3],
        type=row[4],
        params=readable(row[5], dict[str, Any], {}),
        flow=row[6],
        phase=row[7],
        target=row[8],
        pools=readable(row[9], dict[str, int], {}),
        locks=tuple(locks),
        timeout=duration_from_stored(row[10]),
        idle_timeout=duration_from_stored(row[11]),
        skip_if=row[12],
        retry=decode_policy(row[13]),
        repository=row[14],
        needs=named.needs,
        produces=named.produces,
        pinned_head=named.pinned_head,
        workspace=None if row[15] is None else readable(row[15], Workspace | None, None),  # type: ignore[arg-type]
        template=None if row[16] is None else TemplateId(row[16]),
        schedule=None if row[17] is None else ScheduleId(row[17]),
        webhook=None if row[18] is None else readable(row[18], JobHook | None, None),  # type: ignore[arg-type]
        recipe=None if row[19] is None else readable(row[19], Recipe | None, None),  # type: ignore[arg-type]
        trace=decode_trace(row[20]),
    )


def decode_trace(text: str | None) -> Trace:
    """One that cannot be read is none: a job is not kept from its work by that."""
    return {} if text is None else readable(text, dict[str, str], {})


def decode_policy(text: str | None) -> RetryPolicy | None:
    """One that cannot be read is none: what nobody knows how to retry is not retried."""
    return None if text is None else readable(text, RetryPolicy | None, None)  # type: ignore[arg-type]


def _known_kinds(text: str) -> tuple[WaitKind, ...]:
    try:
        return decode_waited_on(text)
    except ValueError:
        return ()
