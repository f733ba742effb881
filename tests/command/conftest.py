from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from harness import Scheduler, SqlRunner
from store.invariants import check_store


@pytest.fixture
def unlimited_scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """Scheduler without pool limits."""
    return make_scheduler(**{"global": -1, "flow__*": -1})


@pytest.fixture
def idle_scheduler(make_scheduler: Callable[..., Scheduler]) -> Scheduler:
    """Scheduler without capacity, which starts no jobs."""
    return make_scheduler(**{"global": 0})


@pytest.fixture
def store_check(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check of the store invariants after the test."""
    run_sql: SqlRunner | None = request.getfixturevalue("run_sql") if "store" in request.fixturenames else None
    yield
    if run_sql is not None:
        check_store(run_sql)
