"""`tick` by hand: take up what was seen outside, and let this turn start what one tick may."""

from __future__ import annotations

from rota.core.pace import Tick, batch_of
from rota.engine.outside import Sighting, observe
from rota.engine.work import Work


def tick(work: Work, sighting: Sighting, *, batch: int | None) -> None:
    """Those that come together are one tick: the largest batch counts."""
    observe(work, sighting)
    most = batch_of(work.settings.batch_size, work.settings.heartbeat) if batch is None else batch
    if work.tick is not None:
        most = None if most is None or work.tick.batch is None else max(most, work.tick.batch)
    work.tick = Tick(batch=most)
