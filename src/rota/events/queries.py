"""Events, filtered and read in slices."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.db.session import Reader
from rota.errors import error_path
from rota.ids import JobId
from rota.jobs.queries import find_job
from rota.kernel.events import EventEntry, EventFilter, expand_kinds


class EventSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the events that match a filter."""

    entries: list[EventEntry]
    position: int
    """Number of the event up to which the filter was applied; the next read passes it as `since`."""
    is_end: bool
    """Whether there were no further events at the time of the read."""
    complete_from: int | None
    """Number from which the events are complete; `None` if there is no gap."""


def make_event_filter(
    reader: Reader,
    *,
    jobs: Sequence[JobId] = (),
    group: str | None = None,
    kinds: Sequence[str] = (),
    job_type: str | None = None,
    flow: str | None = None,
) -> EventFilter:
    """Make the filter for a request. A job stands for its chain, so that a client that follows a job also gets the
    events of its retries."""
    with error_path(".kind"):
        expanded_kinds = expand_kinds(kinds)
    chains = set()
    for n, job in enumerate(jobs):
        with error_path(f".job[{n}]"):
            chains.add(find_job(reader, job).chain)
    with error_path(".group"):
        group_id = None if group is None else reader.groups.find(group).id
    return EventFilter(kinds=expanded_kinds, chains=frozenset(chains), group=group_id, type=job_type, flow=flow)


def read_events(
    reader: Reader, event_filter: EventFilter, *, since: int, limit: int, complete_from: int = 0
) -> EventSlice:
    """Return the events after the number `since`. `complete_from` is the number from which the client already knows the
    events to be complete; a gap before it is not reported again."""
    head = reader.events.head_seq()
    if since > head:  # from another store or a restored one: the events in between are unknown
        return EventSlice(entries=[], position=head, is_end=True, complete_from=head + 1)
    entries, position = reader.events.entries(event_filter, since=since, limit=limit)
    return EventSlice(
        entries=entries,
        position=position,
        is_end=position >= head,
        complete_from=_first_complete_event(reader, event_filter, max(since + 1, complete_from)),
    )


def _first_complete_event(reader: Reader, event_filter: EventFilter, complete_from: int) -> int | None:
    """Return the number from which the events are complete, or `None` if there is no gap. The events of a job are
    removed together with the job, so the events of existing jobs are complete."""
    first = reader.events.first_seq()
    if first <= complete_from or (
        event_filter.chains and reader.jobs.existing(event_filter.chains) == event_filter.chains
    ):
        return None
    return first
