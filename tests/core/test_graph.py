"""The drawing of a graph, to the letter: DESIGN §12, seed 000 "Scheduler DAG view"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.after import AfterPolicy
from rota.core.artifact import Need, parse_artifact
from rota.core.graph import After, Caption, Graph, Link, Needed, Vertex, ascii_only, draw, show_line
from rota.core.lock import Lock, LockMode
from rota.core.pinned_head import PinnedHead
from rota.core.status import Status
from rota.ids import JobId

Q, R, D = Status.QUEUED, Status.RUNNING, Status.WAITING_ON_DEPS


def vertex(number: int, status: Status = Q) -> Vertex:
    return Vertex(job=JobId(number), chain=JobId(number), status=status)


def after(number: int, status: Status = Q, policy: AfterPolicy = AfterPolicy.SUCCESS) -> After:
    return After(policy=policy, predecessor=JobId(number), to=vertex(number, status))


def need(text: str) -> Need:
    return Need(artifact=parse_artifact(text), scope="")


def graph(links: Mapping[int, Sequence[Link]], *others: int, focus: int | None = None, left_out: int = 0) -> Graph:
    """Every job that is linked from or named is a node."""
    numbers = sorted({*links, *others})
    return Graph(
        nodes={JobId(number): vertex(number) for number in numbers},
        links={JobId(number): each for number, each in links.items() if each},
        focus=None if focus is None else JobId(focus),
        left_out=left_out,
    )


def shown(
    graph: Graph,
    *,
    max_depth: int = 3,
    most: int = 500,
    captions: Mapping[JobId, Caption] | None = None,
    presence: Mapping[Need, bool | None] | None = None,
) -> list[str]:
    lines = draw(graph, max_depth=max_depth, most=most).lines
    return [show_line(line, captions or {}, presence or {}) for line in lines]


def chain(length: int) -> dict[int, list[Link]]:
    return {number: [after(number - 1)] if number > 1 else [] for number in range(1, length + 1)}


def test_nothing() -> None:
    assert shown(graph({})) == []


def test_jobs_that_hang_on_nothing_are_a_list() -> None:
    assert shown(graph({}, 3, 1, 2)) == ["job-1 QUEUED", "job-2 QUEUED", "job-3 QUEUED"]


def test_a_chain() -> None:
    assert shown(graph(chain(4))) == [
        "job-4 QUEUED",
        "`-- after:success -> job-3 QUEUED",
        "    `-- after:success -> job-2 QUEUED",
        "        `-- after:success -> job-1 QUEUED",
    ]


def test_a_long_chain_goes_on_as_trees_of_their_own_the_first_first() -> None:
    assert shown(graph(chain(7)), max_depth=2) == [
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


def test_one_step_is_each_job_with_what_it_hangs_on() -> None:
    assert shown(graph(chain(3)), max_depth=1) == [
        "job-2 QUEUED",
        "`-- after:success -> job-1 QUEUED",
        "job-3 QUEUED",
        "`-- after:success -> job-2 QUEUED (see above)",
    ]


def test_without_a_step_jobs_are_a_list_and_it_is_said_that_more_hangs_below() -> None:
    assert shown(graph(chain(3)), max_depth=0) == ["job-1 QUEUED", "job-2 QUEUED ...", "job-3 QUEUED ..."]


def test_fan_out() -> None:
    assert shown(graph({1: [], 2: [after(1)], 3: [after(1)]})) == [
        "job-2 QUEUED",
        "`-- after:success -> job-1 QUEUED",
        "job-3 QUEUED",
        "`-- after:success -> job-1 QUEUED (see above)",
    ]


def test_fan_in_with_each_policy() -> None:
    links: list[Link] = [
        after(1, R), after(2, Status.FAILED, AfterPolicy.FAILED), after(3, Status.COMPLETED, AfterPolicy.FINISHED),
    ]  # fmt: skip
    assert shown(graph({4: links})) == [
        "job-4 QUEUED",
        "|-- after:success -> job-1 RUNNING",
        "|-- after:failed -> job-2 FAILED",
        "`-- after:finished -> job-3 COMPLETED",
    ]


def test_the_shared_part_of_a_diamond_is_drawn_once() -> None:
    diamond = {1: [after(9)], 2: [after(1)], 3: [after(1)], 4: [after(2), after(3)]}
    assert shown(graph(diamond)) == [
        "job-4 QUEUED",
        "|-- after:success -> job-2 QUEUED",
        "|   `-- after:success -> job-1 QUEUED",
        "|       `-- after:success -> job-9 QUEUED",
        "`-- after:success -> job-3 QUEUED",
        "    `-- after:success -> job-1 QUEUED (see above)",
    ]


def test_artifacts_lead_to_all_who_make_them_and_end_where_nobody_does() -> None:
    doc, branch, report, disk = map(need, ("plan_doc:foo", "plan_branch:foo", "custom:report:weekly", "file:/nfs/x"))
    links: list[Link] = [
        Needed(need=doc, to=vertex(1, R)), Needed(need=doc, to=vertex(2, Status.FAILED)), Needed(need=branch, to=None),
        Needed(need=report, to=None), Needed(need=disk, to=None), after(1, R),
    ]  # fmt: skip
    assert shown(graph({3: links}), presence={branch: True, report: False, disk: None}) == [
        "job-3 QUEUED",
        "|-- plan_doc:foo (draft/foo) -> job-1 RUNNING",
        "|-- plan_doc:foo (draft/foo) -> job-2 FAILED",
        "|-- plan_branch:foo (draft/foo) [present]",
        "|-- custom:report:weekly [missing]",
        "|-- file:/nfs/x [unknown]",
        "`-- after:success -> job-1 RUNNING (see above)",
    ]


def test_a_predecessor_without_a_record() -> None:
    gone = After(policy=AfterPolicy.SUCCESS, predecessor=JobId(1), to=None)
    assert shown(graph({2: [gone]})) == ["job-2 QUEUED", "`-- after:success -> job-1 [missing]"]


def test_the_focus_comes_first_then_what_hangs_on_it() -> None:
    assert shown(graph(chain(4), focus=2)) == [
        "job-2 QUEUED",
        "`-- after:success -> job-1 QUEUED",
        "job-4 QUEUED",
        "`-- after:success -> job-3 QUEUED",
        "    `-- after:success -> job-2 QUEUED (see above)",
    ]


def test_what_hangs_on_more_than_is_read_says_so() -> None:
    rim = Graph(
        nodes={JobId(1): vertex(1), JobId(2): vertex(2)}, links={JobId(2): [after(1)]}, cut=frozenset({JobId(1)}),
        focus=JobId(2),
    )  # fmt: skip
    assert shown(rim) == ["job-2 QUEUED", "`-- after:success -> job-1 QUEUED ..."]


def test_a_job_met_first_where_its_tree_ends_has_its_tree_all_the_same() -> None:
    """It is reached by a long way first, and by a short one later."""
    links: dict[int, list[Link]] = {1: [], 2: [after(1)], 3: [after(2)], 4: [after(3)], 5: [after(4), after(2)]}
    assert shown(graph(links), max_depth=3) == [
        "job-5 QUEUED",
        "|-- after:success -> job-4 QUEUED",
        "|   `-- after:success -> job-3 QUEUED",
        "|       `-- after:success -> job-2 QUEUED ...",
        "`-- after:success -> job-2 QUEUED",
        "    `-- after:success -> job-1 QUEUED",
    ]


def test_a_ring_comes_to_an_end() -> None:
    assert shown(graph({1: [after(2)], 2: [after(1)]})) == [
        "job-1 QUEUED",
        "`-- after:success -> job-2 QUEUED",
        "    `-- after:success -> job-1 QUEUED (see above)",
    ]


def test_what_is_too_much_is_counted() -> None:
    drawing = draw(graph(chain(10), left_out=5), max_depth=3, most=4)
    assert len(drawing.lines) == 4
    assert drawing.left_out == 10 - 4 + 5


def test_a_tree_may_be_deeper_than_the_stack_of_the_interpreter() -> None:
    drawing = draw(graph(chain(5000)), max_depth=10_000, most=10_000)
    assert (len(drawing.lines), drawing.left_out) == (5000, 0)


CAPTIONS = [
    (Caption(), ""),
    (Caption(scope="story"), " [story]"),
    (Caption(plan="a plan", target="web"), " [a plan/web]"),
    (Caption(scope="story", plan="p", target="w", wait="waiting on locks"), " [story/p/w] [wait: waiting on locks]"),
    (
        Caption(locks=(Lock(key="repo"), Lock(key="db", mode=LockMode.SHARED))),
        " [locks: repo, db:shared]",
    ),
    (Caption(pinned_head=PinnedHead(branch="main", oid="0123456789" * 4)), " [pinned: main@01234567]"),
    (
        Caption(
            scope="s", wait="pinned head mismatch on main", locks=(Lock(key="k"),),
            pinned_head=PinnedHead(branch="main", oid="a" * 40),
        ),
        " [s] [wait: pinned head mismatch on main] [locks: k] [pinned: main@aaaaaaaa]",
    ),
    (Caption(plan="x" * 101), f" [{'x' * 100}...]"),
]  # fmt: skip


@pytest.mark.parametrize(("caption", "text"), CAPTIONS)
def test_what_is_empty_is_left_out_with_its_bracket(caption: Caption, text: str) -> None:
    assert shown(graph({}, 1), captions={JobId(1): caption}) == [f"job-1 QUEUED{text}"]


def test_a_job_is_described_where_it_is_met_first() -> None:
    captions = {JobId(number): Caption(plan=f"n{number}") for number in (1, 2, 3)}
    assert shown(graph({1: [], 2: [after(1)], 3: [after(1)]}), captions=captions) == [
        "job-2 QUEUED [n2]",
        "`-- after:success -> job-1 QUEUED [n1]",
        "job-3 QUEUED [n3]",
        "`-- after:success -> job-1 QUEUED (see above)",
    ]


def test_a_claimed_job_is_shown_as_running() -> None:
    claimed = Graph(nodes={JobId(1): vertex(1, Status.DISPATCHED)}, links={})
    assert shown(claimed) == ["job-1 RUNNING"]


def test_names_of_any_script_are_escaped() -> None:
    caption = Caption(plan="späte Arbeit\n\033[31m", target="日")
    assert shown(graph({}, 1), captions={JobId(1): caption}) == ["job-1 QUEUED [sp\\xe4te Arbeit\\n\\x1b[31m/\\u65e5]"]
    assert ascii_only("plain | text ~ `") == "plain | text ~ `"


@st.composite
def dags(draw_from: st.DrawFn) -> dict[int, list[Link]]:
    size = draw_from(st.integers(1, 12))
    return {
        number: [
            after(before) for before in draw_from(st.lists(st.integers(1, number - 1), unique=True, max_size=4))
        ] if number > 1 else []
        for number in range(1, size + 1)
    }  # fmt: skip


@given(dags(), st.integers(1, 4))
def test_every_job_and_every_edge_of_any_dag_is_drawn(links: dict[int, list[Link]], max_depth: int) -> None:
    drawing = draw(graph(links), max_depth=max_depth, most=10_000)
    assert drawing.left_out == 0
    assert {line.vertex.job for line in drawing.lines if line.vertex is not None} == set(links)
    arrows = [id(line.link) for line in drawing.lines if line.link is not None]
    assert sorted(arrows) == sorted(id(link) for each in links.values() for link in each), "each edge once"
    texts = [show_line(line, {}, {}) for line in drawing.lines]
    assert all(text.isascii() for text in texts)
    depths = [len(line.prefix) // 4 for line in drawing.lines]
    assert max(depths) <= max_depth
