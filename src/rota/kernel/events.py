"""An event: a change, recorded in the same transaction as the change itself.

`KINDS` lists every kind of event. `EventFilter` selects events; the same filter applies to stored events and to live
streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rota.errors import InvalidInput, error_path
from rota.ids import GroupId, JobId, ReservationId, RunId

KINDS: Mapping[str, str] = {
    "job.submitted": "The job is stored. A retry names the job that it retries.",
    "job.queued": "The job waits to start.",
    "job.waiting_on_deps": "The job waits for other jobs, for artifacts or for a pinned head.",
    "job.waiting_on_locks": "The job waits for a lock.",
    "job.dispatched": "The job is claimed and has a run; its child is being started.",
    "job.running": "The child is running.",
    "job.completed": "The job succeeded.",
    "job.products_missing": "The job succeeded, but artifacts that it declared to produce are missing.",
    "job.failed": "The job failed, or could not be started.",
    "job.skipped": "The job was not needed, or its group's policy skipped it.",
    "job.cancelled": "The job is cancelled, and all of its processes have ended.",
    "job.blocked_by_dependency": "A dependency of the job can no longer be met.",
    "job.stop_requested": "The running job is being stopped.",
    "job.retried": "The job failed, and its chain continues with a retry.",
    "job.backoff_reset": "The delay and the failure counts of the job were cleared.",
    "job.rewound": "The job is queued again.",
    "job.edited": "The request of the job was changed.",
    "job.moved": "The position of the job in the queue was changed.",
    "job.start_failures_reset": "The count of failed starts was reset.",
    "queue.renumbered": "The positions of a priority were reassigned; the order is unchanged.",
    "reservation.created": "A direct execution waits to start.",
    "reservation.started": "The direct execution started.",
    "reservation.running": "The child of the direct execution is running.",
    "reservation.requeued": "No child was started, and the direct execution waits again.",
    "reservation.stop_requested": "The direct execution is being stopped.",
    "reservation.ended": "The direct execution has ended.",
    "group.submitted": "The group was created.",
    "group.closed": "No more jobs can join the group.",
    "group.cancelled": "The group was cancelled with all its members.",
    "group.reopened": "The group had finished, and one of its members continues.",
    "group.finished": "The group has finished.",
    "template.created": "The template was added.",
    "template.changed": "The template was changed; jobs that were made from it are unchanged.",
    "template.archived": "The template was archived: no new jobs can be made from it.",
    "template.unarchived": "The template was restored from the archive.",
    "schedule.created": "The schedule was added.",
    "schedule.changed": "The schedule was changed.",
    "schedule.enabled": "The schedule was enabled.",
    "schedule.disabled": "The schedule was disabled.",
    "schedule.removed": "The schedule was removed; its jobs are kept.",
    "schedule.fired": "The schedule submitted a job.",
    "schedule.missed": "One or more times of the schedule passed while the scheduler was down.",
    "schedule.skipped": "A time of the schedule was skipped because a job of it, or with its unique key, was active.",
    "schedule.failed": "No job could be submitted at a time of the schedule.",
    "webhook.created": "The webhook was added.",
    "webhook.enabled": "The webhook was enabled.",
    "webhook.disabled": "The webhook was disabled.",
    "webhook.removed": "The webhook was removed.",
    "webhook.rotated": "The webhook has a new signing secret.",
    "webhook.held": "The latest deliveries to the webhook failed, so messages are held for a while.",
    "webhook.released": "The webhook accepts messages again.",
    "webhook.delivery_failed": "A message was not accepted and is not retried automatically.",
    "webhook.redelivered": "A message was queued for redelivery.",
    "webhook.abandoned": "Messages were dropped because they were too old.",
    "breaker.opened": "The breaker holds its jobs because their runs keep failing.",
    "breaker.half_opened": "The breaker lets one job through as a probe.",
    "breaker.probe_started": "A job started as the probe.",
    "breaker.closed": "The breaker released its jobs.",
    "artifact.put": "The artifact was declared present.",
    "artifact.removed": "The declaration of the artifact was removed.",
    "scheduler.paused": "A pause of everything or of one scope began: no new jobs start.",
    "scheduler.resumed": "A pause of everything or of one scope ended.",
    "scheduler.cleared": "Waiting jobs were cancelled.",
    "scheduler.recovered": "A scheduler started and reconciled the jobs of its predecessor.",
    "scheduler.restored": "The home was restored from a backup; later changes are undone.",
    "gc.removed": "Old ended chains were removed.",
}
"""Event kinds with their descriptions."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """Key of `KINDS`."""
    at: int
    """Microseconds since the epoch."""
    cause: str
    """Part of Rota that caused the event: `submit`, `tick`, `executor`, `cancel`, `edit`, `move`, `direct`, `group`,
    `template`, `schedule`, `webhook`, `recovery`, `config`."""
    actor: str | None = None
    """Actor of the request that caused the event, if any."""
    job: JobId | None = None
    run: RunId | None = None
    reservation: ReservationId | None = None
    group: GroupId | None = None
    data: Mapping[str, Any] = {}


class EventEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its position in history."""

    seq: int
    event: Event
    """The event; if it is about a job, its group is the job's group."""
    chain: JobId | None = None
    type: str | None = None
    flow: str | None = None
    """Flow of the job."""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that an event must meet; all of them apply."""

    kinds: frozenset[str] = frozenset()
    """Event kinds; empty for every kind."""
    chains: frozenset[JobId] = frozenset()
    """Chains; empty for every job, and for events that are about no job."""
    group: GroupId | None = None
    type: str | None = None
    flow: str | None = None

    def matches(self, entry: EventEntry) -> bool:
        return (
            (not self.kinds or entry.event.kind in self.kinds)
            and (not self.chains or entry.chain in self.chains)
            and (self.group is None or entry.event.group == self.group)
            and (self.type is None or entry.type == self.type)
            and (self.flow is None or entry.flow == self.flow)
        )


KIND_PATTERNS = (
    *KINDS,
    *sorted({".".join((*kind.split(".")[:depth], "*")) for kind in KINDS for depth in range(1, kind.count(".") + 1)}),
)
"""Patterns that are valid in a filter."""


def expand_kinds(patterns: Iterable[str]) -> frozenset[str]:
    """Return the kinds that the patterns match: `job.failed` matches itself, `job.*` matches every kind with that
    prefix."""
    kinds: set[str] = set()
    for n, pattern in enumerate(patterns):
        with error_path(f"[{n}]"):
            kinds.update(_expand_kind(pattern))
    return frozenset(kinds)


def _expand_kind(pattern: str) -> list[str]:
    if pattern.endswith(".*"):
        kinds = [kind for kind in KINDS if kind.startswith(pattern[:-1])]
    else:
        kinds = [pattern] if pattern in KINDS else []
    if not kinds:
        nouns = ", ".join(f"{noun}.*" for noun in dict.fromkeys(kind.partition(".")[0] for kind in KINDS))
        raise InvalidInput(f"unknown event kind {pattern!r}; known kinds: {nouns}; docs/reference/events.md lists all")
    return kinds
