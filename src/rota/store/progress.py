"""Reads of the changes in a group since the last read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.core.status import Status, parse_status
from rota.ids import GroupId, JobId
from rota.store.database import Database
from rota.store.timestamp import from_micros

ProgressCursor = tuple[int, int]
"""Stored end time and id of the last ended job that was read."""


class EndedMember(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    name: str | None
    status: Status
    reason: str | None
    exit_code: int | None
    retried_as: JobId | None
    cursor: ProgressCursor


class RunningMember(msgspec.Struct, frozen=True, kw_only=True):
    job: JobId
    name: str | None
    started_at: datetime


class ProgressRecords:
    _db: Database

    def ended_members(self, group: GroupId, cursor: ProgressCursor, *, limit: int) -> Sequence[EndedMember]:
        rows = self._db.rows("ended_members", group=group, at=cursor[0], job=cursor[1], limit=limit)
        return [
            EndedMember(
                job=JobId(job),
                name=name,
                status=parse_status(status),
                reason=reason,
                exit_code=exit_code,
                retried_as=retried_as,
                cursor=(at, job),
            )
            for job, name, status, reason, exit_code, at, retried_as in rows
        ]

    def running_members(self, group: GroupId, *, limit: int) -> Sequence[RunningMember]:
        rows = self._db.rows("running_members", group=group, limit=limit)
        return [RunningMember(job=JobId(job), name=name, started_at=from_micros(at)) for job, name, at in rows]
