"""Progress of a group over HTTP."""

from __future__ import annotations

from functools import partial

import msgspec

from rota.api.endpoint import Endpoint, Invocation, JsonReply
from rota.api.page import WaitSeconds
from rota.view.progress import show_progress
from rota.wire.progress import GroupProgress

_MIN_READ_INTERVAL = 0.1
"""Minimum seconds between two reads, however often members change."""


class ProgressQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: WaitSeconds = 0
    """Maximum seconds to wait until a member has started or ended since `cursor`."""
    cursor: str | None = None
    """Position of the client: the `cursor` of the previous response."""


async def get_progress(call: Invocation[ProgressQuery, None]) -> JsonReply[GroupProgress]:
    """Show the progress of a group. The response has the running members, and those that have ended since `cursor`."""
    context, cursor = call.context, call.query.cursor
    read_progress = partial(show_progress, group=call.path_values["group"], cursor=cursor)

    def is_done(progress: GroupProgress) -> bool:
        return progress.is_finished or progress.cursor != cursor

    progress = await context.hub.wait_until(
        None, call.query.wait, lambda: context.read(read_progress), is_done, min_interval=_MIN_READ_INTERVAL
    )
    return JsonReply(progress)


_EXAMPLE = {
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
    "cursor": "1772443871998310.24.25",
}

ENDPOINTS = [
    Endpoint("GET", "/api/job-groups/{group}/progress", get_progress, errors=(409,), response_example=_EXAMPLE)
]
