"""Trace of the current request (W3C Trace Context), for the jobs that it creates.

The trace is a context variable, not a parameter: a job belongs to the trace of its request, however the request creates
it. Jobs that the scheduler creates by itself have no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar, Token

from rota.kernel.trace import Trace, parse_trace

_NO_TRACE: Trace = {}
_current: ContextVar[Trace] = ContextVar("rota_trace", default=_NO_TRACE)


def current_trace() -> Trace:
    return _current.get()


class TraceScope:
    """Context manager in which the trace of the headers is current. It is a class because every request uses it, and a
    generator would be slower."""

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._headers = headers
        self._reset_token: Token[Trace] | None = None

    def __enter__(self) -> None:
        self._reset_token = _current.set(_parse_trace(self._headers))

    def __exit__(self, *_: object) -> None:
        if self._reset_token is not None:
            _current.reset(self._reset_token)


def _parse_trace(headers: Sequence[tuple[bytes, bytes]]) -> Trace:
    parents = [value.decode("latin-1") for name, value in headers if name == b"traceparent"]
    if not parents:
        return _NO_TRACE
    return parse_trace(parents, [value.decode("latin-1") for name, value in headers if name == b"tracestate"])
