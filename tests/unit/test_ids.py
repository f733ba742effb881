"""Ids: an integer inside, `job-24` at every surface, and nothing else taken for one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InvalidInput
from rota.ids import JobId, RunId, parse_job, parse_run, show_job, show_run

numbers = st.integers(1, 10**18 - 1)


@given(numbers)
def test_a_job_id_is_read_back_as_it_was_shown(number: int) -> None:
    assert parse_job(show_job(JobId(number))) == number


@given(numbers)
def test_a_run_id_is_read_back_as_it_was_shown(number: int) -> None:
    assert parse_run(show_run(RunId(number))) == number


def test_ids_look_like_their_kind() -> None:
    assert (show_job(JobId(24)), show_run(RunId(24))) == ("job-24", "run-24")


@pytest.mark.parametrize(
    "text",
    [
        "", "24", "job", "job-", "job-0", "job-024", "job--1", "job-1.0", "job-٣", "Job-1", "JOB-1", " job-1", "job-1 ",
        "job-1\n", "job_1", "jobs-1", "job-1-2", "job-" + "9" * 19, "../job-1",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_job(text)
    assert refused.value.message == f"not a job id: {text!r}; a job id looks like job-24"


@pytest.mark.parametrize(("parse", "text", "kind"), [(parse_job, "run-1", "job"), (parse_run, "job-1", "run")])
def test_an_id_of_another_kind_is_not_taken(parse: Callable[[str], int], text: str, kind: str) -> None:
    with pytest.raises(InvalidInput, match=f"not a {kind} id"):
        parse(text)


def test_the_largest_id_fits_the_store() -> None:
    assert parse_job("job-" + "9" * 18) < 2**63
