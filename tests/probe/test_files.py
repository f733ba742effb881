"""Existence of files on disk, and files that cannot be read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rota.kernel.facts import UNREADABLE, Fact, FactValue, FileExists
from rota.probe.local import LocalProbe


def test_existence_of_files_links_and_invalid_paths(probe: LocalProbe, tmp_path: Path) -> None:
    file = tmp_path / "größe"
    file.write_text("")
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    expected: dict[str, FactValue] = {"größe": True, "": True, "link": True, "dangling": False, "gone": False}
    expected |= {"größe/below": False, "a\0b": False, "\ud800": False}
    expected |= {"ring": UNREADABLE, "ring/below": UNREADABLE, "x" * 5000: UNREADABLE}
    facts: dict[Fact, FactValue] = {FileExists(f"{tmp_path}/{name}"): value for name, value in expected.items()}
    assert probe.observe(list(facts)) == facts
    file.unlink()
    assert probe.observe([FileExists(str(file)), FileExists(f"{tmp_path}/link")]) == {
        FileExists(str(file)): False,
        FileExists(f"{tmp_path}/link"): False,
    }


def test_unreadable_file_is_logged_once(probe: LocalProbe, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ring = tmp_path / "ring"
    ring.symlink_to(ring)
    caplog.set_level("INFO")
    for _ in range(3):
        assert probe.observe([FileExists(str(ring)), FileExists(f"{tmp_path}/gone")]) == {
            FileExists(str(ring)): UNREADABLE,
            FileExists(f"{tmp_path}/gone"): False,
        }
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"file {str(ring)!r} cannot be read" in caplog.text
    assert "symbolic links" in caplog.text
    ring.unlink()
    ring.write_text("")
    assert probe.observe([FileExists(str(ring))]) == {FileExists(str(ring)): True}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_failure_ends_when_the_file_is_gone(
    probe: LocalProbe, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ring = tmp_path / "ring"
    ring.symlink_to(ring)
    assert probe.observe([FileExists(str(ring))]) == {FileExists(str(ring)): UNREADABLE}
    ring.unlink()
    assert probe.observe([FileExists(str(ring))]) == {FileExists(str(ring)): False}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
def test_file_with_stat_error_is_unreadable(
    probe: LocalProbe, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, gone = (FileExists(f"{tmp_path}/{name}") for name in ("good", "bad", "gone"))
    Path(good.path).write_text("")
    Path(bad.path).write_text("")
    real_stat = os.stat

    def stat(path: str) -> os.stat_result:
        if path == bad.path:
            raise OSError(number, os.strerror(number), path)
        return real_stat(path)

    with monkeypatch.context() as patch:
        patch.setattr("rota.probe.local.os.stat", stat)
        assert probe.observe([bad, good, gone]) == {bad: UNREADABLE, good: True, gone: False}
    assert probe.observe([bad]) == {bad: True}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_in_folder_without_search_permission_is_unreadable(probe: LocalProbe, tmp_path: Path) -> None:
    file = tmp_path / "folder/file"
    file.parent.mkdir()
    file.write_text("")
    file.parent.chmod(0)
    observed = probe.observe([FileExists(str(file)), FileExists(str(file.parent))])
    file.parent.chmod(0o700)
    assert observed == {FileExists(str(file)): UNREADABLE, FileExists(str(file.parent)): True}


def test_no_facts_give_an_empty_result(probe: LocalProbe) -> None:
    assert probe.observe([]) == {}
