"""Whose home it is, to a supervisor that would make its socket anew."""

from __future__ import annotations

from pathlib import Path

from rota.executor.supervisor.main import is_held_at


def test_a_home_that_was_made_anew_is_anothers(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.lock"
    with path.open("w") as lock:
        assert is_held_at(str(path), lock.fileno())
        path.unlink()
        assert not is_held_at(str(path), lock.fileno())
        path.touch()
        assert not is_held_at(str(path), lock.fileno())
