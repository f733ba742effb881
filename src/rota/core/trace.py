"""The trace that a job belongs to: what W3C Trace Context says in headers, as variables of the child's environment.

A header can be anybody's text, so one that is not a trace is ignored. What a job sets itself is the job's own business
and goes before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PARENT = "TRACEPARENT"
STATE = "TRACESTATE"
NAMES = (PARENT, STATE)

Trace = Mapping[str, str]
"""The variables, by name; empty for a job that belongs to none."""

_PARENT = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[!-~]{1,200})?"
)
_STATE = re.compile(r"[ -~\t]*")
_LONGEST_STATE = 512
_MOST_MEMBERS = 32


def trace_of(parents: list[str], states: list[str]) -> Trace:
    """Of the headers `traceparent` and `tracestate`, however often each came."""
    found = _PARENT.fullmatch(parents[0].strip(" \t")) if len(parents) == 1 else None
    if found is None or (found["version"] == "00" and found["more"] is not None):
        return {}
    state = _state_of(",".join(states))
    return {PARENT: found[0], STATE: state} if state else {PARENT: found[0]}


def _state_of(text: str) -> str:
    """Whole members from the first on, as many as there is room for: the youngest come first."""
    if not _STATE.fullmatch(text):
        return ""
    members = [member for each in text.split(",") if (member := each.strip(" \t"))][:_MOST_MEMBERS]
    while members and len(",".join(members)) > _LONGEST_STATE:
        members.pop()
    return ",".join(members)


def taken_out(variables: Mapping[str, str]) -> tuple[Mapping[str, str], Trace]:
    """An environment without its trace, and the trace: environments are stored once for each distinct content, and a
    trace is another for each job."""
    own = {name: variables[name] for name in NAMES if name in variables}
    return ({name: value for name, value in variables.items() if name not in own} if own else variables), own


def joined(own: Trace, asked: Trace) -> Trace:
    """What the job says of its trace before what its request said."""
    return own if PARENT in own else {**asked, **own}
