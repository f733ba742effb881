"""Retention: examples, and a comparison with the plain definition over random graphs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rota.ids import JobId
from rota.retention.model import EndedChain, is_now_collectable, partition_collectable

UNTIL = datetime(2026, 1, 8, tzinfo=UTC)
OLD, YOUNG = UNTIL - timedelta(microseconds=1), UNTIL


def chain(
    number: int,
    *,
    ended_at: datetime | None = OLD,
    referrers: tuple[int, ...] = (),
    is_referenced_elsewhere: bool = False,
) -> EndedChain:
    return EndedChain(
        id=JobId(number),
        jobs=(JobId(number),),
        ended_at=ended_at,
        referrers=frozenset(map(JobId, referrers)),
        is_referenced_elsewhere=is_referenced_elsewhere,
    )


def collectable(*chains: EndedChain, removed: tuple[int, ...] = (), kept: tuple[int, ...] = ()) -> list[int]:
    partition = partition_collectable(
        chains, until=UNTIL, removed=frozenset(map(JobId, removed)), kept=frozenset(map(JobId, kept))
    )
    return [chain.id for chain in partition.collectable]


def test_only_chains_that_ended_before_until_are_collectable() -> None:
    assert collectable(chain(3), chain(2, ended_at=YOUNG), chain(1, ended_at=None)) == [3]


def test_chain_is_collected_only_with_all_its_referrers() -> None:
    assert collectable(chain(2), chain(1, referrers=(2,))) == [2, 1]
    assert collectable(chain(1, referrers=(2,)), removed=(2,)) == [1]
    assert collectable(chain(1, referrers=(2, 3)), removed=(2,)) == []


def test_referenced_chain_protects_its_predecessors() -> None:
    assert collectable(chain(3, ended_at=None), chain(2, referrers=(3,)), chain(1, referrers=(2,))) == []


def test_kept_chain_protects_its_predecessors() -> None:
    assert collectable(chain(2), chain(1, referrers=(2,)), kept=(2,)) == []


def test_chain_referenced_elsewhere_is_kept() -> None:
    partition = partition_collectable([chain(1, is_referenced_elsewhere=True)], until=UNTIL, removed=frozenset())
    assert [kept.id for kept in partition.referenced] == [1]
    assert not is_now_collectable(partition.referenced[0], frozenset())


def collect(chains: list[EndedChain]) -> set[int]:
    """Collect like the engine: descending, in pages of three, until a pass frees nothing."""
    removed: set[JobId] = set()
    while True:
        before, referenced = len(removed), []
        for first in range(0, len(chains), 3):
            page = [chain for chain in chains[first : first + 3] if chain.id not in removed]
            partition = partition_collectable(page, until=UNTIL, removed=removed)
            removed.update(chain.id for chain in partition.collectable)
            referenced += partition.referenced
        if len(removed) == before or not any(is_now_collectable(chain, removed) for chain in referenced):
            return set(removed)


@st.composite
def graphs(draw: st.DrawFn) -> list[EndedChain]:
    """Draw edges along a random order, so that the graph has no cycle and edges point in both directions of the
    numbers."""
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
            is_referenced_elsewhere=draw(st.integers(0, 9)) == 0,
        )
        for number in range(count, 0, -1)
    ]


@given(graphs())
def test_collects_exactly_the_chains_unreachable_from_kept_chains(chains: list[EndedChain]) -> None:
    by_number = {chain.id: chain for chain in chains}
    kept = {chain.id for chain in chains if chain.ended_at != OLD or chain.is_referenced_elsewhere}
    while True:
        more = {number for number, chain in by_number.items() if chain.referrers & kept} - kept
        if not more:
            break
        kept |= more
    assert collect(chains) == by_number.keys() - kept
