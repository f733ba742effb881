"""A real git repository for a test, with an identity of its own and none of the machine's settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

IDENTITY = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "Tester",
    "GIT_AUTHOR_EMAIL": "tester@example.org",
    "GIT_COMMITTER_NAME": "Tester",
    "GIT_COMMITTER_EMAIL": "tester@example.org",
}


class Repository:
    def __init__(self, path: Path) -> None:
        """One commit on `main`, with a file at the top, one below, and one that is ignored."""
        path.mkdir()
        self.path = path
        self.git("init", "-q", "-b", "main")
        self.write("file", "one\ntwo\n")
        self.write("below/deep", "deep\n")
        self.write(".gitignore", "*.ignored\n")
        self.commit("begin")

    @property
    def common(self) -> str:
        return str(self.path / ".git")

    def git(self, *words: str, at: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words], cwd=at or self.path, env={**os.environ, **IDENTITY}, check=True, capture_output=True
        )
        return done.stdout.decode().removesuffix("\n")

    def write(self, name: str, text: str, at: Path | None = None) -> None:
        file = (at or self.path) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def commit(self, message: str, at: Path | None = None) -> str:
        self.git("add", "-A", at=at)
        self.git("commit", "-q", "-m", message, at=at)
        return self.git("rev-parse", "HEAD", at=at)

    def commit_file(self, name: str, at: Path | None = None) -> str:
        self.write(name, f"{name}\n", at=at)
        return self.commit(name, at=at)

    def branches(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()

    def worktrees(self) -> list[str]:
        lines = self.git("worktree", "list", "--porcelain").splitlines()
        return [line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")][1:]

    def state(self) -> tuple[str, str, str, str]:
        """All that must not change by being looked at."""
        objects = sorted(str(path.relative_to(self.path)) for path in (self.path / ".git/objects").rglob("*"))
        index = (self.path / ".git/index").read_bytes().hex()
        return "\n".join(objects), index, self.git("show-ref"), self.git("status", "--porcelain")

    def apply(self, patch: Path, base: str, into: Path) -> None:
        """The patch on a clean checkout of `base`, as a user would try it."""
        self.git("worktree", "add", "-q", "--detach", str(into), base)
        self.git("apply", "--check", str(patch), at=into)
        self.git("apply", str(patch), at=into)
