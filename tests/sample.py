"""How much of what chance can bring is tried.

`make test` tries a sample, the same every time, so that what fails has to do with the change. `SOAK=20 make test` tries
twenty times as much, and other examples every time.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SOAK = int(os.environ.get("SOAK", "0"))


def sample(examples: int) -> int:
    return examples * max(SOAK, 1)


def load_profile() -> None:
    """Nothing is timed: on a busy machine no example counts as failed for being slow."""
    settings.register_profile(
        "rota",
        derandomize=not SOAK,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    settings.load_profile("rota")
