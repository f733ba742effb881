"""Execution of `git` on one repository, and the log of read failures.

The explicit git directory disables discovery, so that neither GIT_DIR in the environment nor the owner of the directory
(`safe.directory`) matters. User and system settings are ignored, replacement objects are ignored, and nothing is
fetched: a probe must not wait for a network or a password prompt.
"""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Sequence

log = logging.getLogger("rota.probe")

_GIT_TIMEOUT = 30.0
_GIT_VARIABLES = {
    "LC_ALL": "C",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
_MAX_REPORTED_FAILURES = 1000


class GitProbeError(Exception):
    """git could not be run, or it took too long."""


class GitCommandError(GitProbeError):
    """git exited with an error. The message is the last line on its stderr."""


def run_git(directory: str, arguments: Sequence[str], *, stdin: bytes = b"", cwd: str = "/") -> bytes:
    """Run `git` on this git directory and return its output."""
    return run_git_with_error(directory, arguments, stdin=stdin, cwd=cwd)[0]


def run_git_with_error(
    directory: str, arguments: Sequence[str], *, stdin: bytes = b"", cwd: str = "/"
) -> tuple[bytes, str | None]:
    """Run `git` and return its output and the last error on its stderr.

    For an unreadable object, the output of git can say that it is missing, and only stderr that it is corrupt.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | _GIT_VARIABLES
    try:
        process = subprocess.run(
            ["git", f"--git-dir={directory}", *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd,
            env=environment,
            timeout=_GIT_TIMEOUT,
            check=False,
        )
    except (OSError, ValueError) as error:
        raise GitProbeError(f"git cannot be run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise GitProbeError(f"git {arguments[0]} took longer than {_GIT_TIMEOUT:.0f} s") from error
    messages = process.stderr.decode("utf-8", "replace").strip().splitlines()
    if process.returncode != 0:
        raise GitCommandError(messages[-1] if messages else f"git {arguments[0]} exited with {process.returncode}")
    return process.stdout, next((line for line in reversed(messages) if line.startswith("error:")), None)


def run_git_line(directory: str, arguments: Sequence[str], *, cwd: str = "/") -> str | None:
    """Run `git` and return its one line of output, or None if it fails."""
    try:
        return os.fsdecode(run_git(directory, arguments, cwd=cwd)).removesuffix("\n") or None
    except GitProbeError:
        return None


class Failures:
    """Log of read failures: once when a failure starts and once when it ends, not on every observation."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}

    def report(self, subject: str, error: str) -> None:
        if self._reported.get(subject) == error:
            return
        if len(self._reported) >= _MAX_REPORTED_FAILURES:  # logging again is better than growing without bound
            self._reported.clear()
        self._reported[subject] = error
        log.warning("%s cannot be read: %s", subject, error)

    def clear(self, subject: str) -> None:
        if self._reported.pop(subject, None) is not None:
            log.info("%s can be read again", subject)
