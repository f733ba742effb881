"""Who may be sent how many messages at once."""

from __future__ import annotations

from rota.core.place import MOST_AT_ONCE, Places, Standing

FAILED, NEW, TOOK = Standing.FAILED, Standing.NEW, Standing.TOOK
KNOWN = {**{f"failed-{n}": FAILED for n in range(40)}, **{f"took-{n}": TOOK for n in range(40)}}


def rooms(flying: dict[str, int]) -> list[int]:
    """Of one of each standing that nothing is under way to."""
    places = Places(flying, KNOWN)
    return [places.room(each) for each in ("failed-39", "new", "took-39")]


def test_each_has_places_of_its_own() -> None:
    assert rooms({}) == [4, 1, 4]
    places = Places({"failed-1": 3, "new-1": 1, "took-1": 4}, KNOWN)
    assert [places.room(each) for each in ("failed-1", "new-1", "took-1")] == [1, 0, 0]
    places.take("failed-1", 1)
    assert places.room("failed-1") == 0


def test_those_that_failed_use_up_their_part_and_no_more() -> None:
    assert rooms({f"failed-{n}": 4 for n in range(15)} | {"failed-15": 2}) == [2, 1, 4]
    assert rooms({f"failed-{n}": 4 for n in range(16)}) == [0, 1, 4]


def test_those_that_are_new_use_up_their_part_and_what_those_that_failed_leave() -> None:
    assert rooms({f"new-{n}": 1 for n in range(MOST_AT_ONCE[NEW])}) == [0, 0, 4]
    assert rooms({f"new-{n}": 1 for n in range(32)} | {f"failed-{n}": 4 for n in range(16)}) == [0, 0, 4]


def test_there_is_a_bound_in_all() -> None:
    assert rooms({f"took-{n}": 4 for n in range(31)} | {"took-31": 2}) == [2, 1, 2]
    assert rooms({f"took-{n}": 4 for n in range(32)}) == [0, 0, 0]


def test_one_that_fails_while_it_has_more_under_way_than_it_may_has_no_room() -> None:
    assert Places({f"failed-{n}": 4 for n in range(30)}, KNOWN).room("failed-39") == 0
