"""Who wants to be told of what, found by the event: a thousand listeners of other things cost one look-up.

Each listener stands under the narrowest thing it asked for: its jobs' chains, else its group, else its kinds. Who is
found there is asked whether the event is really wanted.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

from rota.core.event import Entry, Event, Wanted
from rota.ids import JobId


class Wanting(Protocol):
    @property
    def wanted(self) -> Wanted: ...


W = TypeVar("W", bound=Wanting)

_ANY_KIND = "*"


class Audience(Generic[W]):
    def __init__(self) -> None:
        self._places: dict[Hashable, set[W]] = {}
        self._chains: dict[JobId, JobId] = {}
        """Of jobs that somebody listens to."""
        self._members: dict[JobId, set[JobId]] = {}
        """The jobs of such a chain, as far as they are known."""
        self._by_group = 0
        """How many listen to a group; an event by itself does not say which group its job is in."""

    def add(self, listener: W) -> None:
        for place in _places(listener.wanted):
            self._places.setdefault(place, set()).add(listener)
        self._by_group += _is_by_group(listener.wanted)

    def remove(self, listener: W) -> None:
        for place in _places(listener.wanted):
            here = self._places[place]
            here.discard(listener)
            if not here:
                del self._places[place]
                if isinstance(place, int):
                    self._forget(JobId(place))
        self._by_group -= _is_by_group(listener.wanted)

    def meet(self, job: JobId | None, chain: JobId | None) -> bool:
        """Whether this is the first that is heard of a job of a chain that somebody listens to."""
        if job is None or chain is None or job in self._chains or chain not in self._places:
            return False
        self._chains[job] = chain
        self._members.setdefault(chain, set()).add(job)
        return True

    @property
    def is_any(self) -> bool:
        """Whether anybody listens; from any thread."""
        return bool(self._places)

    def may_want(self, event: Event) -> bool:
        """Whether somebody may want it; from any thread."""
        places = self._places
        return (
            bool(self._by_group) or _ANY_KIND in places or event.kind in places or event.job in self._chains
        )  # fmt: skip

    def who_want(self, entry: Entry) -> Iterator[W]:
        event = entry.event
        for place in (_ANY_KIND, event.kind, entry.chain, ("group", event.group)):
            for listener in self._places.get(place, ()):
                if listener.wanted.wants(entry):
                    yield listener

    def _forget(self, chain: JobId) -> None:
        for job in self._members.pop(chain, ()):
            del self._chains[job]


def _is_by_group(wanted: Wanted) -> bool:
    return wanted.group is not None and not wanted.chains


def _places(wanted: Wanted) -> Collection[Hashable]:
    if wanted.chains:
        return wanted.chains
    if wanted.group is not None:
        return (("group", wanted.group),)
    return wanted.kinds or (_ANY_KIND,)
