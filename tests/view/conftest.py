from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Scheduler


@pytest.fixture
def unlimited_scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """Scheduler without limits of pools."""
    return make_scheduler(**{"global": -1, "flow__*": -1})
