"""After a failed dispatch: again in 1 s, again in 2 s, then it is enough."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.core.breaker import CIRCUIT_BROKEN, again_after


@pytest.mark.parametrize(
    ("failures", "delay"),
    [(1, timedelta(seconds=1)), (2, timedelta(seconds=2)), (3, None), (4, None), (1_000_000, None)],
)
def test_how_long_to_wait_after_so_many_failures(failures: int, delay: timedelta | None) -> None:
    assert again_after(failures) == delay


def test_the_word_that_users_see() -> None:
    assert CIRCUIT_BROKEN == "circuit-broken"
