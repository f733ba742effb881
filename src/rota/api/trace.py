"""The trace of the request that is being answered (W3C Trace Context), for the jobs that it makes.

It is kept beside the handlers and not handed through them, so that however a request comes to make a job, the job
belongs to its trace. What the scheduler does by itself belongs to none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from starlette.types import Scope

from rota.core.trace import Trace, trace_of

_NONE: Trace = {}
_current: ContextVar[Trace] = ContextVar("rota_trace", default=_NONE)


def current_trace() -> Trace:
    return _current.get()


@contextmanager
def traced(scope: Scope) -> Iterator[None]:
    token = _current.set(_trace_in(scope["headers"]))
    try:
        yield
    finally:
        _current.reset(token)


def _trace_in(headers: list[tuple[bytes, bytes]]) -> Trace:
    parents = [value.decode("latin-1") for name, value in headers if name == b"traceparent"]
    if not parents:
        return _NONE
    return trace_of(parents, [value.decode("latin-1") for name, value in headers if name == b"tracestate"])
