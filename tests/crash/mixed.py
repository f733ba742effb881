"""The load that uses every feature: at each kill, something of every kind is in progress."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota.client.requests.direct import run_direct
from rota.client.requests.jobs import ACTIVE_STATUSES, get_job, rewind_job, submit_batch, submit_job
from rota.errors import Conflict, ReservationTimeout
from tests.crash.load import Client, Submitted

MAX_ACTIVE_JOBS = 5
"""Active jobs of one client: the load is steady, and a lost job stops its client at once."""


def repository_path(home: Path) -> Path:
    """Return the path of the repository for worktrees."""
    return home.parent / "repository"


class MixedClient(Client):
    letter = "c"

    def act(self) -> None:
        self._random.choice(ACTIONS)(self)

    def _make_command(self) -> tuple[str, dict[str, Any]]:
        label, chance = self._make_label(), self._random
        code = chance.choice(["0", "0", "0", "0", "3", "flaky", "leaves"])
        fields: dict[str, Any] = {
            "command": [self._program, label, f"{chance.choice([0.01, 0.05, 0.3])}", code],
            "locks": chance.choice([[], [{"key": "repo"}], [{"key": "repo", "mode": "shared"}], [{"key": "branch"}]]),
            "pools": chance.choice([{}, {}, {"resource/gpu": 1}, {"resource/gpu": 2}]),
        }
        return label, fields

    def _make_job(self) -> tuple[str, dict[str, Any]]:
        label, fields = self._make_command()
        fields["retries"] = self._random.choice([0, 0, 2])
        if self._random.random() < 0.15:
            fields["skip_if"] = f"sleep {self._random.choice([0.01, 0.1])}; false"
        if self._random.random() < 0.1:
            fields |= {"worktree": True, "cwd": str(repository_path(self._home))}
        if self._jobs and self._random.random() < 0.3:
            policy = self._random.choice(["finished", "success", "failed"])
            fields["after"] = [{"job": self._random.choice(self._jobs[-8:]), "policy": policy}]
        return label, fields

    def submit(self) -> None:
        if len(self._active) >= MAX_ACTIVE_JOBS:
            self.wait()
            return
        label, fields = self._make_job()
        response = self._request_with_repeat(submit_job(key=label, **fields))
        self._record(label, fields, response["job"]["id"])

    def submit_group(self) -> None:
        if len(self._active) >= MAX_ACTIVE_JOBS:
            self.wait()
            return
        members = [self._make_job() for _ in range(3)]
        group: Any = {
            "mode": self._random.choice(["sequential", "parallel"]),
            "on_failure": self._random.choice(["stop", "continue", "skip"]),
        }
        jobs: Any = [fields for _, fields in members]
        response = self._request_with_repeat(submit_batch(jobs, group=group, key=members[0][0]))
        self._records.groups.add(response["group"])
        for (label, fields), job in zip(members, response["jobs"], strict=True):
            self._record(label, fields, job, group["on_failure"])

    def run_directly(self) -> None:
        label, fields = self._make_command()
        try:
            reservation = self._request(run_direct(key=label, wait="60s", **fields))["reservation"]
        except ReservationTimeout:
            reservation = {"status": "WAIT_OVER", "exit_code": None, "reason": ""}
        submitted = Submitted(locks=fields["locks"], pools=fields["pools"], reservation=reservation, is_direct=True)
        self._records.by_label[label] = submitted

    def wait(self) -> None:
        """Wait for the oldest job. A lost job never ends, which the judge detects."""
        if self._active:
            job = self._request(get_job(self._active[0], wait=1))
            if job["status"] not in ACTIVE_STATUSES:
                self._active.pop(0)

    def cancel(self) -> None:
        if self._active:
            self._cancel(self._random.choice(self._active))

    def run_and_cancel(self) -> None:
        """Cancel a long job while it runs."""
        if len(self._active) >= MAX_ACTIVE_JOBS:
            self.wait()
            return
        label, fields = self._make_job()
        fields |= {
            "command": [self._program, label, "0.01", "long"],
            "after": [],
            "locks": [],
            "pools": {},
            "priority": 9,
        }
        job = self._request(submit_job(key=label, **fields))["job"]["id"]
        self._record(label, fields, job)
        while self._request(get_job(job, wait=1, last_seen="QUEUED"))["status"] == "QUEUED" and not self._stop.is_set():
            pass
        self._cancel(job)

    def rewind(self) -> None:
        if self._jobs:
            try:
                result = self._request(rewind_job(self._random.choice(self._jobs[-8:]), key=self._make_label()))
            except Conflict:
                return  # one of the jobs is running
            self._records.rewound.update(result["reset"])
            self._active += [job for job in result["reset"] if job in self._jobs and job not in self._active]


ACTIONS: list[Callable[[MixedClient], None]] = [
    *[MixedClient.submit] * 8,
    *[MixedClient.submit_group] * 2,
    *[MixedClient.run_directly] * 2,
    *[MixedClient.wait] * 3,
    MixedClient.cancel,
    MixedClient.run_and_cancel,
    MixedClient.rewind,
]
"""Actions of a client, each as often in the list as it is likely."""
