"""Parsing and formatting of ids."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InvalidInput
from rota.ids import JobId, RunId, format_job_id, format_run_id, parse_job_id, parse_run_id

numbers = st.integers(1, 10**18 - 1)


@given(numbers)
def test_formatted_job_id_is_parsed_back(number: int) -> None:
    assert parse_job_id(format_job_id(JobId(number))) == number


@given(numbers)
def test_formatted_run_id_is_parsed_back(number: int) -> None:
    assert parse_run_id(format_run_id(RunId(number))) == number


def test_ids_have_their_kind_as_prefix() -> None:
    assert (format_job_id(JobId(24)), format_run_id(RunId(24))) == ("job-24", "run-24")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "24",
        "job",
        "job-",
        "job-0",
        "job-024",
        "job--1",
        "job-1.0",
        "job-٣",
        "Job-1",
        "JOB-1",
        " job-1",
        "job-1 ",
        "job-1\n",
        "job_1",
        "jobs-1",
        "job-1-2",
        "job-" + "9" * 19,
        "../job-1",
    ],
)
def test_invalid_id_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_job_id(text)
    assert refused.value.message == f"not a job id: {text!r}; a job id looks like job-24"


@pytest.mark.parametrize(("parse", "text", "kind"), [(parse_job_id, "run-1", "job"), (parse_run_id, "job-1", "run")])
def test_id_of_another_kind_is_refused(parse: Callable[[str], int], text: str, kind: str) -> None:
    with pytest.raises(InvalidInput, match=f"not a {kind} id"):
        parse(text)


def test_largest_id_fits_in_the_store() -> None:
    assert parse_job_id("job-" + "9" * 18) < 2**63
