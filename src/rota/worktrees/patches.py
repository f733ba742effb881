"""Patches: differences between snapshots of a working tree, and the input of a job.

A snapshot is a tree object of all files. It uses a copy of the index, and its objects go to a separate directory: the
index, refs and objects of the repository are not changed, and a `git gc` there cannot delete the snapshot.

`input.patch` has the user's uncommitted changes at submit. It is captured once, before the submit is stored, into the
home's `patches/` under its digest. So an accepted submit has it on disk regardless of crashes, and the jobs of a batch
or a chain share it. A starting job gets its own copy, which it may modify.
"""

# ruff: noqa: PTH103, PTH105, PTH108, PTH123

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile

from rota.worktrees.git import Git, GitError

INPUT_PATCH = "input.patch"
PATCHES_DIRECTORY = "patches"

_DIFF_COMMAND = (
    "diff-tree",
    "-r",
    "-p",
    "--binary",
    "--full-index",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "-U3",
)
_MAX_ADD_ATTEMPTS = 20


class ScratchDirectory:
    """Directory for the index and the objects of snapshots while they are compared."""

    def __init__(self, path: str) -> None:
        self.path = path

    def git_variables(self, git: Git) -> dict[str, str]:
        os.makedirs(f"{self.path}/objects", 0o700, exist_ok=True)
        objects = git("rev-parse", "--path-format=absolute", "--git-path", "objects")
        return {
            "GIT_OBJECT_DIRECTORY": f"{self.path}/objects",
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quote_path(objects),
        }

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def snapshot(git: Git, scratch: ScratchDirectory, home: str) -> str:
    """Return a tree object of all files, tracked or not, except ignored files and the home. `git` is at the top of the
    working tree."""
    top, index = git("rev-parse", "--path-format=absolute", "--show-toplevel", "--git-path", "index").split("\n")
    if os.path.realpath(top) != os.path.realpath(git.directory):
        raise GitError(f"{git.directory} is not a working tree anymore")
    index_copy = f"{scratch.path}/index"
    variables = {**scratch.git_variables(git), "GIT_INDEX_FILE": index_copy}
    with contextlib.suppress(FileNotFoundError):
        os.unlink(index_copy)
    with contextlib.suppress(FileNotFoundError):
        # Keep the modification time of the index: git needs it to notice a file that changed in the same moment as the
        # last `git add`.
        shutil.copy2(index, index_copy)
    scratch_git = git.in_directory(git.directory, variables)
    _add_all(scratch_git, *_exclude_home(home, git.directory))
    return scratch_git("write-tree")


def head_commit(git: Git) -> str:
    """Return the checked-out commit; the empty tree before the first commit."""
    return git.try_run("rev-parse", "--verify", "--quiet", "HEAD^{commit}") or git(
        "hash-object", "-t", "tree", "/dev/null"
    )


def write_patch(
    git: Git, scratch: ScratchDirectory, path: str, old: str, new: str, *, max_bytes: int | None = None
) -> int:
    """Write the difference between two trees or commits, completely or not at all. An empty difference creates no
    file."""
    temporary = f"{path}.tmp"
    try:
        size = git.in_directory(git.directory, scratch.git_variables(git)).write_output(
            temporary, *_DIFF_COMMAND, old, new, max_bytes=max_bytes
        )
        if size:
            os.replace(temporary, path)
        return size
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _add_all(git: Git, *exclusions: str) -> None:
    """Add all files. Unreadable files and repositories without a commit are skipped. git aborts if a file vanishes
    meanwhile, so it is retried."""
    for _ in range(_MAX_ADD_ATTEMPTS):
        if git.succeeds_partially("add", "--all", "--ignore-errors", "--", ".", *exclusions):
            return
    git("add", "--all", "--ignore-errors", "--", ".", *exclusions)


def _exclude_home(home: str, top: str) -> list[str]:
    home, top = os.path.realpath(home), os.path.realpath(top)
    return [f":(exclude,literal){os.path.relpath(home, top)}"] if home.startswith(f"{top}/") else []


def _quote_path(path: str) -> str:
    """Quote a path for a list of directories, as git requires for a colon or a quote in the name."""
    if ":" not in path and not path.startswith('"'):
        return path
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


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
        return _store_input(patch, folder)
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


def _store_input(temporary: str, folder: str) -> str:
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
