"""Unique keys: requests of a submit, and chains that cannot get their key back."""

from __future__ import annotations

import pytest

from rota.errors import Conflict, InvalidInput
from rota.ids import JobId
from rota.kernel.queue import UniqueKeyHolder, collect_unique_keys, refuse_held_keys


def test_collect_keys_returns_each_key_once() -> None:
    assert collect_unique_keys([]) == []
    assert collect_unique_keys([None, "b", None, "a"]) == ["b", "a"]


@pytest.mark.parametrize("key", ["", "a\x00b", "x" * 201])
def test_invalid_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match=r"not a usable unique key: .*; use 1 to 200 characters"):
        collect_unique_keys([key])


def test_duplicate_key_in_a_submit_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"jobs 1 and 3 of the submit have the same unique key, 'card'"):
        collect_unique_keys(["card", None, "card"])


def holder(job: int, chain: int) -> UniqueKeyHolder:
    return UniqueKeyHolder(job=JobId(job), chain=JobId(chain))


JOBS = [(JobId(2), "a"), (JobId(5), None), (JobId(6), "b"), (JobId(7), None)]


@pytest.mark.parametrize("holders", [{}, {"a": holder(2, 1)}, {"b": holder(6, 6)}, {"c": holder(9, 9)}])
def test_free_or_own_key_is_accepted(holders: dict[str, UniqueKeyHolder]) -> None:
    refuse_held_keys(JOBS, holders, {JobId(1), JobId(5), JobId(6)}, action="rewind")


def test_key_of_another_chain_is_refused_with_the_holder() -> None:
    with pytest.raises(
        Conflict, match=r"^cannot rewind job-6: its unique key 'b' is held by job-9; run `rota wait job-9`"
    ):
        refuse_held_keys(JOBS, {"b": holder(9, 8)}, {JobId(1), JobId(6)}, action="rewind")


def test_two_chains_with_the_same_key_cannot_both_continue() -> None:
    with pytest.raises(Conflict, match=r"^cannot rewind: job-2 and job-8 have the same unique key, 'a'"):
        refuse_held_keys([*JOBS, (JobId(8), "a")], {"a": holder(8, 8)}, {JobId(1), JobId(8)}, action="rewind")
