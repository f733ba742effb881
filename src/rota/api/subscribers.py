"""Index of listeners by topic, so that a thousand listeners to other events cost one lookup.

A listener is indexed under the narrowest part of its filter: the chains of its jobs, or else its group, or else its
kinds. The whole filter is applied to the listeners that are found there.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

from rota.core.event import Event, EventEntry, EventFilter
from rota.ids import JobId


class Subscriber(Protocol):
    @property
    def event_filter(self) -> EventFilter: ...


W = TypeVar("W", bound=Subscriber)

_ANY_KIND = "*"


class Subscribers(Generic[W]):
    """Index of the listeners."""

    def __init__(self) -> None:
        self._by_topic: dict[Hashable, set[W]] = {}
        self._chain_of_job: dict[JobId, JobId] = {}
        """Chains of the jobs that have listeners."""
        self._jobs_of_chain: dict[JobId, set[JobId]] = {}
        """Known jobs of these chains."""
        self._group_subscriber_count = 0
        """Number of listeners to a group. An event of a job does not have the group of the job."""

    def add(self, listener: W) -> None:
        for topic in _topics_of(listener.event_filter):
            self._by_topic.setdefault(topic, set()).add(listener)
        self._group_subscriber_count += _is_group_filter(listener.event_filter)

    def remove(self, listener: W) -> None:
        for topic in _topics_of(listener.event_filter):
            listeners = self._by_topic[topic]
            listeners.discard(listener)
            if not listeners:
                del self._by_topic[topic]
                if isinstance(topic, int):
                    self._forget_chain(JobId(topic))
        self._group_subscriber_count -= _is_group_filter(listener.event_filter)

    def track_job(self, job: JobId | None, chain: JobId | None) -> bool:
        """Record the chain of a job, and return whether the job is new to a chain with listeners."""
        if job is None or chain is None or job in self._chain_of_job or chain not in self._by_topic:
            return False
        self._chain_of_job[job] = chain
        self._jobs_of_chain.setdefault(chain, set()).add(job)
        return True

    @property
    def has_any(self) -> bool:
        """Whether there are listeners. Thread-safe."""
        return bool(self._by_topic)

    def may_match(self, event: Event) -> bool:
        """Return whether a listener may want the event. Thread-safe."""
        return (
            bool(self._group_subscriber_count)
            or _ANY_KIND in self._by_topic
            or event.kind in self._by_topic
            or event.job in self._chain_of_job
        )

    def find_matching(self, entry: EventEntry) -> Iterator[W]:
        event = entry.event
        for topic in (_ANY_KIND, event.kind, entry.chain, ("group", event.group)):
            for listener in self._by_topic.get(topic, ()):
                if listener.event_filter.matches(entry):
                    yield listener

    def _forget_chain(self, chain: JobId) -> None:
        for job in self._jobs_of_chain.pop(chain, ()):
            del self._chain_of_job[job]


def _is_group_filter(event_filter: EventFilter) -> bool:
    return event_filter.group is not None and not event_filter.chains


def _topics_of(event_filter: EventFilter) -> Collection[Hashable]:
    if event_filter.chains:
        return event_filter.chains
    if event_filter.group is not None:
        return (("group", event_filter.group),)
    return event_filter.kinds or (_ANY_KIND,)
