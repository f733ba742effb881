"""Real repositories, made by the `git` program with nobody's settings."""

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
    "GIT_CONFIG_COUNT": "2",  # a test's repository need not survive the machine
    "GIT_CONFIG_KEY_0": "core.fsync",
    "GIT_CONFIG_VALUE_0": "none",
    "GIT_CONFIG_KEY_1": "maintenance.auto",
    "GIT_CONFIG_VALUE_1": "false",
}


def git(cwd: Path, *arguments: str, stdin: str = "", check: bool = True) -> str:
    done = run(cwd, *arguments, stdin=stdin)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def run(cwd: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=cwd, env=ENVIRONMENT, input=stdin, capture_output=True, text=True, check=False
    )


@cache
def has_ref_formats() -> bool:
    """This git knows other storages for refs than files."""
    with TemporaryDirectory() as folder:
        git(Path(folder), "init", "-q", "--ref-format=reftable", check=False)
        return Path(folder, ".git/reftable").is_dir()


class Tree:
    """A working tree, or a bare repository."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        return git(self.path, *arguments, stdin=stdin, check=check)

    def commit(self, *paths: str) -> str:
        """A new commit with these documents, or with nothing new; its id."""
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
        """What git itself calls the common directory."""
        return os.path.realpath(self.path / self.git("rev-parse", "--git-common-dir"))


def make(path: Path, *options: str) -> Tree:
    git(path.parent, "init", "-q", "-b", "main", *options, str(path))
    return Tree(path)


def make_named(path: Path) -> Tree:
    """A repository that names the storage of its refs, so that only git may read them."""
    tree = make(path)
    if has_ref_formats():  # from then on it is refused in a repository of version 0
        tree.git("config", "core.repositoryFormatVersion", "1")
    tree.git("config", "extensions.refStorage", "files")
    return tree
