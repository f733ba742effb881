from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness import SqlRunner
from rota.store.port import Store
from store.harness import StoreHarness


@pytest.fixture
def harness(store: Store, run_sql: SqlRunner) -> Iterator[StoreHarness]:
    harness = StoreHarness(store, run_sql)
    yield harness
    harness.close()
