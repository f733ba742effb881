"""`input.patch`: what the user had not committed when he submitted the job.

It is taken once, before the submit is stored, into the home's `patches/` under its digest: so an accepted submit
has it on disk, whatever dies when, and the jobs of a batch or a chain share it. A job that starts gets a copy of its
own, which it may spoil.
"""

# ruff: noqa: PTH103, PTH105, PTH108, PTH123
from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile

from rota.executor.workspace.git import Git, GitError
from rota.executor.workspace.tree import Scratch, head_of, snapshot, write_patch

FILE = "input.patch"
FOLDER = "patches"


def take_input(git: Git, home: str, *, most: int) -> str:
    """The digest under which the difference between the working tree and its head is kept. `git` is at its top."""
    folder = f"{home}/{FOLDER}"
    os.makedirs(folder, 0o700, exist_ok=True)
    scratch = Scratch(tempfile.mkdtemp(prefix=".", suffix=".tmp", dir=folder))
    beside = f"{scratch.path}/{FILE}"
    try:
        now = snapshot(git, scratch, home)
        if not write_patch(git, scratch, beside, head_of(git), now, most=most):
            os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return _keep(beside, folder)
    finally:
        scratch.remove()


def path_of(home: str, digest: str) -> str:
    return f"{home}/{FOLDER}/{digest}.patch"


def show_input(source: str, directory: str) -> None:
    """To be seen in the job's directory while it waits: the same file, for a batch may have ten thousand jobs."""
    with contextlib.suppress(FileExistsError):
        os.link(source, f"{directory}/{FILE}")


def put_input(source: str, directory: str) -> None:
    """The job's own copy, whole or not at all."""
    beside = f"{directory}/{FILE}.tmp"
    try:
        with open(source, "rb") as given, open(beside, "wb", opener=_private) as file:
            shutil.copyfileobj(given, file)
        os.replace(beside, f"{directory}/{FILE}")
    except FileNotFoundError:
        raise GitError(f"the patch that was taken at its submit is gone: {source}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)


def _keep(beside: str, folder: str) -> str:
    with open(beside, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    os.replace(beside, f"{folder}/{digest}.patch")
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return digest


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
