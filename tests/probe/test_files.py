from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rota.core.fact import UNREADABLE, Fact, File, Seen
from rota.probe.local import LocalProbe


def test_files(probe: LocalProbe, tmp_path: Path) -> None:
    file = tmp_path / "größe"
    file.write_text("")
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    expected: dict[str, Seen] = {"größe": True, "": True, "link": True, "dangling": False, "gone": False}
    expected |= {"größe/below": False, "a\0b": False, "\ud800": False}
    expected |= {"ring": UNREADABLE, "ring/below": UNREADABLE, "x" * 5000: UNREADABLE}
    facts: dict[Fact, Seen] = {File(f"{tmp_path}/{name}"): seen for name, seen in expected.items()}
    assert probe.look(list(facts)) == facts
    file.unlink()
    assert probe.look([File(str(file)), File(f"{tmp_path}/link")]) == {
        File(str(file)): False,
        File(f"{tmp_path}/link"): False,
    }


def test_a_file_that_cannot_be_looked_at_is_told_once(
    probe: LocalProbe, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ring = tmp_path / "ring"
    ring.symlink_to(ring)
    caplog.set_level("INFO")
    for _ in range(3):
        assert probe.look([File(str(ring)), File(f"{tmp_path}/gone")]) == {
            File(str(ring)): UNREADABLE,
            File(f"{tmp_path}/gone"): False,
        }
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"file {str(ring)!r} cannot be read" in caplog.text
    assert "symbolic links" in caplog.text
    ring.unlink()
    ring.write_text("")
    assert probe.look([File(str(ring))]) == {File(str(ring)): True}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_trouble_that_ends_with_nothing_there(
    probe: LocalProbe, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    ring = tmp_path / "ring"
    ring.symlink_to(ring)
    assert probe.look([File(str(ring))]) == {File(str(ring)): UNREADABLE}
    ring.unlink()
    assert probe.look([File(str(ring))]) == {File(str(ring)): False}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
def test_a_file_behind_trouble_is_neither_there_nor_gone(
    probe: LocalProbe, tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, gone = (File(f"{tmp_path}/{name}") for name in ("good", "bad", "gone"))
    Path(good.path).write_text("")
    Path(bad.path).write_text("")
    real = os.stat

    def stat(path: str) -> os.stat_result:
        if path == bad.path:
            raise OSError(number, os.strerror(number), path)
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr("rota.probe.files.os.stat", stat)
        assert probe.look([bad, good, gone]) == {bad: UNREADABLE, good: True, gone: False}
    assert probe.look([bad]) == {bad: True}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_in_a_folder_that_may_not_be_searched(probe: LocalProbe, tmp_path: Path) -> None:
    file = tmp_path / "folder/file"
    file.parent.mkdir()
    file.write_text("")
    file.parent.chmod(0)
    seen = probe.look([File(str(file)), File(str(file.parent))])
    file.parent.chmod(0o700)
    assert seen == {File(str(file)): UNREADABLE, File(str(file.parent)): True}


def test_nothing_asked_nothing_seen(probe: LocalProbe) -> None:
    assert probe.look([]) == {}
