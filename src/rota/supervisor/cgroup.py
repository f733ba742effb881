"""Cgroup for each run, if the supervisor may create one without being root (cgroup v2).

    <cgroup in which the supervisor was started>    delegated: its directory and `cgroup.procs` are writable
      rota-<pid>-<start time>                       the supervisor itself; a threaded domain
        run-7                                       threaded: every process of run-7

A process can leave its session, its environment and its parent, but not its cgroup. So the members of a run's cgroup
belong to the run, also for a supervisor that did not start them: the journal records the path.

The cgroups of runs are threaded, because a single thread can join a threaded cgroup: a spawner thread enters it,
creates the child, which is a member from its first instruction on, and leaves. Moving a child after its start would
leave a moment in which it can fork, and takes a lock that can cost 20 ms; a thread that moves itself does not. A
threaded cgroup has neither `cgroup.procs` nor `cgroup.kill`: its members are read from `cgroup.threads` and signaled
one by one.

No controller is enabled, so no limit changes. `scheduler.cgroups = "off"` in the configuration disables cgroups.
"""

# pathlib would cost a megabyte:
# ruff: noqa: PTH102, PTH106, PTH120, PTH208
from __future__ import annotations

import contextlib
import os
import re

from rota.supervisor import process
from rota.supervisor.log import write_log

_SUPERVISOR_NAME = re.compile(r"rota-(\d+)-(\d+)")
_SUPERVISOR_PATH = re.compile(r"(.*)/rota-\d+-\d+(/run-\d+)?")
_ESCAPE = re.compile(rb"\\([0-7]{3})")


class Cgroups:
    """Cgroups of the runs that this supervisor starts."""

    def __init__(self, base: str) -> None:
        self._base = base
        """The supervisor's own cgroup; empty if runs get none."""

    @classmethod
    def prepare(cls, root: str | None = None) -> Cgroups:
        """Move this process into its own cgroup below `root`, by default below the current cgroup."""
        root = root or _find_own_cgroup()
        if root is None or not _is_delegated(root):
            return cls("")
        _remove_abandoned(root)
        own_process = process.read_process(os.getpid())
        base = f"{root}/rota-{os.getpid()}-{own_process.start_time if own_process else 0}"
        cgroups = cls(base)
        try:
            os.mkdir(base, 0o755)
            _write(f"{base}/cgroup.procs", "0")
            cgroups.enter(0)
            cgroups.leave()
            remove(cgroups.path(0))
        except OSError as error:
            write_log(f"runs have no cgroup: {error.strerror}: {error.filename or base}")
            cgroups.close()
            return cls("")
        return cgroups

    @property
    def is_enabled(self) -> bool:
        return bool(self._base)

    def path(self, run: int) -> str:
        """Return the path of the run's cgroup; empty if it gets none."""
        return f"{self._base}/run-{run}" if self._base else ""

    def enter(self, run: int) -> None:
        """Move the calling thread into the run's cgroup, created if missing. Its children stay there."""
        path = self.path(run)
        try:
            try:
                os.mkdir(path, 0o755)
                _write(f"{path}/cgroup.type", "threaded")
            except FileExistsError:
                pass
            _write(f"{path}/cgroup.threads", "0")
        except OSError:
            remove(path)
            raise

    def leave(self) -> None:
        """Move the calling thread back to the supervisor's own cgroup."""
        _write(f"{self._base}/cgroup.threads", "0")

    def close(self) -> None:
        """Remove all cgroups except those in which runs still live."""
        if not self._base:
            return
        with contextlib.suppress(OSError):
            _write(f"{os.path.dirname(self._base)}/cgroup.procs", "0")
        _remove_tree(self._base)


def members(path: str) -> set[int]:
    """Return the ids of the threads in the cgroup. A process has the id of its first thread."""
    return {int(number) for number in _read(f"{path}/cgroup.threads").split()} if path else set()


def remove(path: str) -> bool:
    """Remove a run's cgroup. Return False if it has members: the kernel removes only an empty one."""
    if not path:
        return True
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def remove_inherited(path: str) -> None:
    """Remove the empty cgroups of a lost supervisor's runs, and its own cgroup after the last of them."""
    if path:
        _remove_tree(os.path.dirname(path))


def _find_own_cgroup() -> str | None:
    """Return the mounted path of the cgroup in which the supervisor was started. The cgroup of a run or of another
    supervisor does not count, because it is removed with its owner: the enclosing one does."""
    name = next((line[3:] for line in _read("/proc/self/cgroup").splitlines() if line.startswith(b"0::")), None)
    if name is None:
        return None
    own_path = os.fsdecode(name)
    for line in _read("/proc/self/mountinfo").splitlines():
        mount, _, kind = line.partition(b" - ")
        if not kind.startswith(b"cgroup2 "):
            continue
        root, mount_point = (os.fsdecode(_ESCAPE.sub(_unescape, field)) for field in mount.split()[3:5])
        relative = own_path if root == "/" else own_path.removeprefix(root)
        if root == "/" or own_path == root or own_path.startswith(f"{root}/"):
            directory = f"{mount_point}{relative}".rstrip("/")
            while match := _SUPERVISOR_PATH.fullmatch(directory):
                directory = match[1]
            return directory
    return None


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8)])


def _is_delegated(root: str) -> bool:
    return os.access(root, os.W_OK) and os.access(f"{root}/cgroup.procs", os.W_OK)


def _remove_abandoned(root: str) -> None:
    """Remove the empty cgroups that killed supervisors left behind."""
    for name in _names(root):
        owner = _SUPERVISOR_NAME.fullmatch(name)
        if owner is None:
            continue
        owner_process = process.read_process(int(owner[1]))
        if owner_process is None or owner_process.start_time != int(owner[2]):
            _remove_tree(f"{root}/{name}")


def _remove_tree(base: str) -> None:
    for name in _names(base):
        if name.startswith("run-"):
            remove(f"{base}/{name}")
    with contextlib.suppress(OSError):
        os.rmdir(base)


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _read(path: str) -> bytes:
    """Return the content of the file; empty if it cannot be read, because the cgroup is gone then."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        data = b""
        while chunk := os.read(fd, 1 << 16):
            data += chunk
    except OSError:
        return b""
    finally:
        os.close(fd)
    return data


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(fd)
