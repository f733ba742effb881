"""Clients that go on whatever dies: each asks with a key, and asks again with the same until it is answered.

What each was told is remembered by the label of its command, which every child of it writes down: that is what the
judge goes by.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from crash import witness
from rota.client.ask import Ask
from rota.client.ask.job import ACTIVE, cancel_job, get_job, rewind_job, submit_batch, submit_job
from rota.client.ask.slot import run_direct
from rota.client.carry import run
from rota.client.session import Blocking
from rota.client.transport import HomeSocket
from rota.errors import Conflict, InFlight, RotaError, WaitOver
from rota.home import Home

POOLS = {"global": 6, "resource/gpu": 2}
MOST_OPEN = 5
"""Jobs of one client that have not ended: the load is steady, and what was lost is missed at once."""
_PAUSE = 0.03


def repository(home: Path) -> Path:
    """What worktrees are made of."""
    return home.parent / "repository"


class Told(msgspec.Struct):
    """What one label stands for, and what its client was told."""

    locks: list[dict[str, str]] = []
    pools: dict[str, int] = {}
    retries: int = 0
    after: list[dict[str, str]] = []
    jobs: list[str] = []
    """The first of each chain."""
    slot: dict[str, Any] | None = None
    """What a direct execution came to."""
    is_direct: bool = False
    worktree: bool = False
    """It works in a worktree of its own, and leaves a patch."""
    skip_if: str = ""
    on_failure: str = ""
    """The policy of the group that it was submitted with."""

    @property
    def has_steps(self) -> bool:
        """Its runs have other processes than the command."""
        return self.worktree or bool(self.skip_if)


class Records:
    """Of all clients together."""

    def __init__(self) -> None:
        self.told: dict[str, Told] = {}
        self.rewound: Counter[str] = Counter()
        """Jobs, and how often they were put back."""
        self.cancelled: set[str] = set()
        """Jobs of which somebody asked that they end."""
        self.groups: set[str] = set()
        self.repeats = 0
        """Answers that were asked for a second time, and were the same."""
        self.faults: list[str] = []
        """What no client should ever be told."""


class Client:
    def __init__(self, home: Path, number: int, seed: int, records: Records, stop: threading.Event) -> None:
        self._carrier = Blocking(HomeSocket(Home(home)), None, starts=False)  # which does not say what it waits for
        self._program = witness.program(home)
        self._repository = str(repository(home))
        self._random = random.Random(f"{seed}.{number}")
        self._name = f"c{number}"
        self._count = 0
        self._open: list[str] = []
        self._mine: list[str] = []
        self._records = records
        self._stop = stop
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, patience: float) -> bool:
        """Whether it has had its last answer."""
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._random.choice(ACTS)(self)
                self._stop.wait(_PAUSE)
        except BaseException as error:  # noqa: BLE001 - the judge says so
            self._records.faults.append(f"{self._name}: {error!r}")

    def _ask(self, ask: Ask) -> Any:
        """Until there is an answer, be it a refusal. One who gives up would not know what became of it."""
        while True:
            try:
                return run(self._carrier.ask(ask)).json()
            except InFlight:
                pass  # the scheduler has not noticed yet that our connection of before is gone
            except (Conflict, WaitOver):
                raise
            except RotaError as error:
                if error.status < 500:
                    raise
            self._stop.wait(_PAUSE) or threading.Event().wait(_PAUSE)

    def _ask_twice(self, ask: Ask) -> Any:
        """Now and then once more, as somebody who has lost the answer does: it is the same."""
        answer = self._ask(ask)
        if self._random.random() < 0.2:
            again = self._ask(ask)
            self._records.repeats += 1
            if again != answer:
                self._records.faults.append(f"{ask} was answered {answer}, and then {again}")
        return answer

    # What it may want.

    def _wanted(self) -> tuple[str, dict[str, Any]]:
        self._count += 1
        label, chance = f"{self._name}.{self._count}", self._random
        code = chance.choice(["0", "0", "0", "0", "3", "flaky", "leaves"])
        wanted: dict[str, Any] = {
            "command": [self._program, label, f"{chance.choice([0.01, 0.05, 0.3])}", code],
            "locks": chance.choice([[], [{"key": "repo"}], [{"key": "repo", "mode": "shared"}], [{"key": "branch"}]]),
            "pools": chance.choice([{}, {}, {"resource/gpu": 1}, {"resource/gpu": 2}]),
        }
        return label, wanted

    def _wanted_job(self) -> tuple[str, dict[str, Any]]:
        label, wanted = self._wanted()
        wanted["retries"] = self._random.choice([0, 0, 2])
        if self._random.random() < 0.15:
            wanted["skip_if"] = f"sleep {self._random.choice([0.01, 0.1])}; false"
        if self._random.random() < 0.1:
            wanted |= {"worktree": True, "cwd": self._repository}
        if self._mine and self._random.random() < 0.3:
            policy = self._random.choice(["finished", "success", "failed"])
            wanted["after"] = [{"job": self._random.choice(self._mine[-8:]), "policy": policy}]
        return label, wanted

    def _remember(self, label: str, wanted: dict[str, Any], job: str, on_failure: str = "") -> None:
        fields = {
            name: wanted[name]
            for name in ("locks", "pools", "retries", "after", "worktree", "skip_if")
            if name in wanted
        }
        self._records.told[label] = Told(**fields, jobs=[job], on_failure=on_failure)
        self._mine.append(job)
        self._open.append(job)

    def submit(self) -> None:
        if len(self._open) >= MOST_OPEN:
            self.wait()
            return
        label, wanted = self._wanted_job()
        answer = self._ask_twice(submit_job(key=label, **wanted))
        self._remember(label, wanted, answer["job"]["id"])

    def submit_group(self) -> None:
        if len(self._open) >= MOST_OPEN:
            self.wait()
            return
        asked = [self._wanted_job() for _ in range(3)]
        group: Any = {
            "mode": self._random.choice(["sequential", "parallel"]),
            "on_failure": self._random.choice(["stop", "continue", "skip"]),
        }
        jobs: Any = [wanted for _, wanted in asked]
        answer = self._ask_twice(submit_batch(jobs, group=group, key=asked[0][0]))
        self._records.groups.add(answer["group"])
        for (label, wanted), job in zip(asked, answer["jobs"], strict=True):
            self._remember(label, wanted, job, group["on_failure"])

    def run_directly(self) -> None:
        label, wanted = self._wanted()
        try:
            slot = self._ask(run_direct(key=label, wait="60s", **wanted))["slot"]
        except WaitOver:
            slot = {"status": "WAIT_OVER", "exit_code": None, "reason": ""}
        told = Told(locks=wanted["locks"], pools=wanted["pools"], slot=slot, is_direct=True)
        self._records.told[label] = told

    def wait(self) -> None:
        """The oldest ends, or something is lost; the judge sees that in the end."""
        if self._open:
            shown = self._ask(get_job(self._open[0], wait=1))
            if shown["status"] not in ACTIVE:
                self._open.pop(0)

    def cancel(self) -> None:
        if self._open:
            self._cancel(self._random.choice(self._open))

    def _cancel(self, job: str) -> None:
        self._records.cancelled.add(job)
        with suppress(Conflict):  # it had ended
            self._ask(cancel_job(job))

    def run_and_cancel(self) -> None:
        """One that would take too long: it is ended while it runs."""
        if len(self._open) >= MOST_OPEN:
            self.wait()
            return
        label, wanted = self._wanted_job()
        wanted |= {
            "command": [self._program, label, "0.01", "long"],
            "after": [],
            "locks": [],
            "pools": {},
            "priority": 9,
        }
        job = self._ask(submit_job(key=label, **wanted))["job"]["id"]
        self._remember(label, wanted, job)
        while self._ask(get_job(job, wait=1, seen="QUEUED"))["status"] == "QUEUED" and not self._stop.is_set():
            pass
        self._cancel(job)

    def rewind(self) -> None:
        if self._mine:
            self._count += 1
            try:
                report = self._ask(rewind_job(self._random.choice(self._mine[-8:]), key=f"{self._name}.{self._count}"))
            except Conflict:
                return  # some of it runs
            self._records.rewound.update(report["reset"])
            self._open += [job for job in report["reset"] if job in self._mine and job not in self._open]


ACTS: list[Callable[[Client], None]] = [
    *[Client.submit] * 8,
    *[Client.submit_group] * 2,
    *[Client.run_directly] * 2,
    *[Client.wait] * 3,
    Client.cancel,
    Client.run_and_cancel,
    Client.rewind,
]
"""What a client may do next; as often in the list as it is likely."""
