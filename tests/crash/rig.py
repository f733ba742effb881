"""One home under load, the manager that restarts its scheduler, and the kills."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import rota
from rota.client.requests.jobs import ACTIVE_STATUSES
from tests.crash import history, killer
from tests.crash.load import POOLS, Client, Records
from tests.crash.mixed import MixedClient, repository_path
from tests.crash.point import Load, Point
from tests.crash.short import ShortJobClient
from tests.e2e.rig import Rota, eventually, exits_within
from tests.repository import Repository

LOADS: Mapping[Load, type[Client]] = {"short": ShortJobClient, "mixed": MixedClient}
VICTIMS = ("scheduler", "supervisor", "both")
TIMEOUT = 60.0
_CLIENT_COUNT = 4
_TESTS = Path(__file__).parent.parent
_SOURCE = Path(rota.__file__).parent.parent
"""The processes under test use the same source tree as this module."""
_RESTART_TIMEOUT = 6.0
"""Seconds in which a killed process is up again, also on a busy machine."""
_RESTART_DELAY = 0.05
"""Seconds before an ended scheduler is started again, as by a service manager."""


class CrashRig:
    def __init__(self, directory: Path, *, url: str | None = None, seed: int = 0) -> None:
        self.home = directory / "home"
        self.home.mkdir(parents=True, mode=0o700)
        self._configure(url)
        Repository(repository_path(self.home))
        history.install_program(self.home)
        self.rota = Rota(self.home, directory, PYTHONPATH=f"{_TESTS / 'crash' / 'hook'}:{_TESTS.parent}:{_SOURCE}")
        self.records = Records()
        self.random = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.starts = 0
        self._seed = seed
        self._stop = threading.Event()
        """Stops the current clients."""
        self._clients: list[Client] = []
        self._numbers = itertools.count()
        self._is_over = False
        self._manager = threading.Thread(target=self._manage, daemon=True)

    def _configure(self, url: str | None) -> None:
        store = f'[store]\nurl = "{url}"\n' if url else ""
        pools = "".join(f'"{name}" = {size}\n' for name, size in POOLS.items())
        (self.home / "rota.toml").write_text(
            f'[pools]\n{pools}[retry]\nbase = "50ms"\n[server]\nport = "off"\n[breaker]\nfailures = "off"\n{store}'
        )

    def start(self) -> None:
        self._manager.start()
        self.status()

    def start_load(self, load: Load) -> None:
        """Replace the load. The clients of the previous one get their last response; their jobs may still run."""
        self._stop_clients()
        self._stop = threading.Event()
        self._clients = [
            LOADS[load](self.home, number, self._seed, self.records, self._stop) for number in range(_CLIENT_COUNT)
        ]
        for client in self._clients:
            client.start()

    def _stop_clients(self) -> None:
        self._stop.set()
        waiting = [client for client in self._clients if not client.join(TIMEOUT * 2)]
        assert not waiting, f"{len(waiting)} clients still wait for a response: {self.status()}"

    def _manage(self) -> None:
        with (self.home / "rota.log").open("ab") as log:
            while not self._is_over:
                self.starts += 1
                with subprocess.Popen(
                    self.rota.argv("serve"),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=self.rota.env,
                    start_new_session=True,
                ) as process:
                    process.wait()
                time.sleep(_RESTART_DELAY)

    def api(self, method: str, target: str) -> Any:
        """Return the response of the scheduler. Waits while there is no scheduler."""

        def request() -> Any:
            with suppress(OSError):
                response = self.rota.api(method, target)
                return response.json() if response.status == 200 else None
            return None

        return eventually(request, TIMEOUT, description=f"a response to {method} {target}")

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.api("GET", "/api/scheduler")
        return status

    # Kills.

    def kill(self, victims: str, cause: str = "random/0") -> None:
        """Kill as `kill -9` does. Of both, the scheduler goes first, since it would restart the supervisor."""
        processes = ("scheduler", "supervisor") if victims == "both" else (victims,)
        for process in processes:
            for pid in history.find_processes(self.home, process):
                history.record(self.home, "kill", process, cause)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                assert exits_within(pid), f"{pid} survives SIGKILL"
        self.kills[victims] += 1

    def kill_at(self, point: Point, *, both: bool = False, passes: int = 0) -> None:
        """Kill a process when it reaches a point, and wait until it is dead and everything is up again."""
        armed = self.home / f"{killer.ARMED}.new"
        if point.is_start:
            self.kill(point.process, f"{point.name}/first")
        armed.write_text(f"{point.name} {passes} {'both' if both else 'self'} {next(self._numbers)}")
        armed.rename(self.home / killer.ARMED)
        deadline = time.monotonic() + TIMEOUT
        while not self._has_hit():
            assert time.monotonic() < deadline, f"{point.name} was not reached in {TIMEOUT:g} s"
            if point.is_start:  # it was up before it was armed, or had nothing to take over
                self.kill(point.process, f"{point.name}/first")
        (self.home / killer.HIT).unlink()
        self.kills["both" if both else point.process] += 1

    def _has_hit(self) -> bool:
        with suppress(AssertionError):
            eventually(lambda: (self.home / killer.HIT).exists() or self.records.faults, _RESTART_TIMEOUT)
        assert not self.records.faults, self.records.faults
        return (self.home / killer.HIT).exists()

    def kill_at_random(self, kills: int) -> None:
        """Kill processes at random moments, also before they are fully up."""
        for _ in range(kills):
            self._stop.wait(self.random.uniform(0.0, 1.5))
            self._suspend() if self.random.random() < 0.3 else self.kill(self.random.choice(VICTIMS))

    def _suspend(self) -> None:
        """Suspend the supervisor for a moment, then resume it, sometimes after a kill."""
        pids = history.find_processes(self.home, "supervisor")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        self._stop.wait(self.random.uniform(0.1, 1.0))
        victim = self.random.choice((None, "scheduler", "supervisor"))
        if victim is not None:
            self.kill(victim)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def wait_for_children(self, count: int) -> None:
        """Wait until this many children have begun: on a busy machine the load may start slowly."""

        def have_begun() -> bool:
            return sum(line.kind == "begin" for line in history.read_lines(self.home)) >= count

        eventually(have_begun, TIMEOUT, description=f"{count} children")

    # The end.

    def drain(self) -> None:
        """Wait until every client has its last response and every accepted job has ended."""
        self._stop_clients()
        deadline = time.monotonic() + TIMEOUT * 2
        while active := self._active_jobs():
            alive = history.find_home_processes(self.home)
            assert time.monotonic() < deadline, f"not ended: {active}; alive: {alive}"
            self.api("GET", f"/api/jobs/{active[0][0]}?wait=5")

    def _active_jobs(self) -> list[tuple[str, ...]]:
        statuses = "&".join(f"status={status}" for status in ACTIVE_STATUSES)
        jobs = self.api("GET", f"/api/jobs?limit=100&{statuses}")["jobs"]
        return [(job["id"], job["status"], str(job["pid"]), str(job["wait"]), job["command"][1]) for job in jobs]

    def stop(self) -> None:
        """Stop the scheduler regularly and do not restart it."""
        self._is_over = True
        for pid in history.find_processes(self.home, "scheduler"):
            os.kill(pid, signal.SIGTERM)
            assert exits_within(pid, TIMEOUT), f"{pid} does not end"

    def close(self) -> None:
        self._is_over = True
        self._stop.set()
        self.rota.close()
        self._manager.join(TIMEOUT)
