"""Event filters and kind patterns."""

from __future__ import annotations

import pytest

from rota.errors import InvalidInput
from rota.ids import GroupId, JobId
from rota.kernel.events import KINDS, Event, EventEntry, EventFilter, expand_kinds

ENTRY = EventEntry(
    seq=7,
    event=Event(kind="job.failed", at=0, cause="executor", job=JobId(5), group=GroupId(2)),
    chain=JobId(3),
    type="story",
    flow="write",
)


@pytest.mark.parametrize(
    ("event_filter", "is_match"),
    [
        (EventFilter(), True),
        (EventFilter(kinds=frozenset({"job.failed", "job.running"})), True),
        (EventFilter(kinds=frozenset({"job.running"})), False),
        (EventFilter(chains=frozenset({JobId(3)})), True),
        (EventFilter(chains=frozenset({JobId(5)})), False),
        (EventFilter(group=GroupId(2)), True),
        (EventFilter(group=GroupId(3)), False),
        (EventFilter(type="story"), True),
        (EventFilter(type="plan"), False),
        (EventFilter(flow="write"), True),
        (EventFilter(flow="read"), False),
        (
            EventFilter(kinds=frozenset({"job.failed"}), chains=frozenset({JobId(3)}), group=GroupId(2), type="story"),
            True,
        ),
        (EventFilter(kinds=frozenset({"job.failed"}), chains=frozenset({JobId(3)}), group=GroupId(2), type="x"), False),
    ],
)
def test_filter_requires_all_conditions(event_filter: EventFilter, *, is_match: bool) -> None:
    assert event_filter.matches(ENTRY) is is_match


def test_expand_kinds_accepts_kinds_and_prefix_patterns() -> None:
    assert expand_kinds([]) == frozenset()
    assert expand_kinds(["job.failed", "gc.removed"]) == {"job.failed", "gc.removed"}
    assert expand_kinds(["breaker.*"]) == {kind for kind in KINDS if kind.startswith("breaker.")}


@pytest.mark.parametrize("pattern", ["job", "job.", "*", "job.fail", "job.f*", "", ".*", "Job.failed"])
def test_expand_kinds_refuses_unknown_patterns(pattern: str) -> None:
    with pytest.raises(InvalidInput, match=r"unknown event kind .*job\.\*"):
        expand_kinds(["job.failed", pattern])
