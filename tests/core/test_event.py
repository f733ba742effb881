"""What is wanted of what happens."""

from __future__ import annotations

import pytest

from rota.core.event import KINDS, Entry, Event, Wanted, kinds_named
from rota.errors import InvalidInput
from rota.ids import GroupId, JobId

ENTRY = Entry(
    seq=7,
    event=Event(kind="job.failed", at=0, cause="executor", job=JobId(5), group=GroupId(2)),
    chain=JobId(3),
    type="story",
    flow="write",
)


@pytest.mark.parametrize(
    ("wanted", "is_so"),
    [
        (Wanted(), True),
        (Wanted(kinds=frozenset({"job.failed", "job.running"})), True),
        (Wanted(kinds=frozenset({"job.running"})), False),
        (Wanted(chains=frozenset({JobId(3)})), True),
        (Wanted(chains=frozenset({JobId(5)})), False),
        (Wanted(group=GroupId(2)), True),
        (Wanted(group=GroupId(3)), False),
        (Wanted(type="story"), True),
        (Wanted(type="plan"), False),
        (Wanted(flow="write"), True),
        (Wanted(flow="read"), False),
        (Wanted(kinds=frozenset({"job.failed"}), chains=frozenset({JobId(3)}), group=GroupId(2), type="story"), True),
        (Wanted(kinds=frozenset({"job.failed"}), chains=frozenset({JobId(3)}), group=GroupId(2), type="x"), False),
    ],
)
def test_all_that_is_said_has_to_be_met(wanted: Wanted, *, is_so: bool) -> None:
    assert wanted.wants(ENTRY) is is_so


def test_kinds_are_named_one_by_one_or_by_their_beginning() -> None:
    assert kinds_named([]) == frozenset()
    assert kinds_named(["job.failed", "gc.removed"]) == {"job.failed", "gc.removed"}
    assert kinds_named(["breaker.*"]) == {kind for kind in KINDS if kind.startswith("breaker.")}


@pytest.mark.parametrize("name", ["job", "job.", "*", "job.fail", "job.f*", "", ".*", "Job.failed"])
def test_what_names_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"no event is of the kind .*job\.\*"):
        kinds_named(["job.failed", name])
