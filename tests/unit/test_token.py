"""The token's file: for its owner alone, whole or not there, and what is not like that is refused."""

from __future__ import annotations

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rota import token
from rota.errors import HomeError
from rota.token import Token


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "token"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_it_is_made_for_its_owner_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        token.ensure(path)
    finally:
        os.umask(before)
    assert mode(path) == 0o600
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token.read(path)), "32 bytes of chance"
    assert [each.name for each in path.parent.iterdir()] == ["token"]


def test_what_is_there_stays(path: Path) -> None:
    token.ensure(path)
    before = token.read(path)
    token.ensure(path)
    assert token.read(path) == before
    path.write_text("a-token-of-my-own-choosing\n")
    token.ensure(path)
    assert token.read(path) == "a-token-of-my-own-choosing"


def test_many_who_make_it_at_once_have_the_same(path: Path) -> None:
    def make(_: int) -> str:
        token.ensure(path)
        return token.read(path)

    with ThreadPoolExecutor(16) as threads:
        assert len(set(threads.map(make, range(64)))) == 1
    assert [each.name for each in path.parent.iterdir()] == ["token"]


def test_who_reads_while_it_is_replaced_has_a_whole_one(path: Path) -> None:
    token.ensure(path)
    with ThreadPoolExecutor(4) as threads:
        turning = [threads.submit(token.rotate, path) for _ in range(50)]
        seen = [token.read(path) for _ in range(200)]
        for each in turning:
            each.result()
    assert {len(each) for each in seen} == {43}
    assert mode(path) == 0o600


def test_what_a_killed_one_left_is_no_hindrance(path: Path) -> None:
    path.with_name(".token.new").write_text("half a tok")
    token.ensure(path)
    assert len(token.read(path)) == 43
    assert not path.with_name(".token.new").exists()


def test_rotation_puts_right_what_is_wrong(path: Path) -> None:
    path.write_text("a-token-that-others-can-read\n")
    path.chmod(0o644)
    token.rotate(path)
    assert mode(path) == 0o600
    assert token.read(path) != "a-token-that-others-can-read"


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o602, 0o610, 0o666])
def test_a_file_that_others_may_touch_is_refused(path: Path, bits: int) -> None:
    token.ensure(path)
    path.chmod(bits)
    said = f"others can read {path}: its mode is {bits:04o}, not 0600; `rota token --rotate` makes a new one"
    with pytest.raises(HomeError, match=re.escape(said)):
        token.read(path)


@pytest.mark.parametrize(
    "text", ["", "\n", "   \n", "short", "two words of some length", "ü" * 20, "x" * 15, "a\x00b" * 9]
)
def test_what_is_no_token_is_refused(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(HomeError, match="has no token of 16 or more characters in it"):
        token.read(path)


def test_what_is_no_file_of_ones_own_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="is not there; `rota token` makes it"):
        token.read(path)
    secret = tmp_path / "elsewhere"
    token.ensure(secret)
    path.symlink_to(secret)
    with pytest.raises(HomeError, match="cannot be read: Too many levels of symbolic links"):
        token.read(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(HomeError, match="is not a plain file"):
        token.read(path)


def test_somebody_elses_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token.ensure(path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(HomeError, match="belongs to another user"):
        token.read(path)


def test_a_change_is_seen_at_the_next_look(path: Path) -> None:
    held = Token(path)
    assert not held.look()
    assert held.trouble == f"{path} is not there; `rota token` makes it"
    assert not held.is_right(b"")
    token.ensure(path)
    assert held.look()
    first = token.read(path).encode()
    assert (held.is_right(first), held.is_right(first + b"x"), held.is_right(first[:-1])) == (True, False, False)
    assert not held.look(), "nothing has changed"
    token.rotate(path)
    assert held.look()
    assert (held.is_right(first), held.is_right(token.read(path).encode())) == (False, True)
    path.chmod(0o644)
    assert held.look()
    assert not held.is_right(path.read_bytes().strip())
    assert str(held.trouble).startswith("others can read")
    path.chmod(0o600)
    assert held.look()
    assert held.is_right(path.read_bytes().strip())
    assert [held.trouble] == [None]
