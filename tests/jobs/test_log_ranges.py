"""Ranges that a `Range` header requests."""

from __future__ import annotations

import pytest

from rota.jobs.log_endpoints import ByteRange, _parse_range


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=2-4", ByteRange(2, 3)),
        ("bytes=2-", ByteRange(2, 8)),
        ("bytes=-3", ByteRange(7, 3)),
        ("bytes=99-", ByteRange(99, 0)),
        ("bytes=-", None),
        ("bytes=0-1,3-4", None),
        ("BYTES=0-1", ByteRange(0, 2)),
        ("bytes=0-99999999999999999999", ByteRange(0, 10)),
        ("bytes=" + "0" * 5000 + "2-4", ByteRange(2, 3)),
        ("bytes=" + "9" * 5000 + "-", ByteRange(2**62, 0)),
        ("bytes=-" + "9" * 5000, ByteRange(0, 10)),
        ("bytes=\u0663-", None),
        (None, None),
    ],
)
def test_ranges_of_a_ten_byte_log(header: str | None, expected: ByteRange | None) -> None:
    assert _parse_range(header, 10) == expected
