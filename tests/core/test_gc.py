"""What may go: the rule of `core/gc.py`, by table and against the plain definition over random graphs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rota.core.gc import Chain, is_freed_later, sort_out
from rota.ids import JobId

UNTIL = datetime(2026, 1, 8, tzinfo=UTC)
OLD, YOUNG = UNTIL - timedelta(microseconds=1), UNTIL


def chain(
    number: int, *, ended_at: datetime | None = OLD, referrers: tuple[int, ...] = (), named: bool = False
) -> Chain:
    return Chain(
        id=JobId(number),
        jobs=(JobId(number),),
        ended_at=ended_at,
        referrers=frozenset(JobId(each) for each in referrers),
        is_named=named,
    )


def free(*chains: Chain, gone: tuple[int, ...] = (), stays: tuple[int, ...] = ()) -> list[int]:
    found = sort_out(chains, until=UNTIL, gone=frozenset(map(JobId, gone)), stays=frozenset(map(JobId, stays)))
    return [each.id for each in found.free]


def test_what_ended_before_that_moment_goes_and_what_ended_then_stays() -> None:
    assert free(chain(3), chain(2, ended_at=YOUNG), chain(1, ended_at=None)) == [3]


def test_a_chain_goes_with_all_that_refer_to_it_and_not_before() -> None:
    assert free(chain(2), chain(1, referrers=(2,))) == [2, 1]
    assert free(chain(1, referrers=(2,)), gone=(2,)) == [1]
    assert free(chain(1, referrers=(2, 3)), gone=(2,)) == []


def test_what_stays_for_the_sake_of_another_keeps_its_own_predecessors() -> None:
    assert free(chain(3, ended_at=None), chain(2, referrers=(3,)), chain(1, referrers=(2,))) == []


def test_what_cannot_go_for_a_reason_of_its_own_protects_like_any_other() -> None:
    assert free(chain(2), chain(1, referrers=(2,)), stays=(2,)) == []


def test_what_something_else_names_stays() -> None:
    found = sort_out([chain(1, named=True)], until=UNTIL, gone=frozenset())
    assert [each.id for each in found.referenced] == [1]
    assert not is_freed_later(found.referenced[0], frozenset())


def collect(chains: list[Chain]) -> set[int]:
    """As the collector goes about it: down the numbers, in pages of three, until nothing is freed later."""
    gone: set[JobId] = set()
    while True:
        before, referenced = len(gone), []
        for first in range(0, len(chains), 3):
            page = [each for each in chains[first : first + 3] if each.id not in gone]
            found = sort_out(page, until=UNTIL, gone=gone)
            gone.update(each.id for each in found.free)
            referenced += found.referenced
        if len(gone) == before or not any(is_freed_later(each, gone) for each in referenced):
            return set(gone)


@st.composite
def graphs(draw: st.DrawFn) -> list[Chain]:
    """Edges along a random order, so that there is no cycle, and in both directions of the numbers."""
    count = draw(st.integers(1, 12))
    order = draw(st.permutations(range(1, count + 1)))
    edges = {
        (order[later], order[earlier])
        for later in range(count)
        for earlier in range(later)
        if draw(st.integers(0, 3)) == 0
    }
    return [
        chain(
            number,
            ended_at=draw(st.sampled_from([OLD, OLD, OLD, YOUNG, None])),
            referrers=tuple(job for job, predecessor in edges if predecessor == number),
            named=draw(st.integers(0, 9)) == 0,
        )
        for number in range(count, 0, -1)
    ]


@given(graphs())
def test_exactly_what_nothing_that_stays_can_reach_goes(chains: list[Chain]) -> None:
    by_number = {each.id: each for each in chains}
    stays = {each.id for each in chains if each.ended_at != OLD or each.is_named}
    while True:
        more = {number for number, each in by_number.items() if each.referrers & stays} - stays
        if not more:
            break
        stays |= more
    assert collect(chains) == by_number.keys() - stays
