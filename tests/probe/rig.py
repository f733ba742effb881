"""Real repositories, created by the `git` program without any user settings."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TEMPLATE_DIR": "",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_COUNT": "2",  # a repository of a test need not survive a power loss
    "GIT_CONFIG_KEY_0": "core.fsync",
    "GIT_CONFIG_VALUE_0": "none",
    "GIT_CONFIG_KEY_1": "maintenance.auto",
    "GIT_CONFIG_VALUE_1": "false",
}


def git(cwd: Path, *arguments: str, stdin: str = "", check: bool = True) -> str:
    process = run_git(cwd, *arguments, stdin=stdin)
    assert not check or process.returncode == 0, process.stderr
    return process.stdout.removesuffix("\n")


def run_git(cwd: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=cwd, env=ENVIRONMENT, input=stdin, capture_output=True, text=True, check=False
    )


@cache
def has_ref_formats() -> bool:
    """Return whether this git supports ref storages other than files."""
    with TemporaryDirectory() as folder:
        git(Path(folder), "init", "-q", "--ref-format=reftable", check=False)
        return Path(folder, ".git/reftable").is_dir()


class GitTree:
    """Working tree or bare repository."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        return git(self.path, *arguments, stdin=stdin, check=check)

    def commit(self, *paths: str) -> str:
        """Create a commit with these new files, or an empty commit, and return its id."""
        for path in paths:
            file = self.path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(path)
            self.git("add", "--", path)
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def commits(self, count: int) -> list[str]:
        return [self.commit() for _ in range(count)]

    @property
    def common(self) -> str:
        """Common directory as git reports it."""
        return os.path.realpath(self.path / self.git("rev-parse", "--git-common-dir"))


def create_repository(path: Path, *options: str) -> GitTree:
    git(path.parent, "init", "-q", "-b", "main", *options, str(path))
    return GitTree(path)


def create_ref_storage_repository(path: Path) -> GitTree:
    """Create a repository that configures its ref storage, so that only git may read its refs."""
    tree = create_repository(path)
    if has_ref_formats():  # such a git refuses the setting in a repository of version 0
        tree.git("config", "core.repositoryFormatVersion", "1")
    tree.git("config", "extensions.refStorage", "files")
    return tree
