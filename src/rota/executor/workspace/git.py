"""The `git` program, held to a deadline, with nothing that asks, runs hooks or leaves a process behind."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping

_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",  # would leave a process of its own behind
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.addEmbeddedRepo=false",
    "core.quotePath=false",
)
LOCAL_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE", "GIT_INTERNAL_SUPER_PREFIX", "GIT_NAMESPACE", "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
)  # fmt: skip
"""What says which repository is meant, whatever the directory: set inside hooks, and then wrong for a worktree."""

_LONGEST = 2000


class GitError(Exception):
    """What git said, with what it was asked."""


class TooLarge(GitError):
    """The output is larger than it may be."""


class Git:
    """git in one directory, until a deadline (on the monotonic clock) that all its calls share."""

    def __init__(self, directory: str, deadline: float, variables: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.deadline = deadline
        self._variables = dict(variables or {})

    def at(self, directory: str, variables: Mapping[str, str] | None = None) -> Git:
        return Git(directory, self.deadline, variables)

    def __call__(self, *words: str) -> str:
        """Its output without the last line break."""
        code, out, err = self._run(words)
        if code != 0:
            raise GitError(_explain(words, code, err))
        return os.fsdecode(out.removesuffix(b"\n"))

    def succeeds_in_part(self, *words: str) -> bool:
        """Whether it has done what it could, and did not give up."""
        code, _, _ = self._run(words)
        return code in (0, 1)

    def maybe(self, *words: str) -> str | None:
        """The same; none where git says no."""
        code, out, _ = self._run(words)
        return os.fsdecode(out.removesuffix(b"\n")) if code == 0 else None

    def write(self, path: str, *words: str, most: int | None = None) -> int:
        """Its output into this file; how much it was."""
        with open(path, "wb", opener=_private) as file:
            code, _, err = self._run(words, stdout=file.fileno(), most=most)
            size = os.fstat(file.fileno()).st_size
        if code == -signal.SIGXFSZ or (most is not None and size > most):  # it may have been too fast for the limit
            raise TooLarge(f"git {words[0]}: more than {most} bytes")
        if code != 0:
            raise GitError(_explain(words, code, err))
        return size

    def _run(
        self, words: tuple[str, ...], *, stdout: int = subprocess.PIPE, most: int | None = None
    ) -> tuple[int, bytes, bytes]:
        process = self._begun(words, stdout)
        try:
            if most is not None:
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))
            out, err = process.communicate(timeout=self._left())
        except subprocess.TimeoutExpired:
            raise GitError(f"git {words[0]} did not end in time") from None
        finally:
            if process.poll() is None:
                _kill(process)
        return process.returncode, out or b"", err

    def _begun(self, words: tuple[str, ...], stdout: int) -> subprocess.Popen[bytes]:
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        try:
            return subprocess.Popen(
                ["git", *settings, *words],
                cwd=self.directory,
                env=_environment(self._variables),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except FileNotFoundError as error:
            if error.filename == self.directory:
                raise GitError(f"the directory {self.directory} does not exist") from None
            raise GitError("git is not installed, or not on the search path of the scheduler") from None
        except OSError as error:
            raise GitError(f"git cannot be run in {self.directory}: {error.strerror}") from None

    def _left(self) -> float:
        """No wait for the kernel can be longer than 24 days."""
        return min(max(0.01, self.deadline - time.monotonic()), 20 * 86_400.0)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """TERM first: git removes what it has made half. One that is stuck in the kernel is not waited for."""
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
            return


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in LOCAL_VARIABLES}
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    return {**kept, **quiet, **variables}


def _explain(words: tuple[str, ...], code: int, err: bytes) -> str:
    said = err.decode("utf-8", "replace").strip()[-_LONGEST:]
    named = " ".join(words[:2] if words[0] == "worktree" else words[:1])
    return f"git {named}: {said or f'exit code {code}'}"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
