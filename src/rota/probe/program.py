"""The `git` program, asked about one repository that we have found ourselves.

Naming the git directory keeps git from looking for one: neither GIT_DIR in our environment nor the owner of the
directory (`safe.directory`) has a say. The user's own settings are left out, objects are taken as they are stored,
and nothing is fetched: a look must not wait for a network, nor for somebody to type a password.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

_TIMEOUT = 30.0
_SETTINGS = {
    "LC_ALL": "C",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


class GitFailed(Exception):
    """git could not be asked: there is none, or it took too long."""


class GitRefused(GitFailed):
    """git ended with an error; its last words."""


def ask(directory: str, arguments: Sequence[str], *, stdin: bytes = b"", cwd: str = "/") -> bytes:
    """What `git` prints about this git directory."""
    return ask_closely(directory, arguments, stdin=stdin, cwd=cwd)[0]


def ask_closely(
    directory: str, arguments: Sequence[str], *, stdin: bytes = b"", cwd: str = "/"
) -> tuple[bytes, str | None]:
    """What `git` prints, and the last error that it mentions beside it.

    Of an object that it cannot read git may say that it is missing, and only beside it that it is broken.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | _SETTINGS
    try:
        done = subprocess.run(
            ["git", f"--git-dir={directory}", *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd,
            env=environment,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, ValueError) as error:
        raise GitFailed(f"git cannot be run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise GitFailed(f"git {arguments[0]} took longer than {_TIMEOUT:.0f} s") from error
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if done.returncode != 0:
        raise GitRefused(words[-1] if words else f"git {arguments[0]} ended with {done.returncode}")
    return done.stdout, next((line for line in reversed(words) if line.startswith("error:")), None)


def ask_line(directory: str, arguments: Sequence[str], *, cwd: str = "/") -> str | None:
    """The one line that `git` prints, or none when it says no."""
    try:
        return os.fsdecode(ask(directory, arguments, cwd=cwd)).removesuffix("\n") or None
    except GitFailed:
        return None
