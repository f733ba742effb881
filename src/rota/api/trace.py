"""The trace of the request that is being answered (W3C Trace Context), for the jobs that it makes.

It is kept beside the handlers and not handed through them, so that however a request comes to make a job, the job
belongs to its trace. What the scheduler does by itself belongs to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar, Token

from rota.core.trace import Trace, trace_of

_NONE: Trace = {}
_current: ContextVar[Trace] = ContextVar("rota_trace", default=_NONE)


def current_trace() -> Trace:
    return _current.get()


class traced:  # noqa: N801 - used as a word: with traced(…)
    """`with traced(headers): …` What is done there belongs to the trace that they name. A class for the
    sake of speed: every request passes here."""

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._headers = headers
        self._before: Token[Trace] | None = None

    def __enter__(self) -> None:
        self._before = _current.set(_trace_in(self._headers))

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            _current.reset(self._before)


def _trace_in(headers: Sequence[tuple[bytes, bytes]]) -> Trace:
    parents = [value.decode("latin-1") for name, value in headers if name == b"traceparent"]
    if not parents:
        return _NONE
    return trace_of(parents, [value.decode("latin-1") for name, value in headers if name == b"tracestate"])
