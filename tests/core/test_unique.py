"""Unique keys: what a submit may ask for, and when a chain cannot have its key back."""

from __future__ import annotations

import pytest

from rota.core.unique import Active, keys_of, refuse_taken
from rota.errors import Conflict, InvalidInput
from rota.ids import JobId


def test_each_key_is_asked_for_once() -> None:
    assert keys_of([]) == []
    assert keys_of([None, "b", None, "a"]) == ["b", "a"]


@pytest.mark.parametrize("key", ["", "a\x00b", "x" * 201])
def test_a_key_that_cannot_be_used_is_named(key: str) -> None:
    with pytest.raises(InvalidInput, match=r"not a usable unique key: .*; use 1 to 200 characters"):
        keys_of([key])


def test_two_of_one_submit_with_one_key_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"jobs 1 and 3 of the submit have one unique key, 'card'"):
        keys_of(["card", None, "card"])


def active(job: int, chain: int) -> Active:
    return Active(job=JobId(job), chain=JobId(chain))


JOBS = [(JobId(2), "a"), (JobId(5), None), (JobId(6), "b"), (JobId(7), None)]


@pytest.mark.parametrize("taken", [{}, {"a": active(2, 1)}, {"b": active(6, 6)}, {"c": active(9, 9)}])
def test_a_key_that_is_free_or_its_own_is_no_obstacle(taken: dict[str, Active]) -> None:
    refuse_taken(JOBS, taken, {JobId(1), JobId(5), JobId(6)}, verb="rewind")


def test_a_key_that_is_anothers_is_refused_with_his_name() -> None:
    with pytest.raises(Conflict, match=r"^cannot rewind job-6: its unique key 'b' is job-9's now; `rota wait job-9`"):
        refuse_taken(JOBS, {"b": active(9, 8)}, {JobId(1), JobId(6)}, verb="rewind")


def test_two_chains_with_one_key_cannot_both_go_on() -> None:
    with pytest.raises(Conflict, match=r"^cannot rewind: job-2 and job-8 have one unique key, 'a'"):
        refuse_taken([*JOBS, (JobId(8), "a")], {"a": active(8, 8)}, {JobId(1), JobId(8)}, verb="rewind")
