"""Stores what somebody asks for instead of what a job was submitted with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rota.core.event import Event
from rota.core.job import Job, edit
from rota.store.event import Emitting
from rota.store.moment import to_stored
from rota.store.submit import spec_row


class Editing(Emitting):
    def edit(self, job: Job, changes: Mapping[str, Any], *, now: datetime, actor: str | None) -> bool:
        """Change command, name, params or timeouts of a job that waits; false when it no longer does. What its
        chain's earlier jobs were asked stays as it was."""
        row = spec_row(job.id, edit(job, changes))
        if self._db.run("own_spec", **row):
            self._db.run("add_spec", **row)
        elif not self._db.run("edit_spec", **row):
            return False
        data = {"fields": sorted(changes)}
        self.emit(Event(kind="job.edited", at=to_stored(now), cause="edit", actor=actor, job=job.id, data=data))
        return True
