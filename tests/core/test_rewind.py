"""Which jobs a rewind takes along, and what stands against it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.artifact import parse_artifact
from rota.core.rewind import Craft, downstream, refuse_running, rewound, stale_sentinels
from rota.core.status import STARTED, Status
from rota.errors import Conflict
from rota.ids import JobId

graphs = st.integers(1, 12).flatmap(
    lambda size: st.tuples(
        st.integers(1, size), st.sets(st.tuples(st.integers(1, size), st.integers(1, size)), max_size=3 * size)
    )
)


@given(graphs)
def test_the_set_is_closed_and_nothing_in_it_could_be_left_out(graph: tuple[int, set[tuple[int, int]]]) -> None:
    """Rings among them too: a job can need what one behind it makes."""
    root, edges = graph
    asked: list[JobId] = []

    def follow(chains: Sequence[JobId]) -> list[JobId]:
        asked.extend(chains)
        return [JobId(after) for before, after in sorted(edges) if before in chains]

    found = downstream([JobId(root)], follow)
    assert found[0] == root
    assert len(set(found)) == len(found)
    assert sorted(asked) == sorted(found), "each is asked for once"
    assert all(after in found for before, after in edges if before in found)
    for n, job in enumerate(found[1:], 1):
        assert any((before, job) in edges for before in found[:n]), "nearer ones come first"


def test_those_that_run_are_named() -> None:
    jobs = [(JobId(3), Status.COMPLETED), (JobId(7), Status.RUNNING), (JobId(9), Status.DISPATCHED)]
    text = r"^cannot rewind while jobs are running in the rewind set: job-7 \(RUNNING\), job-9 \(RUNNING\)$"
    with pytest.raises(Conflict, match=text):
        refuse_running(jobs)
    refuse_running([(JobId(n), status) for n, status in enumerate(Status) if status not in STARTED])


def test_whatever_does_not_run_is_queued_again() -> None:
    assert {rewound(status) for status in Status if status not in STARTED} == {Status.QUEUED}


def craft(chain: int, name: str, *, is_made: bool) -> Craft:
    return Craft(chain=JobId(chain), artifact=parse_artifact(name), scope="", is_made=is_made)


@pytest.mark.parametrize(
    ("is_made", "makers", "goes"),
    [
        (True, [1], True),
        (True, [1, 9], True),
        (False, [], False),
        (False, [1], True),
        (False, [9], False),
    ],
)
def test_sentinels_that_were_made_upstream_stay(is_made: bool, makers: list[int], goes: bool) -> None:
    crafts = [craft(2, "merge_sentinel:foo", is_made=is_made), craft(2, "target_branch:main", is_made=True)]
    stale = stale_sentinels(crafts, {JobId(1), JobId(2)}, {"merge_sentinel:foo": [JobId(n) for n in makers]})
    assert [str(artifact) for artifact in stale] == ["merge_sentinel:foo"] * goes


@pytest.mark.parametrize(
    ("name", "is_merge_work"),
    [("merge_sentinel:foo", True), ("target_branch:main", True), ("plan_branch:foo", False), ("file:/x", False)],
)
def test_what_counts_as_merge_work(name: str, is_merge_work: bool) -> None:
    assert craft(1, name, is_made=False).is_merge_work is is_merge_work
