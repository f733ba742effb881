"""An event: one thing that happened, stored in the transaction that made it happen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rota.ids import GroupId, JobId, RunId, SlotId


class Event(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """`job.submitted`, `job.queued`, `job.moved` …, `queue.respaced`, `breaker.opened`, `group.finished`,
    `scheduler.recovered`."""
    at: int
    """Microseconds since the epoch."""
    cause: str
    """What part of Rota did it: `submit`, `tick`, `executor`, `cancel`, `edit`, `move`, `direct`, `group`, `template`,
    `schedule`, `webhook`, `recovery`, `config`."""
    actor: str | None = None
    """Who asked for it, where somebody did."""
    job: JobId | None = None
    run: RunId | None = None
    slot: SlotId | None = None
    group: GroupId | None = None
    data: Mapping[str, Any] = {}
