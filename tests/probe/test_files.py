from __future__ import annotations

from pathlib import Path

import pytest

from rota.core.fact import File
from rota.probe.local import LocalProbe


def test_files(probe: LocalProbe, tmp_path: Path) -> None:
    file = tmp_path / "größe"
    file.write_text("")
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    expected = {"größe": True, "": True, "link": True, "dangling": False, "ring": False, "gone": False}
    expected |= {"größe/below": False, "x" * 5000: False, "a\0b": False, "\ud800": False}
    facts = {File(f"{tmp_path}/{name}"): is_there for name, is_there in expected.items()}
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
        assert probe.look([File(str(ring)), File(f"{tmp_path}/gone")])[File(str(ring))] is False
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(ring) in caplog.text
    assert "symbolic links" in caplog.text
    ring.unlink()
    ring.write_text("")
    assert probe.look([File(str(ring))]) == {File(str(ring)): True}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_nothing_asked_nothing_seen(probe: LocalProbe) -> None:
    assert probe.look([]) == {}
