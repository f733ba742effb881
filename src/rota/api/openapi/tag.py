"""The parts of the API, in the order that they are listed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Tag(NamedTuple):
    name: str
    description: str
    prefixes: Sequence[str]
    """How the paths begin that are part of it."""


TAGS: Sequence[Tag] = (
    Tag("jobs", "Submit jobs, look at them, change, cancel and rewind them.", ("/api/jobs",)),
    Tag("runs", "What became of each start of a job.", ("/api/job-runs",)),
    Tag(
        "queue",
        "What waits, in which order, for whom and for what.",
        ("/api/queue", "/api/graph", "/api/locks", "/api/artifacts"),
    ),
    Tag("groups", "Jobs that belong together.", ("/api/job-groups",)),
    Tag("templates", "Jobs that are written once and submitted often.", ("/api/job-templates",)),
    Tag("schedules", "Jobs that the clock submits.", ("/api/schedules",)),
    Tag("webhooks", "Who is told how jobs end, and what they were told.", ("/api/webhooks", "/api/webhook-deliveries")),
    Tag("direct", "Commands that run at the next free place, before the queue.", ("/api/direct", "/api/slots")),
    Tag(
        "scheduler",
        "The scheduler itself: its status, its pools, its pace, its end.",
        ("/api/scheduler", "/api/pools", "/api/breakers", "/api/display"),
    ),
    Tag("events", "What happens, as it happens.", ("/api/events",)),
    Tag("health", "For who watches over the scheduler.", ("/health", "/ready", "/metrics")),
    Tag("about", "What the API says of itself.", ("/openapi.json", "/docs", "/problems")),
    Tag(
        "legacy",
        "Kept for programs that were written for what came before; each says what to use instead.",
        ("/jobs", "/scheduler"),
    ),
)
"""A path is of the first whose prefix it has."""


def tag_of(path: str) -> Tag:
    for tag in TAGS:
        if any(path == prefix or path.startswith(f"{prefix}/") for prefix in tag.prefixes):
            return tag
    raise ValueError(f"{path} is no part of the API that has a name; give it one in {__name__}")
