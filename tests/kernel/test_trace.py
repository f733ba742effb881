"""Traces of jobs: parsing of request headers, and precedence of a job's own trace."""

from __future__ import annotations

import pytest

from rota.kernel.trace import merge_traces, parse_trace, split_trace

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "text", [PARENT, f"00-{TRACE}-{SPAN}-00", f"cc-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-comes-later"]
)
def test_valid_traceparent_is_kept_verbatim(text: str) -> None:
    assert parse_trace([text], []) == {"TRACEPARENT": text}
    assert parse_trace([f" {text}\t"], []) == {"TRACEPARENT": text}


@pytest.mark.parametrize(
    "parents",
    [
        [],
        [""],
        ["hello"],
        [PARENT.upper()],
        [f"ff-{TRACE}-{SPAN}-01"],
        [f"00-{'0' * 32}-{SPAN}-01"],
        [f"00-{TRACE}-{'0' * 16}-01"],
        [f"00-{TRACE}-{SPAN}"],
        [f"00-{TRACE}-{SPAN}-1"],
        [f"00-{TRACE[:-1]}-{SPAN}-01"],
        [f"00-{TRACE}-{SPAN}-01-more"],
        [f"00-{TRACE}-{SPAN}-01\n"],
        [f"0g-{TRACE}-{SPAN}-01"],
        [f"cc-{TRACE}-{SPAN}-01-{'x' * 201}"],
        [f"cc-{TRACE}-{SPAN}-01.more"],
        [PARENT, PARENT],
    ],
)
def test_invalid_traceparent_is_ignored(parents: list[str]) -> None:
    assert parse_trace(parents, ["a=1"]) == {}


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["a=1"], "a=1"),
        (["a=1, b=2", "c=3"], "a=1,b=2,c=3"),
        (["a=1,,\t,b=2"], "a=1,b=2"),
        (["", " "], None),
        (["a=\x01"], None),
        (["a=ä"], None),
        ([",".join(f"k{n}=1" for n in range(40))], ",".join(f"k{n}=1" for n in range(32))),
        (["a=1", "b=" + "x" * 506], "a=1,b=" + "x" * 506),
        (["a=1", "b=" + "x" * 507, "c=3"], "a=1"),
    ],
)
def test_tracestate_is_truncated_by_whole_members(states: list[str], state: str | None) -> None:
    assert parse_trace([PARENT], states).get("TRACESTATE") == state


def test_job_trace_takes_precedence_over_request_trace() -> None:
    request_trace = parse_trace([PARENT], ["a=1"])
    assert merge_traces({}, request_trace) == {"TRACEPARENT": PARENT, "TRACESTATE": "a=1"}
    assert merge_traces({"TRACEPARENT": "own"}, request_trace) == {"TRACEPARENT": "own"}, (
        "the state of another trace is not merged"
    )
    assert merge_traces({"TRACESTATE": "b=2"}, request_trace) == {"TRACEPARENT": PARENT, "TRACESTATE": "b=2"}


def test_split_trace_removes_trace_from_environment() -> None:
    assert split_trace({"A": "1", "TRACEPARENT": "p", "TRACESTATE": "s"}) == (
        {"A": "1"},
        {"TRACEPARENT": "p", "TRACESTATE": "s"},
    )
    assert split_trace({"A": "1"}) == ({"A": "1"}, {})
