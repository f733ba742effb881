"""Runner of the `git` program with a deadline. No prompts, no hooks, no background processes."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping

_GIT_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",  # would leave a background process
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.addEmbeddedRepo=false",
    "core.quotePath=false",
)
LOCAL_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
"""Variables that select a repository regardless of the directory. Set inside hooks, and wrong for a worktree."""

_MAX_ERROR_CHARS = 2000


class GitError(Exception):
    """Failure of a git command, with its output."""


class GitOutputTooLarge(GitError):
    """Failure because the output exceeds the limit."""


class Git:
    """git in one directory. All calls share one deadline (on the monotonic clock)."""

    def __init__(self, directory: str, deadline: float, variables: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.deadline = deadline
        self._variables = dict(variables or {})

    def in_directory(self, directory: str, variables: Mapping[str, str] | None = None) -> Git:
        return Git(directory, self.deadline, variables)

    def __call__(self, *arguments: str) -> str:
        """Run git and return its output without the final newline."""
        code, out, err = self._run(arguments)
        if code != 0:
            raise GitError(_describe_failure(arguments, code, err))
        return os.fsdecode(out.removesuffix(b"\n"))

    def succeeds_partially(self, *arguments: str) -> bool:
        """Run git and return whether it completed, possibly with errors for single files."""
        code, _, _ = self._run(arguments)
        return code in (0, 1)

    def try_run(self, *arguments: str) -> str | None:
        """Run git and return its output; None if it fails."""
        code, out, _ = self._run(arguments)
        return os.fsdecode(out.removesuffix(b"\n")) if code == 0 else None

    def write_output(self, path: str, *arguments: str, max_bytes: int | None = None) -> int:
        """Write the output of git to a file and return its size."""
        with open(path, "wb", opener=_open_private) as file:
            code, _, err = self._run(arguments, stdout=file.fileno(), max_bytes=max_bytes)
            size = os.fstat(file.fileno()).st_size
        # The size is checked too, because git may have ended before the limit was set.
        if code == -signal.SIGXFSZ or (max_bytes is not None and size > max_bytes):
            raise GitOutputTooLarge(f"git {arguments[0]}: more than {max_bytes} bytes")
        if code != 0:
            raise GitError(_describe_failure(arguments, code, err))
        return size

    def _run(
        self, arguments: tuple[str, ...], *, stdout: int = subprocess.PIPE, max_bytes: int | None = None
    ) -> tuple[int, bytes, bytes]:
        process = self._start_process(arguments, stdout)
        try:
            if max_bytes is not None:
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
            out, err = process.communicate(timeout=self._remaining_seconds())
        except subprocess.TimeoutExpired:
            raise GitError(f"git {arguments[0]} timed out") from None
        finally:
            if process.poll() is None:
                _kill(process)
        return process.returncode, out or b"", err

    def _start_process(self, arguments: tuple[str, ...], stdout: int) -> subprocess.Popen[bytes]:
        settings = [word for setting in _GIT_SETTINGS for word in ("-c", setting)]
        try:
            return subprocess.Popen(
                ["git", *settings, *arguments],
                cwd=self.directory,
                env=_git_environment(self._variables),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        except FileNotFoundError as error:
            if error.filename == self.directory:
                raise GitError(f"the directory {self.directory} does not exist") from None
            raise GitError("git is not installed, or not in the PATH of the scheduler") from None
        except OSError as error:
            raise GitError(f"git cannot be run in {self.directory}: {error.strerror}") from None

    def _remaining_seconds(self) -> float:
        """Return the time until the deadline. The kernel accepts at most 24 days for one wait."""
        return min(max(0.01, self.deadline - time.monotonic()), 20 * 86_400.0)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill git. TERM first, because git then removes partial results. Do not wait for a process stuck in the kernel."""
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
            return


def _git_environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in LOCAL_VARIABLES}
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    return {**kept, **quiet, **variables}


def _describe_failure(arguments: tuple[str, ...], code: int, error_output: bytes) -> str:
    output = error_output.decode("utf-8", "replace").strip()[-_MAX_ERROR_CHARS:]
    command = " ".join(arguments[:2] if arguments[0] == "worktree" else arguments[:1])
    return f"git {command}: {output or f'exit code {code}'}"


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
