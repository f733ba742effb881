"""Delivery slots: concurrent messages in total and for each receiver."""

from __future__ import annotations

from rota.webhooks.model import MAX_CONCURRENT, DeliverySlots, ReceiverHealth

FAILING, NEW, HEALTHY = ReceiverHealth.FAILING, ReceiverHealth.NEW, ReceiverHealth.HEALTHY
HEALTH = {**{f"failing-{n}": FAILING for n in range(40)}, **{f"healthy-{n}": HEALTHY for n in range(40)}}


def count_free_slots(in_flight: dict[str, int]) -> list[int]:
    """Return the free slots of an idle failing, new and healthy receiver."""
    slots = DeliverySlots(in_flight, HEALTH)
    return [slots.count_free(receiver) for receiver in ("failing-39", "new", "healthy-39")]


def test_each_receiver_has_its_own_slots() -> None:
    assert count_free_slots({}) == [4, 1, 4]
    slots = DeliverySlots({"failing-1": 3, "new-1": 1, "healthy-1": 4}, HEALTH)
    assert [slots.count_free(receiver) for receiver in ("failing-1", "new-1", "healthy-1")] == [1, 0, 0]
    slots.allocate("failing-1", 1)
    assert slots.count_free("failing-1") == 0


def test_failing_receivers_share_a_limited_part() -> None:
    assert count_free_slots({f"failing-{n}": 4 for n in range(15)} | {"failing-15": 2}) == [2, 1, 4]
    assert count_free_slots({f"failing-{n}": 4 for n in range(16)}) == [0, 1, 4]


def test_new_receivers_share_a_limited_part() -> None:
    assert count_free_slots({f"new-{n}": 1 for n in range(MAX_CONCURRENT[NEW])}) == [0, 0, 4]
    assert count_free_slots({f"new-{n}": 1 for n in range(32)} | {f"failing-{n}": 4 for n in range(16)}) == [0, 0, 4]


def test_total_deliveries_are_limited() -> None:
    assert count_free_slots({f"healthy-{n}": 4 for n in range(31)} | {"healthy-31": 2}) == [2, 1, 2]
    assert count_free_slots({f"healthy-{n}": 4 for n in range(32)}) == [0, 0, 0]


def test_receiver_over_its_limit_has_no_free_slots() -> None:
    assert DeliverySlots({f"failing-{n}": 4 for n in range(30)}, HEALTH).count_free("failing-39") == 0
