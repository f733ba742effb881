"""A kept file is never older than the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.probe import kept
from rota.probe.kept import KeptFile


def replace(path: Path, content: bytes) -> None:
    lock = path.with_suffix(".lock")
    lock.write_bytes(content)
    lock.rename(path)


def test_an_old_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_SETTLED", -1)
    path = tmp_path / "file"
    replace(path, b"one")
    parsed: list[bytes] = []
    file = KeptFile(str(path), lambda data: parsed.append(data) or data)  # type: ignore[func-returns-value]
    assert [file.value(), file.value(), file.value()] == [b"one"] * 3
    assert parsed == [b"", b"one"]


def test_a_replaced_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_SETTLED", -1)
    path = tmp_path / "file"
    replace(path, b"one")
    file = KeptFile(str(path), bytes)
    assert file.value() == b"one"
    before = path.stat()
    replace(path, b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.value() == b"two"
    path.unlink()
    assert file.value() == b""
    replace(path, b"two")
    assert file.value() == b"two"


def test_a_young_file_is_not_trusted_to_show_that_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two replacements within one tick of the file system's clock can look the same."""
    monkeypatch.setattr(kept, "_stamp", lambda _: (0,))
    path = tmp_path / "file"
    replace(path, b"one")
    file = KeptFile(str(path), bytes)
    assert file.value() == b"one"
    replace(path, b"two")
    assert file.value() == b"two"
