"""Hold file with arbitrary content: the read never blocks, and the reason is printable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.control.hold_file import read_hold_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "hold"


def test_missing_file_is_no_hold(path: Path) -> None:
    assert read_hold_file(path) is None
    path.write_text("x")
    assert read_hold_file(path / "below") is None


@pytest.mark.parametrize(
    ("content", "output"),
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
def test_first_line_is_the_reason(path: Path, content: bytes, output: str) -> None:
    path.write_bytes(content)
    assert read_hold_file(path) == output


@pytest.mark.parametrize("content", [b"", b"\n", b"\nsecond line", b" \t\n", b"\x00\x01\n"])
def test_file_without_text_holds(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert read_hold_file(path) == f"the file {path} exists"


def test_fifo_and_directory_hold_without_blocking(path: Path) -> None:
    os.mkfifo(path)
    assert read_hold_file(path) == f"the file {path} exists"
    path.unlink()
    path.mkdir()
    assert read_hold_file(path) == f"the file {path} exists"


def test_unreadable_link_holds(path: Path) -> None:
    """LESSONS Dispatch: unknown is not ready."""
    path.symlink_to(path)
    assert read_hold_file(path) == f"the file {path} cannot be read: Too many levels of symbolic links"
    path.unlink()
    path.symlink_to(path.parent / "gone")
    assert read_hold_file(path) == f"the file {path} is a broken symbolic link"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission_holds(path: Path) -> None:
    path.write_text("secret")
    path.chmod(0)
    assert read_hold_file(path) == f"the file {path} cannot be read: Permission denied"
