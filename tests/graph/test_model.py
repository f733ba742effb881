"""Graph drawings, literally: seed 000 "Scheduler DAG view"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.graph.model import (
    ArtifactLink,
    Caption,
    DependencyLink,
    Graph,
    Link,
    Vertex,
    draw,
    escape_non_ascii,
    format_line,
)
from rota.ids import JobId
from rota.kernel.artifacts import ArtifactNeed, PinnedHead, parse_artifact
from rota.kernel.edges import DependencyPolicy
from rota.kernel.locks import Lock, LockMode
from rota.kernel.status import Status

Q, R, D = Status.QUEUED, Status.RUNNING, Status.WAITING_ON_DEPS


def vertex(number: int, status: Status = Q) -> Vertex:
    return Vertex(job=JobId(number), chain=JobId(number), status=status)


def after(number: int, status: Status = Q, policy: DependencyPolicy = DependencyPolicy.SUCCESS) -> DependencyLink:
    return DependencyLink(policy=policy, predecessor=JobId(number), target=vertex(number, status))


def need(text: str) -> ArtifactNeed:
    return ArtifactNeed(artifact=parse_artifact(text), scope="")


def graph(links: Mapping[int, Sequence[Link]], *others: int, focus: int | None = None, skipped: int = 0) -> Graph:
    """Make a graph whose nodes are the linked jobs and the others."""
    numbers = sorted({*links, *others})
    return Graph(
        nodes={JobId(number): vertex(number) for number in numbers},
        links={JobId(number): targets for number, targets in links.items() if targets},
        focus=None if focus is None else JobId(focus),
        skipped=skipped,
    )


def render(
    graph: Graph,
    *,
    max_depth: int = 3,
    max_lines: int = 500,
    captions: Mapping[JobId, Caption] | None = None,
    presence: Mapping[ArtifactNeed, bool | None] | None = None,
) -> list[str]:
    lines = draw(graph, max_depth=max_depth, max_lines=max_lines).lines
    return [format_line(line, captions or {}, presence or {}) for line in lines]


def chain(length: int) -> dict[int, list[Link]]:
    return {number: [after(number - 1)] if number > 1 else [] for number in range(1, length + 1)}


def test_empty_graph_draws_no_lines() -> None:
    assert render(graph({})) == []


def test_jobs_without_dependencies_are_a_list() -> None:
    assert render(graph({}, 3, 1, 2)) == ["job-1 QUEUED", "job-2 QUEUED", "job-3 QUEUED"]


def test_chain_is_drawn_as_nested_branches() -> None:
    assert render(graph(chain(4))) == [
        "job-4 QUEUED",
        "`-- after:success -> job-3 QUEUED",
        "    `-- after:success -> job-2 QUEUED",
        "        `-- after:success -> job-1 QUEUED",
    ]


def test_chain_beyond_max_depth_continues_as_new_trees() -> None:
    assert render(graph(chain(7)), max_depth=2) == [
        "job-3 QUEUED",
        "`-- after:success -> job-2 QUEUED",
        "    `-- after:success -> job-1 QUEUED",
        "job-5 QUEUED",
        "`-- after:success -> job-4 QUEUED",
        "    `-- after:success -> job-3 QUEUED (see above)",
        "job-7 QUEUED",
        "`-- after:success -> job-6 QUEUED",
        "    `-- after:success -> job-5 QUEUED (see above)",
    ]


def test_depth_one_draws_each_job_with_its_dependencies() -> None:
    assert render(graph(chain(3)), max_depth=1) == [
        "job-2 QUEUED",
        "`-- after:success -> job-1 QUEUED",
        "job-3 QUEUED",
        "`-- after:success -> job-2 QUEUED (see above)",
    ]


def test_depth_zero_marks_jobs_with_dependencies_as_truncated() -> None:
    assert render(graph(chain(3)), max_depth=0) == ["job-1 QUEUED", "job-2 QUEUED ...", "job-3 QUEUED ..."]


def test_fan_out_repeats_the_shared_predecessor() -> None:
    assert render(graph({1: [], 2: [after(1)], 3: [after(1)]})) == [
        "job-2 QUEUED",
        "`-- after:success -> job-1 QUEUED",
        "job-3 QUEUED",
        "`-- after:success -> job-1 QUEUED (see above)",
    ]


def test_fan_in_shows_each_policy() -> None:
    links: list[Link] = [
        after(1, R),
        after(2, Status.FAILED, DependencyPolicy.FAILED),
        after(3, Status.COMPLETED, DependencyPolicy.FINISHED),
    ]
    assert render(graph({4: links})) == [
        "job-4 QUEUED",
        "|-- after:success -> job-1 RUNNING",
        "|-- after:failed -> job-2 FAILED",
        "`-- after:finished -> job-3 COMPLETED",
    ]


def test_shared_part_of_a_diamond_is_drawn_once() -> None:
    diamond = {1: [after(9)], 2: [after(1)], 3: [after(1)], 4: [after(2), after(3)]}
    assert render(graph(diamond)) == [
        "job-4 QUEUED",
        "|-- after:success -> job-2 QUEUED",
        "|   `-- after:success -> job-1 QUEUED",
        "|       `-- after:success -> job-9 QUEUED",
        "`-- after:success -> job-3 QUEUED",
        "    `-- after:success -> job-1 QUEUED (see above)",
    ]


def test_artifact_links_to_all_producers_or_shows_its_state() -> None:
    doc, branch, report, disk = map(need, ("plan_doc:foo", "plan_branch:foo", "custom:report:weekly", "file:/nfs/x"))
    links: list[Link] = [
        ArtifactLink(need=doc, target=vertex(1, R)),
        ArtifactLink(need=doc, target=vertex(2, Status.FAILED)),
        ArtifactLink(need=branch, target=None),
        ArtifactLink(need=report, target=None),
        ArtifactLink(need=disk, target=None),
        after(1, R),
    ]
    assert render(graph({3: links}), presence={branch: True, report: False, disk: None}) == [
        "job-3 QUEUED",
        "|-- plan_doc:foo (draft/foo) -> job-1 RUNNING",
        "|-- plan_doc:foo (draft/foo) -> job-2 FAILED",
        "|-- plan_branch:foo (draft/foo) [present]",
        "|-- custom:report:weekly [missing]",
        "|-- file:/nfs/x [unknown]",
        "`-- after:success -> job-1 RUNNING (see above)",
    ]


def test_predecessor_without_record_is_missing() -> None:
    missing = DependencyLink(policy=DependencyPolicy.SUCCESS, predecessor=JobId(1), target=None)
    assert render(graph({2: [missing]})) == ["job-2 QUEUED", "`-- after:success -> job-1 [missing]"]


def test_focus_is_drawn_first_then_its_dependents() -> None:
    assert render(graph(chain(4), focus=2)) == [
        "job-2 QUEUED",
        "`-- after:success -> job-1 QUEUED",
        "job-4 QUEUED",
        "`-- after:success -> job-3 QUEUED",
        "    `-- after:success -> job-2 QUEUED (see above)",
    ]


def test_truncated_node_is_marked() -> None:
    truncated = Graph(
        nodes={JobId(1): vertex(1), JobId(2): vertex(2)},
        links={JobId(2): [after(1)]},
        truncated=frozenset({JobId(1)}),
        focus=JobId(2),
    )
    assert render(truncated) == ["job-2 QUEUED", "`-- after:success -> job-1 QUEUED ..."]


def test_job_first_drawn_at_depth_limit_is_expanded_later() -> None:
    """The job is first reached on a long path, and later on a short path."""
    links: dict[int, list[Link]] = {1: [], 2: [after(1)], 3: [after(2)], 4: [after(3)], 5: [after(4), after(2)]}
    assert render(graph(links), max_depth=3) == [
        "job-5 QUEUED",
        "|-- after:success -> job-4 QUEUED",
        "|   `-- after:success -> job-3 QUEUED",
        "|       `-- after:success -> job-2 QUEUED ...",
        "`-- after:success -> job-2 QUEUED",
        "    `-- after:success -> job-1 QUEUED",
    ]


def test_cycle_terminates() -> None:
    assert render(graph({1: [after(2)], 2: [after(1)]})) == [
        "job-1 QUEUED",
        "`-- after:success -> job-2 QUEUED",
        "    `-- after:success -> job-1 QUEUED (see above)",
    ]


def test_jobs_beyond_max_lines_are_counted() -> None:
    drawing = draw(graph(chain(10), skipped=5), max_depth=3, max_lines=4)
    assert len(drawing.lines) == 4
    assert drawing.skipped == 10 - 4 + 5


def test_tree_may_exceed_the_recursion_limit() -> None:
    drawing = draw(graph(chain(5000)), max_depth=10_000, max_lines=10_000)
    assert (len(drawing.lines), drawing.skipped) == (5000, 0)


CAPTIONS = [
    (Caption(), ""),
    (Caption(scope="story"), " [story]"),
    (Caption(plan="a plan", target="web"), " [a plan/web]"),
    (Caption(scope="story", plan="p", target="w", wait="waiting on locks"), " [story/p/w] [wait: waiting on locks]"),
    (Caption(locks=(Lock(key="repo"), Lock(key="db", mode=LockMode.SHARED))), " [locks: repo, db:shared]"),
    (Caption(pinned_head=PinnedHead(branch="main", oid="0123456789" * 4)), " [pinned: main@01234567]"),
    (
        Caption(
            scope="s",
            wait="pinned head mismatch on main",
            locks=(Lock(key="k"),),
            pinned_head=PinnedHead(branch="main", oid="a" * 40),
        ),
        " [s] [wait: pinned head mismatch on main] [locks: k] [pinned: main@aaaaaaaa]",
    ),
    (Caption(plan="x" * 101), f" [{'x' * 100}...]"),
]


@pytest.mark.parametrize(("caption", "text"), CAPTIONS)
def test_caption_omits_empty_parts(caption: Caption, text: str) -> None:
    assert render(graph({}, 1), captions={JobId(1): caption}) == [f"job-1 QUEUED{text}"]


def test_caption_appears_only_at_first_occurrence() -> None:
    captions = {JobId(number): Caption(plan=f"n{number}") for number in (1, 2, 3)}
    assert render(graph({1: [], 2: [after(1)], 3: [after(1)]}), captions=captions) == [
        "job-2 QUEUED [n2]",
        "`-- after:success -> job-1 QUEUED [n1]",
        "job-3 QUEUED [n3]",
        "`-- after:success -> job-1 QUEUED (see above)",
    ]


def test_dispatched_job_is_shown_as_running() -> None:
    claimed = Graph(nodes={JobId(1): vertex(1, Status.DISPATCHED)}, links={})
    assert render(claimed) == ["job-1 RUNNING"]


def test_non_ascii_names_are_escaped() -> None:
    caption = Caption(plan="späte Arbeit\n\033[31m", target="日")
    assert render(graph({}, 1), captions={JobId(1): caption}) == ["job-1 QUEUED [sp\\xe4te Arbeit\\n\\x1b[31m/\\u65e5]"]
    assert escape_non_ascii("plain | text ~ `") == "plain | text ~ `"


@st.composite
def dags(draw_from: st.DrawFn) -> dict[int, list[Link]]:
    size = draw_from(st.integers(1, 12))
    return {
        number: [after(before) for before in draw_from(st.lists(st.integers(1, number - 1), unique=True, max_size=4))]
        if number > 1
        else []
        for number in range(1, size + 1)
    }


@given(dags(), st.integers(1, 4))
def test_every_job_and_edge_of_a_dag_is_drawn(links: dict[int, list[Link]], max_depth: int) -> None:
    drawing = draw(graph(links), max_depth=max_depth, max_lines=10_000)
    assert drawing.skipped == 0
    assert {line.vertex.job for line in drawing.lines if line.vertex is not None} == set(links)
    arrows = [id(line.link) for line in drawing.lines if line.link is not None]
    assert sorted(arrows) == sorted(id(link) for targets in links.values() for link in targets), "each edge once"
    texts = [format_line(line, {}, {}) for line in drawing.lines]
    assert all(text.isascii() for text in texts)
    depths = [len(line.prefix) // 4 for line in drawing.lines]
    assert max(depths) <= max_depth
