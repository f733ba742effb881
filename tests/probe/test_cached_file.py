"""Cached file content is never older than the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.probe import refs
from rota.probe.refs import CachedFile


def replace(path: Path, content: bytes) -> None:
    lock = path.with_suffix(".lock")
    lock.write_bytes(content)
    lock.rename(path)


def test_stable_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refs, "_MIN_STABLE_AGE", -1)
    path = tmp_path / "file"
    replace(path, b"one")
    parsed: list[bytes] = []
    file = CachedFile(str(path), lambda data: parsed.append(data) or data)  # type: ignore[func-returns-value]
    assert [file.read(), file.read(), file.read()] == [b"one"] * 3
    assert parsed == [b"", b"one"]


def test_replaced_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refs, "_MIN_STABLE_AGE", -1)
    path = tmp_path / "file"
    replace(path, b"one")
    file = CachedFile(str(path), bytes)
    assert file.read() == b"one"
    before = path.stat()
    replace(path, b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.read() == b"two"
    path.unlink()
    assert file.read() == b""
    replace(path, b"two")
    assert file.read() == b"two"


def test_recent_file_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two replacements within one tick of the file system clock can have the same timestamps."""
    monkeypatch.setattr(refs, "_stamp", lambda _: (0,))
    path = tmp_path / "file"
    replace(path, b"one")
    file = CachedFile(str(path), bytes)
    assert file.read() == b"one"
    replace(path, b"two")
    assert file.read() == b"two"
