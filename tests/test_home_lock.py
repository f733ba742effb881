"""Lock of a home whose lock file is removed while a process holds it."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from rota import home as home_module
from rota.errors import Conflict
from rota.home import Home, acquire_home_lock, is_held


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Home that a scheduler has used."""
    home = Home(tmp_path / "home")
    home.prepare()
    home.jobs.mkdir()
    home.lock.touch()
    return home


def test_removed_lock_file_is_noticed_and_locked_again(home: Home) -> None:
    with acquire_home_lock(home) as lock:
        assert (lock.is_current, lock.is_home_gone) == (True, False)
        pid = home.lock.read_text()
        home.lock.unlink()
        assert (lock.is_current, lock.is_home_gone) == (False, False)
        lock.restore()
        assert (lock.is_current, lock.is_home_gone) == (True, False)
        assert is_held(home.lock)
        assert home.lock.read_text() == pid
        home.lock.unlink()
        home.lock.touch()
        assert (lock.is_current, lock.is_home_gone) == (False, False)
        lock.restore()
        assert (lock.is_current, lock.is_home_gone) == (True, False)
    assert not is_held(home.lock)


def test_lock_is_not_restored_while_another_process_holds_it(home: Home) -> None:
    with acquire_home_lock(home) as lock:
        home.lock.unlink()
        home.lock.touch()
        with acquire_home_lock(home), pytest.raises(Conflict):
            lock.restore()


def test_recreated_home_is_another_home(home: Home) -> None:
    with acquire_home_lock(home) as lock:
        shutil.rmtree(home.root)
        assert (lock.is_current, lock.is_home_gone) == (False, True)
        home.prepare()
        home.lock.touch()
        assert (lock.is_current, lock.is_home_gone) == (False, True)


def test_starter_waits_for_a_scheduler_that_puts_its_lock_back(home: Home) -> None:
    with acquire_home_lock(home) as lock:
        home.lock.unlink()
        timer = threading.Timer(0.1, lock.restore)
        timer.start()
        with pytest.raises(Conflict), acquire_home_lock(home):
            pass
        timer.join()


def test_starter_takes_a_removed_lock_that_no_process_puts_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home_module, "LOCK_RESTORE_TIMEOUT", 0.05)
    home.lock.unlink()
    with acquire_home_lock(home) as lock:
        assert lock.is_current
