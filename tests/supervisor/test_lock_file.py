"""Lock file of the supervisor: detection of a recreated home, and the file that was removed."""

from __future__ import annotations

import os
from pathlib import Path

from rota.supervisor.main import is_same_file, try_lock


def test_recreated_lock_file_is_another_lock(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.lock"
    with path.open("w") as lock:
        assert is_same_file(str(path), lock.fileno())
        path.unlink()
        assert not is_same_file(str(path), lock.fileno())
        path.touch()
        assert not is_same_file(str(path), lock.fileno())


def test_removed_lock_file_is_locked_again_by_one_process_only(tmp_path: Path) -> None:
    file = tmp_path / "supervisor.lock"
    path = str(file)
    lock = try_lock(path)
    assert lock is not None
    assert try_lock(path) is None
    file.unlink()
    again = try_lock(path)
    assert again is not None
    assert try_lock(path) is None
    for descriptor in (lock, again):
        os.close(descriptor)
