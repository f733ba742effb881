from __future__ import annotations

import pytest

from rota.core.trace import joined, taken_out, trace_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "text", [PARENT, f"00-{TRACE}-{SPAN}-00", f"cc-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-comes-later"]
)
def test_a_trace_is_passed_on_as_it_is(text: str) -> None:
    assert trace_of([text], []) == {"TRACEPARENT": text}
    assert trace_of([f" {text}\t"], []) == {"TRACEPARENT": text}


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
def test_what_is_no_trace_is_ignored(parents: list[str]) -> None:
    assert trace_of(parents, ["a=1"]) == {}


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
def test_its_state_is_cut_by_whole_members(states: list[str], state: str | None) -> None:
    assert trace_of([PARENT], states).get("TRACESTATE") == state


def test_what_a_job_says_of_its_trace_goes_before_what_its_request_said() -> None:
    asked = trace_of([PARENT], ["a=1"])
    assert joined({}, asked) == {"TRACEPARENT": PARENT, "TRACESTATE": "a=1"}
    assert joined({"TRACEPARENT": "own"}, asked) == {"TRACEPARENT": "own"}, "another trace's state is not mixed in"
    assert joined({"TRACESTATE": "b=2"}, asked) == {"TRACEPARENT": PARENT, "TRACESTATE": "b=2"}


def test_a_trace_is_taken_out_of_an_environment() -> None:
    assert taken_out({"A": "1", "TRACEPARENT": "p", "TRACESTATE": "s"}) == (
        {"A": "1"},
        {"TRACEPARENT": "p", "TRACESTATE": "s"},
    )
    assert taken_out({"A": "1"}) == ({"A": "1"}, {})
