"""Trace of a job: the W3C Trace Context headers of its request, as environment variables of its child.

Headers can contain any text, so an invalid trace is ignored. A trace that the job sets itself takes precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

TRACEPARENT = "TRACEPARENT"
TRACESTATE = "TRACESTATE"
TRACE_VARIABLES = (TRACEPARENT, TRACESTATE)
_TRACEPARENT_PATTERN = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?P<more>-[!-~]{1,200})?"
)
_TRACESTATE_PATTERN = re.compile(r"[ -~\t]*")
_MAX_TRACESTATE_LENGTH = 512
_MAX_TRACESTATE_MEMBERS = 32

Trace = Mapping[str, str]
"""Environment variables by name; empty for a job without a trace."""


def parse_trace(parents: list[str], states: list[str]) -> Trace:
    """Parse the values of all `traceparent` and `tracestate` headers of a request."""
    match = _TRACEPARENT_PATTERN.fullmatch(parents[0].strip(" \t")) if len(parents) == 1 else None
    if match is None or (match["version"] == "00" and match["more"] is not None):
        return {}
    state = _parse_tracestate(",".join(states))
    return {TRACEPARENT: match[0], TRACESTATE: state} if state else {TRACEPARENT: match[0]}


def _parse_tracestate(text: str) -> str:
    """Return as many whole members as fit, from the first: the most recent members come first."""
    if not _TRACESTATE_PATTERN.fullmatch(text):
        return ""
    members = [member for item in text.split(",") if (member := item.strip(" \t"))][:_MAX_TRACESTATE_MEMBERS]
    while members and len(",".join(members)) > _MAX_TRACESTATE_LENGTH:
        members.pop()
    return ",".join(members)


def split_trace(variables: Mapping[str, str]) -> tuple[Mapping[str, str], Trace]:
    """Split an environment into its variables and its trace. Environments are stored once for each distinct content,
    and traces differ for each job."""
    own = {name: variables[name] for name in TRACE_VARIABLES if name in variables}
    return ({name: value for name, value in variables.items() if name not in own} if own else variables), own


def merge_traces(own: Trace, requested: Trace) -> Trace:
    """Merge traces; the job's own trace takes precedence over the trace of its request."""
    return own if TRACEPARENT in own else {**requested, **own}
