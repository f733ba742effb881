"""Reads what has happened in a group since somebody last looked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.core.status import Status
from rota.ids import GroupId, JobId
from rota.store.database import Database
from rota.store.moment import from_stored

Since = tuple[int, int]
"""The moment, as it is stored, and the job at which the last look ended."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    name: str | None
    status: Status
    reason: str | None
    exit_code: int | None
    retried_as: JobId | None
    since: Since


class Running(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    name: str | None
    started_at: datetime


class ProgressRecords:
    _db: Database

    def ended_since(self, group: GroupId, since: Since, *, limit: int) -> Sequence[Ended]:
        rows = self._db.rows("ended_since", group=group, at=since[0], job=since[1], limit=limit)
        return [
            Ended(
                job=JobId(job), name=name, status=Status(status), reason=reason, exit_code=exit_code,
                retried_as=retried_as, since=(at, job),
            )
            for job, name, status, reason, exit_code, at, retried_as in rows
        ]  # fmt: skip

    def running_in(self, group: GroupId, *, limit: int) -> Sequence[Running]:
        rows = self._db.rows("running_in", group=group, limit=limit)
        return [Running(job=JobId(job), name=name, started_at=from_stored(at)) for job, name, at in rows]
