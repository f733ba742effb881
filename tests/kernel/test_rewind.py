"""Rewind: the rewind set, and reasons to refuse it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Conflict
from rota.ids import JobId
from rota.kernel.artifacts import parse_artifact
from rota.kernel.rewind import ArtifactUse, find_downstream, find_stale_sentinels, refuse_running, rewound_status
from rota.kernel.status import STARTED, STORED, Status

graphs = st.integers(1, 12).flatmap(
    lambda size: st.tuples(
        st.integers(1, size), st.sets(st.tuples(st.integers(1, size), st.integers(1, size)), max_size=3 * size)
    )
)


@given(graphs)
def test_downstream_set_is_closed_and_minimal(graph: tuple[int, set[tuple[int, int]]]) -> None:
    """Cycles are included: a job can need the product of a downstream job."""
    root, edges = graph
    requested: list[JobId] = []

    def find_followers(chains: Sequence[JobId]) -> list[JobId]:
        requested.extend(chains)
        return [JobId(after) for before, after in sorted(edges) if before in chains]

    downstream = find_downstream([JobId(root)], find_followers)
    assert downstream[0] == root
    assert len(set(downstream)) == len(downstream)
    assert sorted(requested) == sorted(downstream), "each chain is requested once"
    assert all(after in downstream for before, after in edges if before in downstream)
    for n, job in enumerate(downstream[1:], 1):
        assert any((before, job) in edges for before in downstream[:n]), "nearer chains come first"


def test_running_jobs_are_refused_by_name() -> None:
    jobs = [(JobId(3), Status.COMPLETED), (JobId(7), Status.RUNNING), (JobId(9), Status.DISPATCHED)]
    text = r"^cannot rewind while jobs are running in the rewind set: job-7 \(RUNNING\), job-9 \(RUNNING\)$"
    with pytest.raises(Conflict, match=text):
        refuse_running(jobs)
    refuse_running([(JobId(n), status) for n, status in enumerate(STORED) if status not in STARTED])


def test_jobs_that_do_not_run_are_queued_again() -> None:
    assert {rewound_status(status) for status in STORED if status not in STARTED} == {Status.QUEUED}


def artifact_use(chain: int, name: str, *, is_produced: bool) -> ArtifactUse:
    return ArtifactUse(chain=JobId(chain), artifact=parse_artifact(name), scope="", is_produced=is_produced)


@pytest.mark.parametrize(
    ("is_produced", "producers", "is_removed"),
    [(True, [1], True), (True, [1, 9], True), (False, [], False), (False, [1], True), (False, [9], False)],
)
def test_upstream_sentinels_are_kept(is_produced: bool, producers: list[int], is_removed: bool) -> None:
    uses = [
        artifact_use(2, "merge_sentinel:foo", is_produced=is_produced),
        artifact_use(2, "target_branch:main", is_produced=True),
    ]
    stale = find_stale_sentinels(uses, {JobId(1), JobId(2)}, {"merge_sentinel:foo": [JobId(n) for n in producers]})
    assert [str(artifact) for artifact in stale] == ["merge_sentinel:foo"] * is_removed


@pytest.mark.parametrize(
    ("name", "is_merge_artifact"),
    [("merge_sentinel:foo", True), ("target_branch:main", True), ("plan_branch:foo", False), ("file:/x", False)],
)
def test_merge_artifact_types(name: str, is_merge_artifact: bool) -> None:
    assert artifact_use(1, name, is_produced=False).is_merge_artifact is is_merge_artifact
