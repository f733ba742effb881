"""Breakers as people and programs see them."""

from __future__ import annotations

from datetime import datetime

from rota.core.breaker import CLOSED, Closed, Open, Probed, State
from rota.ids import show_job
from rota.store.session import Reader
from rota.view.job import Sight
from rota.wire.breaker import BreakerForm


def breakers(reader: Reader, sight: Sight) -> list[BreakerForm]:
    """Those that are not closed, and closed ones whose failures count."""
    failures = reader.recent_failures(sight.now - sight.breaker.window)
    records = {record.key: record for record in reader.breakers()}
    return [
        _form(
            key,
            records[key].state if key in records else CLOSED,
            failures=failures.get(key, 0),
            opened_at=records[key].opened_at if key in records else None,
        )
        for key in sorted({*records, *failures})
    ]


def tripped(reader: Reader, sight: Sight) -> list[BreakerForm]:
    """Those that are not closed."""
    return [form for form in breakers(reader, sight) if form.state != "closed"]


def _form(key: str, state: State, *, failures: int, opened_at: datetime | None) -> BreakerForm:
    return BreakerForm(
        key=key,
        state="closed" if isinstance(state, Closed) else "open" if isinstance(state, Open) else "half-open",
        failures=failures,
        opened_at=opened_at,
        until=state.until if isinstance(state, Open) else None,
        probe=show_job(state.by) if isinstance(state, Probed) else None,
    )
