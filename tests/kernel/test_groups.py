"""The status of a group against a naive count (INV-006), and the three policies (DEC-012)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.config import extension
from rota.config.extension import GROUP_FAILURE_POLICY
from rota.engine.settings import load_group_policy
from rota.errors import InvalidInput
from rota.ids import JobId
from rota.kernel.groups import POLICIES, GroupCounts, Member, MemberOutcome, decide_outcomes, group_status
from rota.kernel.status import TERMINAL, Status

statuses = st.lists(st.sampled_from(list(Status)), max_size=6)


@given(statuses, st.booleans(), st.booleans(), st.booleans())
def test_group_status_matches_naive_count(
    chains: list[Status], has_started: bool, is_closed: bool, is_cancelled: bool
) -> None:
    counts = {status: chains.count(status) for status in Status}
    status = group_status(
        GroupCounts(counts=counts, has_started=has_started), is_closed=is_closed, is_cancelled=is_cancelled
    )
    is_finished = is_closed and all(chain in TERMINAL for chain in chains)
    assert (status in ("COMPLETED", "CANCELLED", "PARTIAL")) == is_finished
    if not is_finished:
        assert status == ("RUNNING" if has_started else "QUEUED")
    elif set(chains) <= {Status.COMPLETED, Status.SKIPPED} and (chains or not is_cancelled):
        assert status == "COMPLETED"
    else:
        assert status == ("CANCELLED" if is_cancelled else "PARTIAL")


def members(*exempt: bool) -> list[Member]:
    return [
        Member(job=JobId(n), sequence=n, status=Status.QUEUED, is_exempt=is_exempt)
        for n, is_exempt in enumerate(exempt, 2)
    ]


FAILED = Member(job=JobId(1), sequence=1, status=Status.FAILED)


@given(st.lists(st.booleans(), max_size=8))
def test_builtin_policies_spare_exempt_members(exempt: list[bool]) -> None:
    waiting = members(*exempt)
    others = frozenset(member.job for member in waiting if not member.is_exempt)
    assert decide_outcomes(POLICIES["stop"], FAILED, waiting) == (others, frozenset())
    assert decide_outcomes(POLICIES["skip"], FAILED, waiting) == (frozenset(), others)
    assert decide_outcomes(POLICIES["continue"], FAILED, waiting) == (frozenset(), frozenset())


class FixedOutcomes:
    """A policy with fixed outcomes."""

    def __init__(self, outcomes: Any) -> None:
        self._outcomes = outcomes

    def outcomes(self, _failed: Member, _waiting: Any) -> Any:
        return self._outcomes


def test_plugin_policy_affects_only_waiting_members() -> None:
    policy = FixedOutcomes(
        {JobId(2): "skip", JobId(3): MemberOutcome.CANCEL, JobId(99): "cancel", JobId(4): "continue"}
    )
    assert decide_outcomes(policy, FAILED, members(False, False, False)) == (
        frozenset({JobId(3)}),
        frozenset({JobId(2)}),
    )
    with pytest.raises(ValueError, match="perish"):
        decide_outcomes(FixedOutcomes({JobId(2): "perish"}), FAILED, members(False))


class EntryPoint:
    def __init__(self, loaded: Any) -> None:
        self.load = lambda: loaded


def test_policy_is_loaded_from_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entry_points: dict[str, Any] = {
        "gentle": EntryPoint(FixedOutcomes({})),
        "class": EntryPoint(object),
        "bad": EntryPoint(7),
    }
    monkeypatch.setattr(extension, "find_entry_points", lambda _kind: entry_points)
    load_group_policy.cache_clear()
    assert load_group_policy("gentle").outcomes(FAILED, []) == {}
    assert load_group_policy("stop") is POLICIES["stop"]
    assert tuple(POLICIES) == GROUP_FAILURE_POLICY.builtin_names
    with pytest.raises(InvalidInput, match="known: stop, continue, skip, bad, class, gentle"):
        load_group_policy("shrug")
    for name in ("class", "bad"):
        with pytest.raises(InvalidInput, match="it has no method outcomes"):
            load_group_policy(name)
    load_group_policy.cache_clear()


def test_policy_that_fails_to_load_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ImportError("no module")

    entry = EntryPoint(None)
    entry.load = broken
    monkeypatch.setattr(extension, "find_entry_points", lambda _kind: {"broken": entry})
    with pytest.raises(InvalidInput, match="cannot be loaded: ImportError"):
        extension.load_policy(GROUP_FAILURE_POLICY, "broken")
