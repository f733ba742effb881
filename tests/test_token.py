"""Token file: private, created atomically, and refused if other users can access it."""

from __future__ import annotations

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rota import token
from rota.errors import HomeError
from rota.token import TokenFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "token"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_token_file_is_private_with_any_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        token.ensure(path)
    finally:
        os.umask(before)
    assert mode(path) == 0o600
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token.read(path)), "32 random bytes"
    assert [file.name for file in path.parent.iterdir()] == ["token"]


def test_existing_token_is_kept(path: Path) -> None:
    token.ensure(path)
    before = token.read(path)
    token.ensure(path)
    assert token.read(path) == before
    path.write_text("a-token-of-my-own-choosing\n")
    token.ensure(path)
    assert token.read(path) == "a-token-of-my-own-choosing"


def test_concurrent_creators_get_the_same_token(path: Path) -> None:
    def ensure_and_read(_: int) -> str:
        token.ensure(path)
        return token.read(path)

    with ThreadPoolExecutor(16) as threads:
        assert len(set(threads.map(ensure_and_read, range(64)))) == 1
    assert [file.name for file in path.parent.iterdir()] == ["token"]


def test_token_is_complete_during_rotation(path: Path) -> None:
    token.ensure(path)
    with ThreadPoolExecutor(4) as threads:
        rotations = [threads.submit(token.rotate, path) for _ in range(50)]
        tokens = [token.read(path) for _ in range(200)]
        for rotation in rotations:
            rotation.result()
    assert {len(text) for text in tokens} == {43}
    assert mode(path) == 0o600


def test_copy_of_killed_process_is_removed(path: Path) -> None:
    path.with_name(".token.new").write_text("half a tok")
    token.ensure(path)
    assert len(token.read(path)) == 43
    assert not path.with_name(".token.new").exists()


def test_rotation_restores_the_file_mode(path: Path) -> None:
    path.write_text("a-token-that-others-can-read\n")
    path.chmod(0o644)
    token.rotate(path)
    assert mode(path) == 0o600
    assert token.read(path) != "a-token-that-others-can-read"


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o602, 0o610, 0o666])
def test_accessible_token_file_is_refused(path: Path, bits: int) -> None:
    token.ensure(path)
    path.chmod(bits)
    message = f"other users can read {path}: its mode is {bits:04o}, not 0600; `rota token --rotate` creates a new one"
    with pytest.raises(HomeError, match=re.escape(message)):
        token.read(path)


@pytest.mark.parametrize(
    "text", ["", "\n", "   \n", "short", "two words of some length", "ü" * 20, "x" * 15, "a\x00b" * 9]
)
def test_invalid_token_is_refused(path: Path, text: str) -> None:
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(HomeError, match="does not contain a token of 16 or more characters"):
        token.read(path)


def test_missing_file_link_and_fifo_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(HomeError, match="does not exist; `rota token` creates it"):
        token.read(path)
    secret = tmp_path / "elsewhere"
    token.ensure(secret)
    path.symlink_to(secret)
    with pytest.raises(HomeError, match="cannot be read: Too many levels of symbolic links"):
        token.read(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(HomeError, match="is not a regular file"):
        token.read(path)


def test_token_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token.ensure(path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(HomeError, match="belongs to another user"):
        token.read(path)


def test_reload_detects_changes(path: Path) -> None:
    token_file = TokenFile(path)
    assert not token_file.reload()
    assert token_file.error == f"{path} does not exist; `rota token` creates it"
    assert not token_file.is_valid(b"")
    token.ensure(path)
    assert token_file.reload()
    first = token.read(path).encode()
    assert (token_file.is_valid(first), token_file.is_valid(first + b"x"), token_file.is_valid(first[:-1])) == (
        True,
        False,
        False,
    )
    assert not token_file.reload(), "nothing has changed"
    token.rotate(path)
    assert token_file.reload()
    assert (token_file.is_valid(first), token_file.is_valid(token.read(path).encode())) == (False, True)
    path.chmod(0o644)
    assert token_file.reload()
    assert not token_file.is_valid(path.read_bytes().strip())
    assert str(token_file.error).startswith("other users can read")
    path.chmod(0o600)
    assert token_file.reload()
    assert token_file.is_valid(path.read_bytes().strip())
    assert [token_file.error] == [None]
