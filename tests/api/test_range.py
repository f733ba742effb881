"""What a `Range` asks for."""

from __future__ import annotations

import pytest

from rota.api.log import Part, _ranged


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("bytes=2-4", Part(2, 3)),
        ("bytes=2-", Part(2, 8)),
        ("bytes=-3", Part(7, 3)),
        ("bytes=99-", Part(99, 0)),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("BYTES=0-1", Part(0, 2)),
        ("bytes=0-99999999999999999999", Part(0, 10)),
        ("bytes=" + "0" * 5000 + "2-4", Part(2, 3)),
        ("bytes=" + "9" * 5000 + "-", Part(2**62, 0)),
        ("bytes=-" + "9" * 5000, Part(0, 10)),
        ("bytes=\u0663-", None),
        (None, None),
    ],
)
def test_a_part_of_ten_bytes(header: str | None, part: Part | None) -> None:
    assert _ranged(header, 10) == part
