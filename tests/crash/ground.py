"""One home under load: who brings a killed scheduler back, and everything that can be killed."""

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
from crash import strike, witness
from crash.brief import Brief
from crash.load import POOLS, Client, Records
from crash.mixed import Mixed, repository
from crash.point import Load, Point
from e2e.rig import Rota, ends_within, eventually
from repository import Repository
from rota.client.ask.job import ACTIVE

LOADS: Mapping[Load, type[Client]] = {"brief": Brief, "mixed": Mixed}
VICTIMS = ("scheduler", "supervisor", "both")
PATIENCE = 60.0
_CLIENTS = 4
_TESTS = Path(__file__).parent.parent
_SOURCE = Path(rota.__file__).parent.parent
"""What is killed is what is imported here, in whichever tree that is."""
_A_WHILE = 6.0
"""Seconds in which a process that was killed is up again, also on a busy machine."""
_AGAIN = 0.05
"""Seconds before a scheduler that has ended is started again, as a service manager does."""


class Ground:
    def __init__(self, place: Path, *, url: str | None = None, seed: int = 0) -> None:
        self.home = place / "home"
        self.home.mkdir(parents=True, mode=0o700)
        self._configure(url)
        Repository(repository(self.home))
        witness.put_program(self.home)
        self.rota = Rota(self.home, place, PYTHONPATH=f"{_TESTS / 'crash' / 'hook'}:{_TESTS}:{_SOURCE}")
        self.records = Records()
        self.random = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.starts = 0
        self._seed = seed
        self._stop = threading.Event()
        """For the clients of now."""
        self._clients: list[Client] = []
        self._numbers = itertools.count()
        self._is_over = False
        self._manager = threading.Thread(target=self._manage, daemon=True)

    def _configure(self, url: str | None) -> None:
        store = f'[store]\nurl = "{url}"\n' if url else ""
        pools = "".join(f'"{name}" = {size}\n' for name, size in POOLS.items())
        (self.home / "rota.toml").write_text(
            f'[pools]\n{pools}[retry]\nbase = "50ms"\n[server]\nport = "off"\n'
            f'[breaker]\nfailures = "off"\n{store}'
        )  # fmt: skip

    def begin(self) -> None:
        self._manager.start()
        self.status()

    def put_under(self, load: Load) -> None:
        """From now on; those of another load have their last answer first, and what they asked for may go on."""
        self._dismiss()
        self._stop = threading.Event()
        self._clients = [
            LOADS[load](self.home, number, self._seed, self.records, self._stop) for number in range(_CLIENTS)
        ]
        for client in self._clients:
            client.start()

    def _dismiss(self) -> None:
        self._stop.set()
        late = [client for client in self._clients if not client.join(PATIENCE * 2)]
        assert not late, f"{len(late)} clients still wait for an answer: {self.status()}"

    def _manage(self) -> None:
        with (self.home / "rota.log").open("ab") as log:
            while not self._is_over:
                self.starts += 1
                with subprocess.Popen(
                    self.rota.argv("serve"), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                    env=self.rota.env, start_new_session=True,
                ) as process:  # fmt: skip
                    process.wait()
                time.sleep(_AGAIN)

    def api(self, method: str, target: str) -> Any:
        """The answer of the scheduler, waited for while there is none."""

        def ask() -> Any:
            with suppress(OSError):
                answer = self.rota.api(method, target)
                return answer.json() if answer.status == 200 else None
            return None

        return eventually(ask, PATIENCE, what=f"an answer to {method} {target}")

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api("GET", "/api/scheduler")
        return found

    # Faults.

    def kill(self, victims: str, what: str = "random/0") -> None:
        """As `kill -9` does. Of both the scheduler goes first, for it would start the other again."""
        processes = ("scheduler", "supervisor") if victims == "both" else (victims,)
        for process in processes:
            for pid in witness.processes(self.home, process):
                witness.mark(self.home, "kill", process, what)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                assert ends_within(pid), f"{pid} survives SIGKILL"
        self.kills[victims] += 1

    def strike(self, point: Point, *, both: bool = False, passes: int = 0) -> None:
        """Kill a process when it comes to a point, and be back when it is dead and everything is up again."""
        armed = self.home / f"{strike.ARMED}.new"
        if point.is_start:
            self.kill(point.process, f"{point.name}/first")
        armed.write_text(f"{point.name} {passes} {'both' if both else 'self'} {next(self._numbers)}")
        armed.rename(self.home / strike.ARMED)
        deadline = time.monotonic() + PATIENCE
        while not self._has_struck():
            assert time.monotonic() < deadline, f"{point.name} was not reached in {PATIENCE:g} s"
            if point.is_start:  # it was up before it was armed, or had nothing to take over
                self.kill(point.process, f"{point.name}/first")
        (self.home / strike.STRUCK).unlink()
        self.kills["both" if both else point.process] += 1

    def _has_struck(self) -> bool:
        with suppress(AssertionError):
            eventually(lambda: (self.home / strike.STRUCK).exists() or self.records.faults, _A_WHILE)
        assert not self.records.faults, self.records.faults
        return (self.home / strike.STRUCK).exists()

    def roam(self, kills: int) -> None:
        """Somebody dies every now and then, also before he is quite up."""
        for _ in range(kills):
            self._stop.wait(self.random.uniform(0.0, 1.5))
            self.kill(self.random.choice(VICTIMS))

    def wait_for_work(self, runs: int) -> None:
        """On a busy machine the load may only be getting under way when the last kill is over."""

        def begun() -> bool:
            return sum(line.kind == "begin" for line in witness.read(self.home)) >= runs

        eventually(begun, PATIENCE, what=f"{runs} children")

    # The end.

    def drain(self) -> None:
        """Everybody has his last answer, and all that was accepted has ended."""
        self._dismiss()
        deadline = time.monotonic() + PATIENCE * 2
        while left := self._active():
            assert time.monotonic() < deadline, f"not ended: {left}; alive: {witness.of_home(self.home)}"
            self.api("GET", f"/api/jobs/{left[0][0]}?wait=5")

    def _active(self) -> list[tuple[str, ...]]:
        jobs = self.api("GET", f"/api/jobs?limit=100&{'&'.join(f'status={each}' for each in ACTIVE)}")["jobs"]
        return [(job["id"], job["status"], str(job["pid"]), str(job["wait"]), job["command"][1]) for job in jobs]

    def stop(self) -> None:
        """In good order, and for good."""
        self._is_over = True
        for pid in witness.processes(self.home, "scheduler"):
            os.kill(pid, signal.SIGTERM)
            assert ends_within(pid, PATIENCE), f"{pid} does not end"

    def close(self) -> None:
        self._is_over = True
        self._stop.set()
        self.rota.close()
        self._manager.join(PATIENCE)
