"""An event: one thing that happened, stored in the transaction that made it happen.

`KINDS` is all that can happen. What somebody wants to be told of is a `Wanted`: the same rule decides it for what is
read from the table and for what is passed on as it happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rota.errors import InvalidInput, within
from rota.ids import GroupId, JobId, RunId, SlotId

KINDS: Mapping[str, str] = {
    "job.submitted": "It is stored, and will not be lost. A retry says which job it is a retry of.",
    "job.queued": "It waits for its turn.",
    "job.waiting_on_deps": "It waits for other jobs, for artifacts or for a pinned head.",
    "job.waiting_on_locks": "It waits for a lock.",
    "job.dispatched": "It is claimed and has a run; its child is being started.",
    "job.running": "Its child is there.",
    "job.completed": "It succeeded.",
    "job.failed": "It failed, or could not be started.",
    "job.skipped": "It had nothing to do, or its group's policy passed it over.",
    "job.cancelled": "It was cancelled, and nothing of it runs any more.",
    "job.blocked_by_dependency": "What it waited for cannot come any more.",
    "job.stop_requested": "It runs, and is to be ended.",
    "job.retried": "It failed, and another job of its chain tries again.",
    "job.hurried": "Its delay and its counts were cleared, so that it need not wait for them.",
    "job.rewound": "It stands in the queue again.",
    "job.edited": "What it was asked for was changed.",
    "job.moved": "It has another place in the queue.",
    "job.starts_reset": "Its failed starts were forgotten.",
    "queue.respaced": "The places of a priority were numbered anew; nobody's turn changed.",
    "slot.reserved": "A direct execution waits for its turn.",
    "slot.started": "Its turn has come.",
    "slot.running": "Its child is there.",
    "slot.returned": "Nothing was started for it, and it waits again.",
    "slot.stop_requested": "It is to be ended.",
    "slot.ended": "It has ended.",
    "group.submitted": "It was made.",
    "group.closed": "No more jobs can join it.",
    "group.cancelled": "It was cancelled, with all its members.",
    "group.reopened": "It was over, and one of its members goes on.",
    "group.finished": "It is over.",
    "template.created": "It was added.",
    "template.changed": "It was changed; jobs made of it before were not.",
    "template.archived": "Nothing new is made of it.",
    "template.unarchived": "It was taken back out.",
    "schedule.created": "It was added.",
    "schedule.changed": "It was changed.",
    "schedule.enabled": "It makes jobs again.",
    "schedule.disabled": "It makes none.",
    "schedule.removed": "It was removed; its jobs stay.",
    "schedule.fired": "It made a job.",
    "schedule.missed": "Nobody was there at one or more of its times.",
    "schedule.skipped": "One of its times was passed over.",
    "schedule.failed": "At one of its times no job could be made.",
    "webhook.created": "It was added.",
    "webhook.enabled": "Messages are sent to it again.",
    "webhook.disabled": "None are sent to it.",
    "webhook.removed": "It was removed.",
    "webhook.rotated": "It has a new secret.",
    "webhook.held": "Its last messages all failed, and it is left alone for a while.",
    "webhook.freed": "It takes messages again.",
    "webhook.delivery_failed": "A message was not taken, and is not sent again by itself.",
    "webhook.redelivered": "A message is sent once more.",
    "webhook.given_up": "Messages were too old to be sent.",
    "breaker.opened": "What stands under it is held, because its runs fail.",
    "breaker.half_opened": "One job may try.",
    "breaker.probed": "One job tries.",
    "breaker.closed": "What stands under it starts as usual.",
    "artifact.put": "Somebody said that it is there.",
    "artifact.removed": "Somebody said that it is not.",
    "scheduler.paused": "Nothing new starts, of everything or of one scope.",
    "scheduler.resumed": "It does again.",
    "scheduler.cleared": "What waited was cancelled.",
    "scheduler.recovered": "A scheduler came, and took stock of what had been going on.",
    "scheduler.restored": "The home was made what a backup says; what happened after that backup is undone.",
    "gc.removed": "What ended long ago was removed.",
}
"""Each with what it says."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """One of `KINDS`."""
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


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An event in its place in history."""

    seq: int
    event: Event
    """Its group is that of its job, where it is about one."""
    chain: JobId | None = None
    type: str | None = None
    flow: str | None = None
    """Of its job."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to be told of: what meets all that is said here."""

    kinds: frozenset[str] = frozenset()
    """None for every kind."""
    chains: frozenset[JobId] = frozenset()
    """None for every job, and for what is about no job."""
    group: GroupId | None = None
    type: str | None = None
    flow: str | None = None

    def wants(self, entry: Entry) -> bool:
        return (
            (not self.kinds or entry.event.kind in self.kinds)
            and (not self.chains or entry.chain in self.chains)
            and (self.group is None or entry.event.group == self.group)
            and (self.type is None or entry.type == self.type)
            and (self.flow is None or entry.flow == self.flow)
        )


NAMED = (
    *KINDS,
    *sorted({".".join((*kind.split(".")[:depth], "*")) for kind in KINDS for depth in range(1, kind.count(".") + 1)}),
)
"""All that kinds can be named by."""


def kinds_named(names: Iterable[str]) -> frozenset[str]:
    """The kinds that are meant by these: `job.failed` is one, `job.*` are all whose name begins like that."""
    found: set[str] = set()
    for n, name in enumerate(names):
        with within(f"[{n}]"):
            found.update(_meant(name))
    return frozenset(found)


def _meant(name: str) -> list[str]:
    if name.endswith(".*"):
        found = [kind for kind in KINDS if kind.startswith(name[:-1])]
    else:
        found = [name] if name in KINDS else []
    if not found:
        nouns = ", ".join(f"{noun}.*" for noun in dict.fromkeys(kind.partition(".")[0] for kind in KINDS))
        raise InvalidInput(f"no event is of the kind {name!r}; there are {nouns}, and docs/events.md lists each")
    return found
