from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness import Raw
from rota.store.port import Store
from store.desk import Desk


@pytest.fixture
def desk(store: Store, raw: Raw) -> Iterator[Desk]:
    desk = Desk(store, raw)
    yield desk
    desk.close()
