"""Tags of the operations, in the order of the document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Tag(NamedTuple):
    name: str
    description: str
    prefixes: Sequence[str]
    """Prefixes of the paths that have the tag."""


TAGS: Sequence[Tag] = (
    Tag("jobs", "Submit, list, change, cancel and rewind jobs.", ("/api/jobs",)),
    Tag("runs", "Executions of jobs.", ("/api/job-runs",)),
    Tag(
        "queue",
        "Waiting jobs: their order, dependencies, locks and artifacts.",
        ("/api/queue", "/api/graph", "/api/locks", "/api/artifacts"),
    ),
    Tag("groups", "Jobs that belong together.", ("/api/job-groups",)),
    Tag("templates", "Named defaults for jobs of one kind.", ("/api/job-templates",)),
    Tag("schedules", "Cron expressions, and the jobs that they create.", ("/api/schedules",)),
    Tag(
        "webhooks",
        "Endpoints that receive messages about the ends of jobs, and the deliveries to them.",
        ("/api/webhooks", "/api/webhook-deliveries"),
    ),
    Tag("direct", "Commands that run before the queue.", ("/api/direct", "/api/reservations")),
    Tag(
        "scheduler",
        "The scheduler itself: status, pauses, pools, breakers and shutdown.",
        ("/api/scheduler", "/api/pools", "/api/breakers", "/api/display"),
    ),
    Tag("events", "Stream and history of events.", ("/api/events",)),
    Tag("health", "Health, readiness and metrics for monitoring.", ("/health", "/ready", "/metrics")),
    Tag("about", "Documentation of the API.", ("/openapi.json", "/docs", "/problems")),
    Tag("legacy", "Deprecated endpoints for existing clients. Each names its replacement.", ("/jobs", "/scheduler")),
)
"""A path has the first tag with a matching prefix."""


def tag_of(path: str) -> Tag:
    for tag in TAGS:
        if any(path == prefix or path.startswith(f"{prefix}/") for prefix in tag.prefixes):
            return tag
    raise ValueError(f"{path} has no tag; add a prefix to a tag in {__name__}")
