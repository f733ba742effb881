"""The status of a group against a naive count (INV-006), and the three policies (DEC-012)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.config import extension
from rota.config.policy import GROUP_FAILURE
from rota.core.group import POLICIES, Fate, Member, Tally, sort_fates, status_of
from rota.core.status import TERMINAL, Status
from rota.engine.policy import group_policy_named
from rota.errors import InvalidInput
from rota.ids import JobId

statuses = st.lists(st.sampled_from(list(Status)), max_size=6)


@given(statuses, st.booleans(), st.booleans(), st.booleans())
def test_the_status_is_what_a_naive_count_says(
    chains: list[Status], has_begun: bool, is_closed: bool, is_cancelled: bool
) -> None:
    counts = {status: chains.count(status) for status in Status}
    found = status_of(Tally(counts=counts, has_begun=has_begun), is_closed=is_closed, is_cancelled=is_cancelled)
    over = is_closed and all(status in TERMINAL for status in chains)
    assert (found in ("COMPLETED", "CANCELLED", "PARTIAL")) == over
    if not over:
        assert found == ("RUNNING" if has_begun else "QUEUED")
    elif set(chains) <= {Status.COMPLETED, Status.SKIPPED} and (chains or not is_cancelled):
        assert found == "COMPLETED"
    else:
        assert found == ("CANCELLED" if is_cancelled else "PARTIAL")


def members(*spared: bool) -> list[Member]:
    return [
        Member(job=JobId(n), sequence=n, status=Status.QUEUED, is_spared=is_spared)
        for n, is_spared in enumerate(spared, 2)
    ]


FAILED = Member(job=JobId(1), sequence=1, status=Status.FAILED)


@given(st.lists(st.booleans(), max_size=8))
def test_each_policy_has_one_fate_for_all_but_the_spared(spared: list[bool]) -> None:
    waiting = members(*spared)
    others = frozenset(member.job for member in waiting if not member.is_spared)
    assert sort_fates(POLICIES["stop"], FAILED, waiting) == (others, frozenset())
    assert sort_fates(POLICIES["skip"], FAILED, waiting) == (frozenset(), others)
    assert sort_fates(POLICIES["continue"], FAILED, waiting) == (frozenset(), frozenset())


class Saying:
    """A policy that says this, whatever it is asked."""

    def __init__(self, fates: Any) -> None:
        self._fates = fates

    def fates(self, _failed: Member, _waiting: Any) -> Any:
        return self._fates


def test_of_a_users_policy_only_those_count_that_it_was_asked_about() -> None:
    policy = Saying({JobId(2): "skip", JobId(3): Fate.CANCEL, JobId(99): "cancel", JobId(4): "go_on"})
    assert sort_fates(policy, FAILED, members(False, False, False)) == (frozenset({JobId(3)}), frozenset({JobId(2)}))
    with pytest.raises(ValueError, match="perish"):
        sort_fates(Saying({JobId(2): "perish"}), FAILED, members(False))


class EntryPoint:
    def __init__(self, loaded: Any) -> None:
        self.load = lambda: loaded


def test_a_package_brings_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {"gentle": EntryPoint(Saying({})), "class": EntryPoint(object), "bad": EntryPoint(7)}
    monkeypatch.setattr(extension, "entry_points", lambda _kind: found)
    group_policy_named.cache_clear()
    assert group_policy_named("gentle").fates(FAILED, []) == {}
    assert group_policy_named("stop") is POLICIES["stop"]
    assert tuple(POLICIES) == GROUP_FAILURE.own
    with pytest.raises(InvalidInput, match="there is stop, continue, skip, bad, class, gentle"):
        group_policy_named("shrug")
    for name in ("class", "bad"):
        with pytest.raises(InvalidInput, match="it has no method fates"):
            group_policy_named(name)
    group_policy_named.cache_clear()


def test_what_cannot_be_loaded_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ImportError("no module")

    entry = EntryPoint(None)
    entry.load = broken
    monkeypatch.setattr(extension, "entry_points", lambda _kind: {"broken": entry})
    with pytest.raises(InvalidInput, match="cannot be loaded: ImportError"):
        extension.load(GROUP_FAILURE, "broken")
