"""`input.patch`: the user's uncommitted changes at submit.

It is captured once, before the submit is stored, into the home's `patches/` under its digest. So an accepted submit has
it on disk regardless of crashes, and the jobs of a batch or a chain share it. A starting job gets its own copy, which
it may modify.
"""

# ruff: noqa: PTH103, PTH105, PTH108, PTH123
from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile

from rota.executor.workspace.git import Git, GitError
from rota.executor.workspace.tree import ScratchDirectory, head_commit, snapshot, write_patch

INPUT_PATCH = "input.patch"
PATCHES_DIRECTORY = "patches"


def capture_input(git: Git, home: str, *, max_bytes: int) -> str:
    """Store the difference between the working tree and its head, and return its digest. `git` is at the top."""
    folder = f"{home}/{PATCHES_DIRECTORY}"
    os.makedirs(folder, 0o700, exist_ok=True)
    scratch = ScratchDirectory(tempfile.mkdtemp(prefix=".", suffix=".tmp", dir=folder))
    patch = f"{scratch.path}/{INPUT_PATCH}"
    try:
        now = snapshot(git, scratch, home)
        if not write_patch(git, scratch, patch, head_commit(git), now, max_bytes=max_bytes):
            os.close(os.open(patch, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return _store_patch(patch, folder)
    finally:
        scratch.remove()


def patch_path(home: str, digest: str) -> str:
    return f"{home}/{PATCHES_DIRECTORY}/{digest}.patch"


def link_input(source: str, directory: str) -> None:
    """Link the patch into the directory of a waiting job. A link, because a batch may have ten thousand jobs."""
    with contextlib.suppress(FileExistsError):
        os.link(source, f"{directory}/{INPUT_PATCH}")


def copy_input(source: str, directory: str) -> None:
    """Copy the patch into the directory of the job, completely or not at all."""
    temporary = f"{directory}/{INPUT_PATCH}.tmp"
    try:
        with open(source, "rb") as patch, open(temporary, "wb", opener=_open_private) as copy:
            shutil.copyfileobj(patch, copy)
        os.replace(temporary, f"{directory}/{INPUT_PATCH}")
    except FileNotFoundError:
        raise GitError(f"the patch that was captured at submit is missing: {source}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _store_patch(temporary: str, folder: str) -> str:
    with open(temporary, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    os.replace(temporary, f"{folder}/{digest}.patch")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return digest


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
