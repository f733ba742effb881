"""The hold file is anybody's: whatever it is, nothing is waited for and nothing odd is shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.probe.hold import look_for_hold


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hold"


def test_no_file_holds_nothing(path: Path) -> None:
    assert look_for_hold(path) is None
    path.write_text("x")
    assert look_for_hold(path / "below") is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"until noon", "until noon"),
        (b"  until noon \r\nand more\n", "until noon"),
        (b"\xef\xbb\xbfbom\tand tab", "bom and tab"),
        (b"\x1b[31mred\x07\x00\xe2\x80\xae", "[31mred"),
        (b"caf\xc3\xa9 \xff", "café \N{REPLACEMENT CHARACTER}"),
        (b"y" * 10_000, "y" * 200),
        ("é".encode() * 1000, "é" * 200),
    ],
)
def test_its_first_line_is_the_reason(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    assert look_for_hold(path) == said


@pytest.mark.parametrize("content", [b"", b"\n", b"\nsecond line", b" \t\n", b"\x00\x01\n"])
def test_one_that_says_nothing_holds_all_the_same(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert look_for_hold(path) == f"the file {path} exists"


def test_what_is_no_file_is_there_all_the_same_and_nobody_waits_for_it(path: Path) -> None:
    os.mkfifo(path)
    assert look_for_hold(path) == f"the file {path} exists"
    path.unlink()
    path.mkdir()
    assert look_for_hold(path) == f"the file {path} exists"


def test_what_cannot_be_read_counts_as_being_there(path: Path) -> None:
    """LESSONS Dispatch: unknown is not ready."""
    path.symlink_to(path)
    assert look_for_hold(path) == f"the file {path} cannot be read: Too many levels of symbolic links"
    path.unlink()
    path.symlink_to(path.parent / "gone")
    assert look_for_hold(path) == f"the file {path} is a link to nothing"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_counts_as_being_there(path: Path) -> None:
    path.write_text("secret")
    path.chmod(0)
    assert look_for_hold(path) == f"the file {path} cannot be read: Permission denied"
