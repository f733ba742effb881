"""A full disk: the scheduler stays up, refuses clearly, says so, and goes on when there is room."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest

from e2e.rig import PATIENCE, Rota, Stage, eventually


class Disk(Protocol):
    """The home's own small disk."""

    rota: Rota
    words: str
    """What is said when it is full."""

    def fill(self) -> None: ...
    def empty(self) -> None: ...


class Tmpfs:
    """A file system of 3 MiB in a mount namespace that ends with its last process: nothing is ever left mounted."""

    words = "is full; nothing was stored: free some space and try again"

    def __init__(self, place: Path, make_rota: Callable[..., Rota]) -> None:
        place.mkdir()
        script = 'mount -t tmpfs -o size=3m none "$1" && echo mounted && read -r x'
        self._holder = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", script, "sh", str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"mounted\n":
            self.close()
            raise OSError("this machine lets nobody mount anything")
        enter = ["nsenter", "-t", str(self._holder.pid), "-U", "-m", "--preserve-credentials"]
        self.rota = make_rota(place / "home", prefix=enter)
        self._filling = [*enter, "sh", "-c", 'cat /dev/zero > "$0"/ballast', str(place)]
        self._emptying = [*enter, "rm", str(place / "ballast")]
        # Sockets are found through the file system, and we are in another one.
        self.rota.socket = Path(f"/proc/{self._holder.pid}/root{place}/home/rota.sock")

    def fill(self) -> None:
        assert subprocess.run(self._filling, stderr=subprocess.DEVNULL, check=False).returncode != 0

    def empty(self) -> None:
        subprocess.run(self._emptying, check=True)

    def close(self) -> None:
        self._holder.communicate(b"\n")


class FileSizeLimit:
    """Where nothing can be mounted: no file of the scheduler or the supervisor may grow any more."""

    words = "cannot be used"

    def __init__(self, make_rota: Callable[..., Rota]) -> None:
        self.rota = make_rota()

    def _limit(self, size: int) -> None:
        for pid in self.rota.processes():  # a scheduler that comes later is not limited
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


def test_a_full_disk_is_survived(disk: Disk, stage: Stage) -> None:
    rota = disk.rota
    pid = rota.start()
    rota.set_global(2)
    running = rota.submit(*stage.actor("running"))
    queued = [rota.submit("--after", running, *stage.walk_on(name)) for name in ("queued", "last")]
    assert stage.hear() == ["running begins"]
    pid_of_it = rota.running(running)["pid"]
    before = rota.jobs()
    disk.fill()

    by_hand = rota.ask("cancel", running, code=1).err
    assert f"to end it without a record: kill -- -{pid_of_it}" in by_hand, "what fills the disk can be ended"
    refused = rota.ask("submit", *stage.walk_on("refused"), code=1)
    assert refused.out == ""
    assert disk.words in refused.err
    assert rota.jobs() == before, "nothing was stored"
    trouble = rota.status()["trouble"]
    assert disk.words in trouble[0]
    told = rota.api("GET", "/ready")
    assert (told.status, told.json()["reasons"]) == (503, trouble)
    assert rota.api("GET", "/metrics").status == 200
    assert "trouble        " in rota.ask("status").out
    for words in (["list", "--all"], ["show", running], ["why", queued[0]], ["logs", running], ["doctor"]):
        rota.ask(*words, code=1 if words == ["doctor"] and isinstance(disk, Tmpfs) else 0)

    stage.release("running", 5)
    assert stage.hear() == ["running ends"]
    if isinstance(disk, FileSizeLimit):  # on the other a line still fits into the journal's last block
        eventually(lambda: any("not told until it can: run-1" in text for text in rota.status()["trouble"]), PATIENCE)
    rota.ask("wait", running, "--timeout", "1200ms", code=124)
    assert rota.show(running)["status"] == "RUNNING", "an end that is not on disk has not happened"
    rota.ask("cancel", queued[1], code=1)
    assert rota.scheduler == pid

    disk.empty()
    rota.wait(running, code=5)
    assert eventually(lambda: not rota.status()["trouble"], PATIENCE)
    assert rota.api("GET", "/ready").status == 200
    assert rota.show(queued[0])["status"] == "BLOCKED_BY_DEPENDENCY"
    after = rota.submit(*stage.walk_on("after"))
    rota.wait(after)
    assert after == "job-4", "not even a number was lost"
    assert stage.heard() == ["after begins", "after ends"]
    assert rota.scheduler == pid


def test_a_full_disk_is_said_before_anybody_writes_to_it(disk: Disk) -> None:
    if not isinstance(disk, Tmpfs):
        pytest.skip("a limit on a process is no full disk")
    rota = disk.rota
    rota.start()
    disk.fill()
    said = f"the disk is full: there is no room left for {rota.home}"
    assert rota.api("GET", "/ready").json()["reasons"] == [said]
    assert rota.status()["trouble"] == [said]
    assert said in rota.ask("status").out
    disk.empty()
    assert rota.status()["trouble"] == []


def test_a_crash_on_a_full_disk_loses_nothing(disk: Disk, stage: Stage) -> None:
    """The scheduler dies while the disk is full; with room again the end is booked with its true code."""
    rota = disk.rota
    rota.start()
    running = rota.submit(*stage.actor("running"))
    assert stage.hear() == ["running begins"]
    rota.running(running)
    disk.fill()
    rota.ask("submit", "--", "true", code=1)
    stage.release("running", 6)
    assert stage.hear() == ["running ends"]
    rota.crash()
    # A scheduler that cannot write its first line may say so and leave; what it may not do is make something up.
    rota.ask("list", code=None)
    disk.empty()
    rota.wait(running, code=6)


def test_it_comes_up_on_a_full_disk_and_goes_on_when_there_is_room(disk: Disk, stage: Stage) -> None:
    if not isinstance(disk, Tmpfs):
        pytest.skip("a limit on a process does not hold for the scheduler that comes after it")
    rota = disk.rota
    rota.start()
    waiting = rota.submit("--delay", "1s", *stage.walk_on("waiting"))
    rota.ask("down")
    disk.fill()

    said = rota.ask("up")
    assert "pid " in said.out
    assert disk.words in said.err
    pid = rota.scheduler
    assert disk.words in rota.status()["trouble"][0]
    assert "0 running" not in rota.ask("status").out, "what cannot be counted is not said to be nothing"
    for words in (["submit", "--", "true"], ["cancel", waiting]):
        assert disk.words in rota.ask(*words, code=1).err
    assert stage.heard() == []

    disk.empty()
    assert stage.hear(2) == ["waiting begins", "waiting ends"]
    rota.wait(waiting)
    assert rota.status()["trouble"] == []
    assert rota.scheduler == pid
