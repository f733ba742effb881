"""The ready rule and the board, by table and against a naive model."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.work.model import Board, Item, ItemDependency, SourceView
from tests.sample import sample

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def item(item_id: str, *depends: str | ItemDependency, **fields: Any) -> Item:
    edges = tuple(ItemDependency(id=edge) if isinstance(edge, str) else edge for edge in depends)
    return Item(**{"id": item_id, "source": "town", "title": f"Do {item_id}", "depends": edges, **fields})


def on(item_id: str, kind: str, *, is_any: bool = False) -> ItemDependency:
    return ItemDependency(id=item_id, kind=kind, is_any=is_any)


def make_board(*items: Item, now: datetime = NOW) -> Board:
    names = dict.fromkeys(each.source for each in items)
    return Board([SourceView(name, [each for each in items if each.source == name]) for name in names], now)


def why(*items: Item) -> str | None:
    """Return why the first item is not ready."""
    return make_board(*items).why_not_ready(items[0])


def test_open_item_is_ready() -> None:
    assert why(item("gt-1")) is None
    assert why(item("gt-1", issue_type := "gt-2"), item(issue_type, status="closed")) is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"status": "closed"}, "work item gt-1 is closed"),
        ({"status": "tombstone"}, "work item gt-1 is closed"),
        ({"status": "shipped", "has_done_status": True}, "work item gt-1 is closed"),
        ({"status": "in_progress"}, "work item gt-1 has the status in_progress"),
        ({"status": "hooked"}, "work item gt-1 has the status hooked"),
        ({"status": "pinned"}, "work item gt-1 has the status pinned"),
        ({"status": "staged_ready"}, "work item gt-1 has the status staged_ready"),
        ({"status": "blocked"}, "work item gt-1 is blocked"),
        ({"status": "deferred"}, "work item gt-1 is deferred"),
        ({"is_pinned": True}, "work item gt-1 is pinned"),
        ({"is_ephemeral": True}, "work item gt-1 is ephemeral"),
        ({"kind": "gate"}, "work item gt-1 is of the kind gate, which is not work"),
        ({"kind": "merge-request"}, "work item gt-1 is of the kind merge-request, which is not work"),
        ({"defer_until": NOW + timedelta(hours=1)}, "work item gt-1 is deferred until 2026-03-01T13:00:00Z"),
        ({"defer_until": NOW}, None),
        ({"kind": "epic"}, None),
        ({"kind": "convoy"}, None),
    ],
)
def test_item_that_is_not_ready_says_why(fields: dict[str, Any], reason: str | None) -> None:
    assert why(item("gt-1", **fields)) == reason


@pytest.mark.parametrize("status", ["in_progress", "hooked", "queued", "pinned", "open"])
def test_own_status_does_not_hold_the_job(status: str) -> None:
    each = item("gt-1", status=status)
    assert make_board(each).hold_reason(each) is None


@pytest.mark.parametrize("status", ["blocked", "deferred", "closed"])
def test_statuses_that_hold_the_job(status: str) -> None:
    each = item("gt-1", status=status)
    assert make_board(each).hold_reason(each) == f"work item gt-1 is {status}"


@pytest.mark.parametrize("kind", ["blocks", "conditional-blocks", "waits-for", "merge-blocks"])
def test_open_blocker_blocks(kind: str) -> None:
    each = item("gt-1", on("gt-2", kind))
    board = make_board(each, item("gt-2"))
    assert board.blockers(each) == ("gt-2",)
    assert board.why_not_ready(each) == "work item gt-1 is blocked by gt-2"


@pytest.mark.parametrize("kind", ["related", "discovered-from", "tracks", "supersedes", "until", "any-other-kind"])
def test_other_dependencies_do_not_block(kind: str) -> None:
    assert why(item("gt-1", on("gt-2", kind)), item("gt-2")) is None
    assert why(item("gt-1", on("gt-nowhere", kind))) is None


@pytest.mark.parametrize("status", ["closed", "pinned", "tombstone"])
def test_resolved_blocker_does_not_block(status: str) -> None:
    assert why(item("gt-1", "gt-2"), item("gt-2", status=status)) is None


@pytest.mark.parametrize("status", ["in_progress", "hooked", "deferred", "blocked", "staged_ready"])
def test_unfinished_blocker_blocks(status: str) -> None:
    assert why(item("gt-1", "gt-2"), item("gt-2", status=status)) == "work item gt-1 is blocked by gt-2"


@pytest.mark.parametrize(
    ("close_reason", "is_released"),
    [("done", False), ("", False), ("Won't fix", True), ("tests FAILED", True), ("cancelled by ada", True)],
)
def test_conditional_blocker_releases_only_if_it_failed(close_reason: str, is_released: bool) -> None:
    blocker = item("gt-2", status="closed", close_reason=close_reason)
    expected = None if is_released else "work item gt-1 is blocked by gt-2, which was closed without failing"
    assert why(item("gt-1", on("gt-2", "conditional-blocks")), blocker) == expected


def test_unknown_blocker_blocks_with_its_name() -> None:
    each = item("gt-1", "gt-2")
    assert make_board(each).blockers(each) == ("gt-2",)
    assert why(each) == "work item gt-1 is blocked by gt-2, which is not in any source"


def test_blocker_in_another_source_counts() -> None:
    each = item("gt-1", "web-1")
    assert why(each, item("web-1", source="web")) == "work item gt-1 is blocked by web-1"
    assert why(each, item("web-1", source="web", status="closed")) is None


def test_unreadable_source_is_not_ready() -> None:
    each, other = item("gt-1"), item("web-1", "gt-1", source="web")
    board = Board([SourceView("town", [each], error="issues.jsonl does not exist"), SourceView("web", [other])], NOW)
    assert board.why_not_ready(each) == "work item gt-1 cannot be read: issues.jsonl does not exist"
    assert board.hold_reason(each) == board.why_not_ready(each)
    assert board.why_not_ready(other) == "work item web-1 is blocked by gt-1"
    assert board.warnings == ("source town cannot be read: issues.jsonl does not exist",)


def test_blocked_parent_holds_descendants_at_any_depth() -> None:
    family = (item("gt-1", parent="gt-2"), item("gt-2", parent="gt-3"), item("gt-3", "gt-4"), item("gt-4"))
    assert why(*family) == "work item gt-1 is blocked by gt-4 (through its parent gt-3)"
    assert make_board(*family).blockers(family[0]) == ("gt-4",)


def test_open_parent_alone_does_not_hold_its_children() -> None:
    assert why(item("gt-1", on("gt-2", "parent-child"), parent="gt-2"), item("gt-2")) is None


def test_parent_that_waits_for_its_children_does_not_hold_them() -> None:
    board = make_board(item("gt-1", parent="gt-2"), parent := item("gt-2", "gt-1"))
    assert [each.id for each in board.items if board.is_ready(each)] == ["gt-1"]
    assert board.blockers(parent) == ("gt-1",)
    assert board.warnings == ()


@pytest.mark.parametrize(
    ("children", "is_any", "blockers"),
    [
        ([], False, ("gt-2",)),
        ([], True, ("gt-2",)),
        (["open", "open"], False, ("gt-2.0", "gt-2.1")),
        (["closed", "open"], False, ("gt-2.1",)),
        (["closed", "open"], True, ()),
        (["open", "open"], True, ("gt-2.0", "gt-2.1")),
        (["closed", "closed"], False, ()),
    ],
)
def test_waits_for_the_children_of_an_item(children: list[str], is_any: bool, blockers: tuple[str, ...]) -> None:
    each = item("gt-1", on("gt-2", "waits-for", is_any=is_any))
    family = [item(f"gt-2.{n}", parent="gt-2", status=status) for n, status in enumerate(children)]
    assert make_board(each, item("gt-2"), *family).blockers(each) == blockers


def test_many_blockers_are_shortened() -> None:
    each = item("gt-0", *(f"gt-{n}" for n in range(1, 12)))
    reason = why(each, *(item(f"gt-{n}") for n in range(1, 12)))
    assert reason is not None
    assert reason.endswith("gt-7, gt-8 and 3 more")


@pytest.mark.parametrize(
    ("items", "warning"),
    [
        ([item("a", "a")], "cycle of 1 work items: a → a; remove one of the dependencies"),
        ([item("a", "b"), item("b", "c"), item("c", "a")], "cycle of 3 work items: a → b → c → a; remove"),
        (
            [item("child", parent="epic"), item("epic", "other"), item("other", "child")],
            "cycle of 3 work items: child → epic → other → child",
        ),
        ([item("a", parent="b"), item("b", parent="a")], "cycle of 2 work items: a → b → a"),
    ],
)
def test_cycle_is_named_and_loses_nothing(items: list[Item], warning: str) -> None:
    board = make_board(item("before", items[0].id), *items, item("free"))
    assert len(board.warnings) == 1
    assert board.warnings[0].startswith(warning)
    assert len(board.items) == len(items) + 2
    assert board.is_ready(board.items[-1])


def test_closed_items_are_no_cycle() -> None:
    assert make_board(item("a", "b"), item("b", "a", status="closed")).warnings == ()


def test_long_cycle_and_deep_family_are_handled() -> None:
    ring = [item(f"r{n}", f"r{(n + 1) % 5000}") for n in range(5000)]
    family = [item(f"f{n}", parent=f"f{n + 1}") for n in range(3000)]
    board = make_board(*ring, *family)
    assert [warning.partition(":")[0] for warning in board.warnings] == ["cycle of 5000 work items"]
    assert board.is_ready(family[0])


def test_duplicate_in_one_source_keeps_the_open_copy() -> None:
    closed, opened = item("gt-1", status="closed", line=2), item("gt-1", line=5)
    for copies in ((closed, opened), (opened, closed)):
        board = make_board(*copies, item("gt-2", "gt-1"))
        assert board.find("gt-1") is opened
        assert [each.id for each in board.items] == ["gt-1", "gt-2"]
        assert board.warnings == (
            "source town: work item gt-1 is there twice, in line 5 and line 2; line 2 is skipped",
        )


def test_same_id_in_two_sources_means_the_first() -> None:
    first, second = item("1"), item("1", source="web", status="closed")
    dependent = item("2", "1", source="web")
    board = make_board(first, second, dependent)
    assert board.items == (first, second, dependent)
    assert board.find("1") is first
    assert board.find("1", source="web") is second
    assert board.find("web/1") is second
    assert board.find("town/3") is None
    assert board.is_ready(dependent), "a dependency refers to its own source first"
    assert board.warnings == ("work item 1 is in the sources town and web; 1 means the one in town, web/1 the other",)


def test_time_makes_deferred_items_ready() -> None:
    due = NOW + timedelta(minutes=5)
    each = item("gt-1", defer_until=due)
    board = make_board(each, item("gt-2", defer_until=due + timedelta(days=1)))
    assert board.next_change == due
    assert not board.is_ready(each)
    assert board.at(due).is_ready(each)
    assert board.at(due).next_change == due + timedelta(days=1)


def test_deferred_parent_defers_its_descendants() -> None:
    parent = item("gt-3", defer_until=NOW + timedelta(hours=1))
    family = (item("gt-1", parent="gt-2"), item("gt-2", parent="gt-3"), parent)
    assert why(*family) == "work item gt-1 is deferred until 2026-03-01T13:00:00Z (through its parent gt-3)"
    board = make_board(*family, now=NOW + timedelta(hours=1))
    assert all(map(board.is_ready, board.items))


def test_children_and_tracked_items() -> None:
    convoy = item("hq-cv-1", on("gt-1", "tracks"), on("gt-2", "tracks"), "gt-3", kind="convoy")
    board = make_board(convoy, epic := item("gt-9"), item("gt-1", parent="gt-9"), item("gt-2", parent="gt-9"))
    assert [each.id for each in board.children(epic)] == ["gt-1", "gt-2"]
    assert board.tracked(convoy) == ("gt-1", "gt-2")


IDS = [f"i{n}" for n in range(7)]
edges = st.builds(on, st.sampled_from([*IDS, "unknown"]), st.sampled_from(["blocks", "merge-blocks", "related"]))
items = st.builds(
    item,
    st.sampled_from(IDS),
    status=st.sampled_from(["open", "open", "open", "closed", "pinned", "in_progress"]),
    depends=st.lists(edges, max_size=2).map(tuple),
    parent=st.none() | st.sampled_from(IDS),
    is_pinned=st.sampled_from([False, False, False, True]),
    defer_until=st.none() | st.sampled_from([NOW - timedelta(1), NOW + timedelta(1)]),
)


def naive_ancestors(each: Item, by_id: dict[str, Item]) -> list[Item]:
    family = [each]
    while (parent := by_id.get(family[-1].parent or "")) is not None and parent not in family:
        family.append(parent)
    return family[1:]


def naive_blockers(each: Item, by_id: dict[str, Item]) -> set[str]:
    """Return the blockers as the rule says them, with no regard for speed."""
    found = set()
    for holder in [each, *naive_ancestors(each, by_id)]:
        for edge in () if holder.status == "closed" else holder.depends:
            other = by_id.get(edge.id)
            is_blocking = edge.kind != "related" and (other is None or other.status not in ("closed", "pinned"))
            if holder is not each and other is not None and holder in [other, *naive_ancestors(other, by_id)]:
                is_blocking = False
            if is_blocking:
                found.add(edge.id)
    return found


@settings(max_examples=sample(200))
@given(st.lists(items, max_size=7, unique_by=lambda each: each.id))
def test_ready_rule_equals_the_naive_model(listed: list[Item]) -> None:
    board = make_board(*listed)
    by_id = {each.id: each for each in listed}
    for each in listed:
        blockers = naive_blockers(each, by_id)
        if each.status != "closed":
            assert set(board.blockers(each)) == blockers
        family = [each, *naive_ancestors(each, by_id)]
        is_due = all(holder.defer_until is None or holder.defer_until <= NOW for holder in family)
        assert board.is_ready(each) == (each.status == "open" and not each.is_pinned and is_due and not blockers)


@settings(max_examples=sample(100))
@given(st.lists(items, max_size=7, unique_by=lambda each: each.id))
def test_items_that_never_start_without_a_change_are_in_a_cycle_or_explained(listed: list[Item]) -> None:
    """Close ready items until none is left: the rest waits for a cycle, or for an item that is not open."""
    while True:
        board = make_board(*listed, now=NOW + timedelta(days=2))
        ready = {each.id for each in listed if board.is_ready(each)}
        if not ready:
            break
        listed = [item(each.id, status="closed") if each.id in ready else each for each in listed]
    stuck = [each for each in listed if each.status == "open" and not each.is_pinned]
    has_other_cause = any(
        each.status == "in_progress" or each.is_pinned or any(edge.id not in board._by_id for edge in each.depends)
        for each in listed
    )
    assert not stuck or has_other_cause or board.warnings
