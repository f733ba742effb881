from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from harness import Raw, Scheduler
from store.invariants import check_store


@pytest.fixture(autouse=True)
def _whole_at_the_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test did to its scheduler, the store is whole when it is over."""
    raw: Raw | None = request.getfixturevalue("raw") if "store" in request.fixturenames else None
    yield
    if raw is not None:
        check_store(raw)


@pytest.fixture
def wide(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """One without limits."""
    return make_scheduler(**{"global": -1, "flow__*": -1})
