"""Storage of edits to submitted jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rota.core.event import Event
from rota.core.job import Job, Spec, changed_fields, edit
from rota.core.queue import Rank
from rota.ids import JobId
from rota.store.move import QueueWriter
from rota.store.submit import spec_row
from rota.store.timestamp import delay_to_micros, optional_to_micros, to_micros


class EditWriter(QueueWriter):
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
        if edited.priority != job.priority and not self.set_ranks([rank]):
            return False
        if fields := changed_fields(job, edited):
            self._db.run("withdraw_prefetch_of_job", job=job.id)  # an unreachable executor may start the old version
            data = {"fields": fields}
            self.emit(Event(kind="job.edited", at=to_micros(now), cause="edit", actor=actor, job=job.id, data=data))
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
