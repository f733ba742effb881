"""Stores what somebody asks for instead of what a job was submitted with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rota.core.event import Event
from rota.core.job import Job, Spec, changed, edit
from rota.core.queue import Rank
from rota.ids import JobId
from rota.store.moment import maybe_to_stored, to_stored
from rota.store.move import Moving
from rota.store.submit import spec_row


class Editing(Moving):
    def edit(self, job: Job, changes: Mapping[str, Any], *, now: datetime, actor: str | None) -> bool:
        """Change a job that waits; false when it no longer does. What its chain's earlier jobs were asked stays as it
        was. A change of its delay or its priority counts from the next look, which is this turn's."""
        edited = edit(job, changes)
        rank = Rank(-edited.priority, edited.position, to_stored(edited.created_at), edited.id)
        if edited.spec != job.spec and not self._ask(edited.id, edited.spec):
            return False
        if edited.not_before != job.not_before and not self._db.run(
            "set_delay", job=job.id, not_before=maybe_to_stored(edited.not_before)
        ):
            return False
        if edited.priority != job.priority and not self.set_ranks([rank]):
            return False
        if fields := changed(job, edited):
            self._db.run("forget_given", job=job.id)  # an executor that is silent may start it as it was
            data = {"fields": fields}
            self.emit(Event(kind="job.edited", at=to_stored(now), cause="edit", actor=actor, job=job.id, data=data))
        return True

    def _ask(self, job: JobId, spec: Spec) -> bool:
        """A job that shares its chain's spec gets one of its own."""
        row = spec_row(job, spec)
        shared = self._db.rows("spec_of", job=job)
        if not shared:
            return False
        if shared[0][0] == job:
            return bool(self._db.run("edit_spec", **row))
        self._db.run("add_spec", **row)
        return bool(self._db.run("own_spec", **row))
