"""Reads of complete job records, for display and for the API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any

import msgspec

from rota.db.artifacts import ArtifactRecords, JobArtifacts
from rota.db.database import Database, Row
from rota.db.decoding import RecordDecoder, decode_demand, duration_from_micros, from_micros, optional_from_micros
from rota.db.runs import run_from_row
from rota.errors import NotFound
from rota.ids import GroupId, JobId, RunId, ScheduleId, TemplateId, format_job_id
from rota.kernel.edges import Edge
from rota.kernel.job import Job, JobWebhook, Spec, TemplateSnapshot, WorkspaceSpec
from rota.kernel.locks import Lock
from rota.kernel.queue import FIRST_RANK, LAST_RANK, UniqueKeyHolder
from rota.kernel.retry import RetryPolicy
from rota.kernel.run import Run
from rota.kernel.status import STARTED, TERMINAL, WAITING, Status, parse_status
from rota.kernel.verdict import WaitKind
from rota.naming import GLOBAL

LOST_JOBS_KEY = "lost_jobs"
"""Key in `meta` of the ranges of jobs whose records were lost, such as `1-4,7-9`."""
_NO_ARTIFACTS = JobArtifacts()
FILTER_COLUMNS = ("name", "type", "flow", "phase", "target")
STARTED_PART, WAITING_PART, ENDED_PART = range(3)
"""Parts of a job list, in order."""
ListCursor = tuple[int, tuple[int, ...]]
"""Position in a job list: the part and the rank in it. In the ended part only the id counts."""
_RANK = ("precedence", "position", "created_at", "job")
_PARTS = (("started", STARTED), ("waiting", WAITING), ("ended", TERMINAL))


class JobRecords:
    def __init__(self, database: Database, artifacts: ArtifactRecords) -> None:
        self._db = database
        self._artifacts = artifacts

    def find_all(self, ids: Sequence[JobId]) -> list[Job]:
        """Return the jobs among these that exist, in the given order."""
        if not ids:
            return []
        rows = self._db.rows("jobs", ids=list(ids))
        decoders = {row[0]: RecordDecoder() for row in rows}
        edges: dict[int, list[Edge]] = {}
        for job, predecessor, chain, policy, implied in self._db.rows("edges_of", ids=list(ids)):
            edge = Edge(
                predecessor=JobId(predecessor),
                chain=JobId(chain),
                policy=decoders[job].dependency_policy(policy),
                is_implied=bool(implied),
            )
            edges.setdefault(job, []).append(edge)
        locks: dict[int, list[Lock]] = {}
        for job, key, mode, _state in self._db.rows("locks_of", ids=list(ids)):
            locks.setdefault(job, []).append(Lock(key=key, mode=decoders[job].lock_mode(mode)))
        runs = {row[1]: run_from_row(row) for row in self._db.rows("latest_runs", ids=list(ids))}
        artifacts = self._artifacts.of_chains(sorted({row[1] for row in rows}))
        jobs = {}
        for row in rows:
            job, declared = row[0], artifacts.get(row[1], _NO_ARTIFACTS)
            jobs[job] = _job_from_row(
                row, decoders[job], edges.get(job, ()), locks.get(job, ()), runs.get(job), declared
            )
        return [jobs[job] for job in ids if job in jobs]

    def find(self, job: JobId) -> Job | None:
        return next(iter(self.find_all([job])), None)

    def list_ids(
        self,
        statuses: Iterable[Status],
        *,
        limit: int,
        after: JobId | None = None,
        cursor: ListCursor | None = None,
        filters: Mapping[str, str] | None = None,
        group: GroupId | None = None,
    ) -> list[JobId]:
        """Return a page of job ids: started jobs, then waiting ones in queue order, then ended ones, newest first.

        The page starts after the current position of the job `after`, or after `cursor`, whose job may have moved,
        ended or been removed. `filters` can contain the name, type, flow, phase and target of the jobs, and `group`
        selects their group.
        """
        suffix, filter_values = _filter_statement(filters, group)
        selected = set(statuses)
        stored_statuses = self._stored_statuses(selected)
        first_part, rank = (self.cursor_of(after) if after is not None else cursor) or (STARTED_PART, FIRST_RANK)
        ids: list[JobId] = []
        for part in range(first_part, len(_PARTS)):
            name, part_statuses = _PARTS[part]
            if len(ids) < limit and (selected & part_statuses or Status.UNREADABLE in selected):
                start = LAST_RANK if part == ENDED_PART else FIRST_RANK
                position = dict(zip(_RANK, rank if part == first_part else start, strict=True))
                values = {**filter_values, **position, "statuses": stored_statuses, "limit": limit - len(ids)}
                ids += [JobId(row[0]) for row in self._db.rows(f"{name}_ids{suffix}", **values)]
        return ids

    def count_listed(
        self, statuses: Iterable[Status], *, filters: Mapping[str, str] | None = None, group: GroupId | None = None
    ) -> int:
        """Count the jobs on all pages of `list_ids` together."""
        suffix, filter_values = _filter_statement(filters, group)
        if suffix:
            stored_statuses = self._stored_statuses(set(statuses))
            return int(self._db.rows(f"count_listed{suffix}", statuses=stored_statuses, **filter_values)[0][0])
        counts = self.count_by_status()
        return sum(counts.get(status, 0) for status in statuses)

    def cursor_of(self, job: JobId) -> ListCursor:
        """Return the position of a job in `list_ids`."""
        part, *rank = self._db.rows("list_cursor_of", job=job)[0]
        return part, tuple(map(int, rank))

    def newest_ids(self, statuses: Iterable[Status], *, limit: int) -> list[JobId]:
        """Return the newest jobs first, active or ended."""
        selected = set(statuses)
        stored_statuses = self._stored_statuses(selected)
        if len(selected) == len(Status):
            return [JobId(row[0]) for row in self._db.rows("newest_ids", limit=limit)]
        active = self._db.rows("newest_active_ids", statuses=stored_statuses, limit=limit)
        ended = self._db.rows("ended_ids", statuses=stored_statuses, job=2**62, limit=limit)
        return [JobId(row[0]) for row in sorted([*active, *ended], reverse=True)[:limit]]

    def _stored_statuses(self, statuses: Set[Status]) -> list[str]:
        """Return the stored texts of these statuses."""
        unknown = self._db.rows("unknown_statuses") if Status.UNREADABLE in statuses else ()
        return [*(status.value for status in statuses), *(text for (text,) in unknown)]

    def record_errors(self, jobs: Sequence[JobId]) -> dict[JobId, str]:
        """Return the decoding errors of these jobs, except for errors in statuses, locks and dependencies."""
        errors = {}
        for row in self._db.rows("specs", ids=list(jobs)) if jobs else ():
            decoder = RecordDecoder()
            decoder.wait_kind(row[1])
            decoder.waited_on(row[2])
            _spec_from_row(row[3:], decoder, (), _NO_ARTIFACTS)
            if decoder.error is not None:
                errors[JobId(row[0])] = decoder.error
        return errors

    def unreadable(self, limit: int) -> list[JobId]:
        """Return the jobs with an unknown status."""
        return [JobId(job) for (job,) in self._db.rows("unreadable_jobs", limit=limit)]

    def count_by_status(self) -> dict[Status, int]:
        """Count jobs by status, from the indexes and the lanes, without a scan of the queue."""
        ended, active = self.count_ended(), self.count_active()[0]
        count = _unreadable_count(ended) + _unreadable_count(active)
        return ended | active | ({Status.UNREADABLE: count} if count else {})

    def count_ended(self) -> dict[Status, int]:
        counts: dict[Status, int] = {}
        for text, count in self._db.rows("count_ended"):
            status = parse_status(text)
            counts[status] = counts.get(status, 0) + count
        return counts

    def count_active(self) -> tuple[dict[Status, int], dict[WaitKind, int]]:
        """Count the unfinished jobs by status, and the waiting ones by reason, in one pass over each index. Jobs that
        wait for capacity are counted by their lanes."""
        by_status: dict[Status, int] = {}
        by_reason: dict[WaitKind, int] = {}
        for status, count in self._db.rows("count_started"):
            by_status[parse_status(status)] = by_status.get(parse_status(status), 0) + count
        for kind, status, count in self._db.rows("count_waiting"):
            by_status[parse_status(status)] = by_status.get(parse_status(status), 0) + count
            if (reason := RecordDecoder().wait_kind(kind)) is not None:
                by_reason[reason] = by_reason.get(reason, 0) + count
        by_status.pop(Status.UNREADABLE, None)
        ((held, delayed),) = self._db.rows("count_held")
        if queued := self._db.rows("count_ready_now")[0][0] + held:
            by_status[Status.QUEUED] = int(queued)
        if delayed:
            by_reason[WaitKind.DELAY] = delayed
        ((unreadable,),) = self._db.rows("count_unreadable")  # from an index of these jobs only
        if unreadable:
            by_status[Status.UNREADABLE] = unreadable
        return by_status, by_reason

    def environment_variables(self, environment: int) -> Mapping[str, str]:
        rows = self._db.rows("environment_variables", id=environment)
        if not rows:
            raise LookupError(f"its environment ({environment}) is gone from the store")
        return msgspec.json.decode(rows[0][0], type=dict[str, str])

    def running(self) -> list[JobId]:
        return [JobId(job) for job, _ in self._db.rows("running_jobs")]

    def using_pool(self, pool: str) -> list[JobId]:
        """Return the running jobs that use this pool."""
        return [
            JobId(job)
            for job, demand in self._db.rows("running_jobs")
            if pool in (decode_demand(demand) or {GLOBAL: 1})
        ]

    def last_dispatch(self) -> int | None:
        rows = self._db.rows("last_dispatch")
        return int(rows[0][0]) if rows else None

    def key_holders(self, keys: Sequence[str]) -> dict[str, UniqueKeyHolder]:
        """Return the holder of each unique key. Keys without a holder are missing from the result."""
        rows = self._db.rows("key_holders", keys=list(keys)) if keys else ()
        return {key: UniqueKeyHolder(job=JobId(job), chain=JobId(chain)) for key, job, chain in rows}

    def ended(self, jobs: Sequence[JobId]) -> list[tuple[JobId, Status, str]]:
        """Return the status and the reason of the jobs among these that have ended."""
        rows = self._db.rows("ended_jobs", ids=list(jobs))
        return [(JobId(job), parse_status(status), reason or "it has ended") for job, status, reason in rows]

    def ended_with_workspace(self, jobs: Sequence[JobId]) -> list[JobId]:
        """Return the jobs among these that have ended and requested a workspace."""
        return [JobId(row[0]) for row in self._db.rows("ended_with_workspace", ids=list(jobs))]

    def existing(self, ids: Collection[JobId]) -> set[JobId]:
        """Return the jobs among these that exist."""
        return {JobId(row[0]) for row in self._db.rows("chain_states", ids=list(ids))} if ids else set()

    def not_found(self, job: JobId) -> NotFound:
        """Return the error for an unknown job id. An id below the next one existed once."""
        next_id = max(int(number) for (number,) in self._db.rows("next_job") if number is not None)
        lost = (self._db.rows("get_meta", key=LOST_JOBS_KEY) or [("",)])[0][0]
        if any(first <= job <= last for first, last in _parse_ranges(lost)):
            return NotFound(
                f"no such job: {format_job_id(job)}; its record was lost before `rota up --accept-loss`; if it"
                f" had started, its files are in jobs/{job} of the home"
            )
        if job < next_id:
            return NotFound(
                f"no such job: {format_job_id(job)}; retention may have removed it; `rota config get gc.days` shows"
                " after how many days jobs are removed"
            )
        return NotFound(f"no such job: {format_job_id(job)}; `rota list --all` lists all jobs")


def _filter_statement(
    filters: Mapping[str, str] | None, group: GroupId | None
) -> tuple[str, dict[str, str | int | None]]:
    """Return the suffix of the statements for this filter, and their values."""
    if not filters and group is None:
        return "", {}
    values: dict[str, str | int | None] = {name: (filters or {}).get(name) for name in FILTER_COLUMNS}
    return ("_of", values) if group is None else ("_in", {**values, "group": group})


def _unreadable_count(counts: Mapping[Status, int]) -> int:
    return counts.get(Status.UNREADABLE, 0)


def _job_from_row(
    row: Row,
    decoder: RecordDecoder,
    edges: Sequence[Edge],
    locks: Sequence[Lock],
    run: Run | None,
    job_artifacts: JobArtifacts,
) -> Job:
    status, spec = decoder.status(row[4]), _spec_from_row(row[27:], decoder, locks, job_artifacts)
    return Job(
        id=JobId(row[0]),
        chain=JobId(row[1]),
        retry_of=None if row[2] is None else JobId(row[2]),
        attempt=row[3],
        status=status,
        priority=-row[5],
        position=row[6],
        created_at=from_micros(row[7]),
        queued_at=optional_from_micros(row[8]),
        started_at=optional_from_micros(row[9]),
        finished_at=optional_from_micros(row[10]),
        not_before=optional_from_micros(row[11]),
        exit_code=row[12],
        reason=row[13],
        wait_kind=decoder.wait_kind(row[14]),
        waited_on=decoder.waited_on(row[15]),
        permanently_failed=bool(row[16]),
        dispatch_failures=row[17],
        last_failure=row[18],
        stop_requested=row[19],
        pid=row[20],
        retries=row[21],
        demand=decoder.json("pool demand", row[22], dict[str, int], {}),
        rewound_run=None if row[23] is None else RunId(row[23]),
        unique=row[24],
        group=None if row[25] is None else GroupId(row[25]),
        sequence=row[26],
        spec=spec,
        missing_products=job_artifacts.missing,
        after=tuple(edges),
        run=run,
        unreadable=decoder.error,
    )


def _spec_from_row(
    row: Sequence[Any], decoder: RecordDecoder, locks: Sequence[Lock], job_artifacts: JobArtifacts
) -> Spec:
    """Decode a spec. If the row is missing, the required fields are empty."""
    return Spec(
        command=decoder.json("command", row[0], tuple[str, ...], ()),
        cwd=row[1] or "",
        environment=row[2] or 0,
        name=row[3],
        type=row[4],
        params=decoder.json("params", row[5], dict[str, Any], {}),
        flow=row[6],
        phase=row[7],
        target=row[8],
        pools=decoder.json("pools", row[9], dict[str, int], {}),
        locks=tuple(locks),
        timeout=duration_from_micros(row[10]),
        idle_timeout=duration_from_micros(row[11]),
        skip_if=row[12],
        retry=decoder.optional_json("retry policy", row[13], RetryPolicy),
        repository=row[14],
        needs=job_artifacts.needs,
        produces=job_artifacts.produces,
        pinned_head=job_artifacts.pinned_head,
        workspace=decoder.optional_json("workspace", row[15], WorkspaceSpec),
        template=None if row[16] is None else TemplateId(row[16]),
        schedule=None if row[17] is None else ScheduleId(row[17]),
        webhook=decoder.optional_json("webhook", row[18], JobWebhook),
        template_snapshot=decoder.optional_json("template snapshot", row[19], TemplateSnapshot),
        trace=decoder.optional_json("trace", row[20], dict[str, str]) or {},
        sources=decoder.optional_json("sources", row[21], dict[str, str]) or {},
    )


def _parse_ranges(stored: str) -> list[tuple[int, int]]:
    pairs = (text.partition("-") for text in stored.split(",") if text)
    return [(int(first), int(last)) for first, _, last in pairs]
