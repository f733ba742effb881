from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Scheduler


@pytest.fixture
def wide(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """One without limits."""
    return make_scheduler(**{"global": -1, "flow__*": -1})
