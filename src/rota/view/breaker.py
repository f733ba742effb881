"""Breakers as the API shows them."""

from __future__ import annotations

from datetime import datetime

from rota.core.breaker import CLOSED, BreakerState, ClosedState, OpenState, ProbingState
from rota.ids import format_job_id
from rota.store.session import Reader
from rota.view.job import ViewContext
from rota.wire.breaker import BreakerView


def read_breakers(reader: Reader, context: ViewContext) -> list[BreakerView]:
    """Return the breakers that are not closed, and closed breakers with recent failures."""
    failures = reader.breakers.recent_failures(context.now - context.breaker_policy.window)
    records = {record.key: record for record in reader.breakers.list_all()}
    return [
        _render_breaker(
            key,
            records[key].state if key in records else CLOSED,
            failures=failures.get(key, 0),
            opened_at=records[key].opened_at if key in records else None,
        )
        for key in sorted({*records, *failures})
    ]


def read_tripped_breakers(reader: Reader, context: ViewContext) -> list[BreakerView]:
    """Return the breakers that are not closed."""
    return [breaker for breaker in read_breakers(reader, context) if breaker.state != "closed"]


def _render_breaker(key: str, state: BreakerState, *, failures: int, opened_at: datetime | None) -> BreakerView:
    return BreakerView(
        key=key,
        state="closed" if isinstance(state, ClosedState) else "open" if isinstance(state, OpenState) else "half-open",
        failures=failures,
        opened_at=opened_at,
        probe_at=state.until if isinstance(state, OpenState) else None,
        probe_job=format_job_id(state.job) if isinstance(state, ProbingState) else None,
    )
