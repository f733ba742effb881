"""Full disk: the scheduler keeps running, refuses changes with the reason, and continues when there is space."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest

from tests.e2e.rig import TIMEOUT, ChildControl, Rota, eventually


class Disk(Protocol):
    """Small file system of a home that a test can fill."""

    rota: Rota
    words: str
    """Text of the error when the disk is full."""

    def fill(self) -> None: ...
    def empty(self) -> None: ...


class Tmpfs:
    """File system of 3 MiB in a mount namespace. It is unmounted when the last process of the namespace ends."""

    words = "is full; nothing was stored: free some space and try again"

    def __init__(self, directory: Path, make_rota: Callable[..., Rota]) -> None:
        directory.mkdir()
        script = 'mount -t tmpfs -o size=3m none "$1" && echo mounted && read -r x'
        self._holder = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", script, "sh", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"mounted\n":
            self.close()
            raise OSError("this machine does not allow mounts in a user namespace")
        enter = ["nsenter", "-t", str(self._holder.pid), "-U", "-m", "--preserve-credentials"]
        self.rota = make_rota(directory / "home", prefix=enter)
        self._filling = [*enter, "sh", "-c", 'cat /dev/zero > "$0"/ballast', str(directory)]
        self._emptying = [*enter, "rm", str(directory / "ballast")]
        # This process is in another mount namespace, so it reaches the socket through /proc.
        self.rota.socket = Path(f"/proc/{self._holder.pid}/root{directory}/home/rota.sock")

    def fill(self) -> None:
        assert subprocess.run(self._filling, stderr=subprocess.DEVNULL, check=False).returncode != 0

    def empty(self) -> None:
        subprocess.run(self._emptying, check=True)

    def close(self) -> None:
        self._holder.communicate(b"\n")


class FileSizeLimit:
    """Fallback without mounts: files of the scheduler and the supervisor cannot grow."""

    words = "cannot be used"

    def __init__(self, make_rota: Callable[..., Rota]) -> None:
        self.rota = make_rota()

    def _limit(self, size: int) -> None:
        for pid in self.rota.processes():  # a scheduler that starts later is not limited
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def fill(self) -> None:
        self._limit(1)

    def empty(self) -> None:
        self._limit(resource.RLIM_INFINITY)


@pytest.fixture(params=["tmpfs", "file size limit"])
def disk(request: pytest.FixtureRequest, make_rota: Callable[..., Rota], tmp_path: Path) -> Iterator[Disk]:
    if request.param == "tmpfs" and shutil.which("unshare") and shutil.which("nsenter"):
        with suppress(OSError):
            tmpfs = Tmpfs(tmp_path / "disk", make_rota)
            yield tmpfs
            tmpfs.rota.close()
            tmpfs.close()
            return
    yield FileSizeLimit(make_rota)


def test_scheduler_survives_a_full_disk(disk: Disk, children: ChildControl) -> None:
    rota = disk.rota
    pid = rota.start()
    rota.set_global_size(2)
    running = rota.submit(*children.gated("running"))
    queued = [rota.submit("--after", running, *children.immediate(name)) for name in ("queued", "last")]
    assert children.read_lines() == ["running begins"]
    running_pid = rota.wait_for_start(running)["pid"]
    before = rota.jobs()
    disk.fill()

    cancel_error = rota.run("cancel", running, code=1).err
    assert f"to end it without a record: kill -- -{running_pid}" in cancel_error, (
        "the error says how to end the job without a record"
    )
    refused = rota.run("submit", *children.immediate("refused"), code=1)
    assert refused.out == ""
    assert disk.words in refused.err
    assert rota.jobs() == before, "nothing was stored"
    failure = rota.status()["errors"]
    assert disk.words in failure[0]
    result = rota.api("GET", "/ready")
    assert (result.status, result.json()["reasons"]) == (503, failure)
    assert rota.api("GET", "/metrics").status == 200
    assert "error          " in rota.run("status").out
    for words in (["list", "--all"], ["show", running], ["why", queued[0]], ["logs", running], ["doctor"]):
        rota.run(*words, code=1 if words == ["doctor"] and isinstance(disk, Tmpfs) else 0)

    children.release("running", 5)
    assert children.read_lines() == ["running ends"]
    if isinstance(disk, FileSizeLimit):  # on the tmpfs, a line still fits into the last block of the journal
        eventually(
            lambda: any("exits not reported until then: run-1" in text for text in rota.status()["errors"]), TIMEOUT
        )
    rota.run("wait", running, "--timeout", "1200ms", code=124)
    assert rota.show(running)["status"] == "RUNNING", "an end counts only when it is on disk"
    rota.run("cancel", queued[1], code=1)
    assert rota.scheduler_pid == pid

    disk.empty()
    rota.wait(running, code=5)
    assert eventually(lambda: not rota.status()["errors"], TIMEOUT)
    assert rota.api("GET", "/ready").status == 200
    assert rota.show(queued[0])["status"] == "BLOCKED_BY_DEPENDENCY"
    after = rota.submit(*children.immediate("after"))
    rota.wait(after)
    assert after == "job-4", "the refused submits used no job number"
    assert children.read_available() == ["after begins", "after ends"]
    assert rota.scheduler_pid == pid


@pytest.mark.parametrize("disk", ["tmpfs"], indirect=True)
def test_full_disk_is_reported_before_a_write_fails(disk: Disk) -> None:
    if not isinstance(disk, Tmpfs):
        pytest.skip("a file size limit is not a full disk")
    rota = disk.rota
    rota.start()
    disk.fill()
    output = f"the disk is full: there is no room left for {rota.home}"
    assert rota.api("GET", "/ready").json()["reasons"] == [output]
    assert rota.status()["errors"] == [output]
    assert output in rota.run("status").out
    disk.empty()
    assert rota.status()["errors"] == []


def test_crash_on_a_full_disk_loses_no_result(disk: Disk, children: ChildControl) -> None:
    """The scheduler dies while the disk is full. When there is space, the end is recorded with its exit code."""
    rota = disk.rota
    rota.start()
    running = rota.submit(*children.gated("running"))
    assert children.read_lines() == ["running begins"]
    rota.wait_for_start(running)
    disk.fill()
    rota.run("submit", "--", "true", code=1)
    children.release("running", 6)
    assert children.read_lines() == ["running ends"]
    rota.crash()
    # A scheduler that cannot write its first record may exit with an error, but it must not invent a result.
    rota.run("list", code=None)
    disk.empty()
    rota.wait(running, code=6)


@pytest.mark.parametrize("disk", ["tmpfs"], indirect=True)
def test_scheduler_starts_on_a_full_disk_and_continues_with_space(disk: Disk, children: ChildControl) -> None:
    if not isinstance(disk, Tmpfs):
        pytest.skip("a file size limit does not apply to a scheduler that starts later")
    rota = disk.rota
    rota.start()
    waiting = rota.submit("--delay", "1s", *children.immediate("waiting"))
    rota.run("down")
    disk.fill()

    output = rota.run("up")
    assert "pid " in output.out
    assert disk.words in output.err
    pid = rota.scheduler_pid
    assert disk.words in rota.status()["errors"][0]
    assert "0 running" not in rota.run("status").out, "an unknown count is not printed as 0"
    for words in (["submit", "--", "true"], ["cancel", waiting]):
        assert disk.words in rota.run(*words, code=1).err
    assert children.read_available() == []

    disk.empty()
    assert children.read_lines(2) == ["waiting begins", "waiting ends"]
    rota.wait(waiting)
    assert rota.status()["errors"] == []
    assert rota.scheduler_pid == pid
