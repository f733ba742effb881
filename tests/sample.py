"""Sample sizes of randomized tests.

`make test` runs a fixed sample, so that a failure comes from the change. `SOAK=20 make test` runs twenty times as many
examples, different ones each time.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SOAK = int(os.environ.get("SOAK", "0"))


def sample(examples: int) -> int:
    return examples * max(SOAK, 1)


def load_profile() -> None:
    """Disable deadlines: on a busy machine a slow example is not a failure."""
    settings.register_profile(
        "rota",
        derandomize=not SOAK,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    settings.load_profile("rota")
