"""`tick` by hand: record the observed facts, and let this turn start the jobs of one tick."""

from __future__ import annotations

from rota.core.pacing import Tick, effective_batch_size
from rota.engine.facts import Observation, record_observation
from rota.engine.transaction import Transaction


def request_tick(tx: Transaction, observation: Observation, *, batch_size: int | None) -> None:
    """Request a tick in this turn. Requests of the same turn are one tick, with the largest batch size."""
    record_observation(tx, observation)
    limit = (
        effective_batch_size(tx.settings.batch_size, tx.settings.dispatch_interval)
        if batch_size is None
        else batch_size
    )
    earlier = tx.effects.manual_tick
    if earlier is not None:
        limit = None if limit is None or earlier.batch_size is None else max(limit, earlier.batch_size)
    tx.effects.manual_tick = Tick(batch_size=limit)
