"""The load with everything in it: whoever is killed, something of each kind is under way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from crash.load import Client, Told
from rota.client.ask.job import ACTIVE, get_job, rewind_job, submit_batch, submit_job
from rota.client.ask.slot import run_direct
from rota.errors import Conflict, WaitOver

MOST_OPEN = 5
"""Jobs of one client that have not ended: the load is steady, and what was lost is missed at once."""


def repository(home: Path) -> Path:
    """What worktrees are made of."""
    return home.parent / "repository"


class Mixed(Client):
    letter = "c"

    def act(self) -> None:
        self._random.choice(ACTS)(self)

    def _wanted(self) -> tuple[str, dict[str, Any]]:
        label, chance = self._label(), self._random
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
            wanted |= {"worktree": True, "cwd": str(repository(self._home))}
        if self._mine and self._random.random() < 0.3:
            policy = self._random.choice(["finished", "success", "failed"])
            wanted["after"] = [{"job": self._random.choice(self._mine[-8:]), "policy": policy}]
        return label, wanted

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
            try:
                report = self._ask(rewind_job(self._random.choice(self._mine[-8:]), key=self._label()))
            except Conflict:
                return  # some of it runs
            self._records.rewound.update(report["reset"])
            self._open += [job for job in report["reset"] if job in self._mine and job not in self._open]


ACTS: list[Callable[[Mixed], None]] = [
    *[Mixed.submit] * 8,
    *[Mixed.submit_group] * 2,
    *[Mixed.run_directly] * 2,
    *[Mixed.wait] * 3,
    Mixed.cancel,
    Mixed.run_and_cancel,
    Mixed.rewind,
]
"""What a client may do next; as often in the list as it is likely."""
