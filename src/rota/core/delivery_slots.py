"""Delivery slots: how many messages may be in flight at once, in total and for each receiver.

The health of a receiver is the outcome of its last attempt. A receiver that hangs occupies its slots until the timeout.
Therefore failing receivers share a part of all slots, new receivers get some more, and the rest is reserved for healthy
receivers: they find a free slot however many receivers hang.

A new receiver gets a single message until it has responded. A failing receiver gets one first attempt at a time; its
other slots are for messages that are being retried.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class ReceiverHealth(IntEnum):
    """Outcome of the last attempt. A better health may use the slots of every worse health too."""

    FAILING = 0
    NEW = 1
    HEALTHY = 2


MAX_CONCURRENT: Mapping[ReceiverHealth, int] = {
    ReceiverHealth.FAILING: 64,
    ReceiverHealth.NEW: 96,
    ReceiverHealth.HEALTHY: 128,
}
"""Maximum messages in flight to all receivers of this health or worse."""
MAX_PER_RECEIVER: Mapping[ReceiverHealth, int] = {
    ReceiverHealth.FAILING: 4,
    ReceiverHealth.NEW: 1,
    ReceiverHealth.HEALTHY: 4,
}
"""Maximum messages in flight to one receiver."""
MAX_FIRST_ATTEMPTS: Mapping[ReceiverHealth, int] = {
    ReceiverHealth.FAILING: 1,
    ReceiverHealth.NEW: 1,
    ReceiverHealth.HEALTHY: 4,
}
"""Maximum first attempts among the messages to one receiver."""


class DeliverySlots:
    def __init__(self, in_flight: Mapping[str, int], health: Mapping[str, ReceiverHealth]) -> None:
        """Start with the number of messages in flight to each receiver."""
        self._health = health
        self._in_flight_by_receiver = dict(in_flight)
        self._in_flight_by_health = dict.fromkeys(ReceiverHealth, 0)
        for receiver, count in in_flight.items():
            self._in_flight_by_health[self.health_of(receiver)] += count

    def health_of(self, receiver: str) -> ReceiverHealth:
        return self._health.get(receiver, ReceiverHealth.NEW)

    def count_free(self, receiver: str) -> int:
        own = self.health_of(receiver)
        room = MAX_PER_RECEIVER[own] - self._in_flight_by_receiver.get(receiver, 0)
        for health in ReceiverHealth:
            if health >= own:
                in_flight = sum(count for other, count in self._in_flight_by_health.items() if other <= health)
                room = min(room, MAX_CONCURRENT[health] - in_flight)
        return max(0, room)

    def allocate(self, receiver: str, count: int) -> None:
        self._in_flight_by_receiver[receiver] = self._in_flight_by_receiver.get(receiver, 0) + count
        self._in_flight_by_health[self.health_of(receiver)] += count
