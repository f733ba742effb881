from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from harness import Raw, Scheduler
from store.invariants import check_store


@pytest.fixture
def wide(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """One without limits."""
    return make_scheduler(**{"global": -1, "flow__*": -1})


@pytest.fixture
def closed(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """One that starts nothing."""
    return make_scheduler(**{"global": 0})


@pytest.fixture
def whole_at_the_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test did, the store is whole when it is over."""
    raw: Raw | None = request.getfixturevalue("raw") if "store" in request.fixturenames else None
    yield
    if raw is not None:
        check_store(raw)
