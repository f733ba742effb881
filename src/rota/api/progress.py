"""Following a group over HTTP."""

from __future__ import annotations

from functools import partial

import msgspec

from rota.api.endpoint import Call, Endpoint, Reply
from rota.api.page import Seconds
from rota.view.progress import progress
from rota.wire.progress import ProgressForm

_BREATH = 0.1
"""Seconds between two looks, however much happens."""


class ProgressQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: Seconds = 0
    """Answer as soon as something of it has ended or begun since `seen`, or when so many seconds are over."""
    seen: str | None = None
    """The `seen` of the answer before."""


async def get_progress(call: Call[ProgressQuery, None]) -> Reply[ProgressForm]:
    """Show how a group gets on: what runs, and what has ended since the last look."""
    context, seen = call.context, call.query.seen
    look = partial(progress, group=call.path["group"], seen=seen)

    def is_enough(form: ProgressForm) -> bool:
        return form.is_over or form.seen != seen

    form = await context.hub.until(None, call.query.wait, lambda: context.look(look), is_enough, breath=_BREATH)
    return Reply(form)


_SHOWN = {
    "id": "group-3",
    "name": "release",
    "status": "RUNNING",
    "counts": {"RUNNING": 1, "FAILED": 1},
    "total": 2,
    "running": [{"id": "job-25", "name": "publish", "started_at": "2026-11-16T09:31:12.400711Z"}],
    "ended": [
        {
            "id": "job-24",
            "name": "build",
            "status": "FAILED",
            "reason": "exit code 2",
            "exit_code": 2,
            "retried_as": None,
        }
    ],
    "seen": "1772443871998310.24.25",
}

ENDPOINTS = [Endpoint("GET", "/api/job-groups/{group}/progress", get_progress, refuses=(409,), shows=_SHOWN)]
