"""Many concurrent clients with random requests to one scheduler: no job is lost, and no client blocks forever."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rota.client.requests.control import clear, get_scheduler, pause, resume, set_pool
from rota.client.requests.direct import list_reservations, run_direct
from rota.client.requests.jobs import cancel_job, edit_job, explain_job, move_job, reorder_queue, submit_job
from rota.client.session import SchedulerSession
from rota.errors import Conflict, NotFound, ReservationTimeout
from rota.home import Home
from tests.e2e.rig import Rota

CLIENTS = 50
ACTIONS_PER_CLIENT = 16
TIMEOUT = 120
CLEARED_FLOW = "c"
"""Flow that clients clear. Jobs of other flows are only cancelled by id."""
PAUSED_SCOPES = ("global", "flow/a", "flow/b")


class Client:
    """Thread with the real client that records its jobs and cancels."""

    def __init__(self, home: Home, number: int) -> None:
        self.session = SchedulerSession(home)
        self.random = random.Random(number)
        self.jobs: list[str] = []
        self.cancelled: set[str] = set()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            for _ in range(ACTIONS_PER_CLIENT):
                self.random.choice(ACTIONS)(self)
        except BaseException as error:  # noqa: BLE001 - the test reports it
            self.error = error

    def submit(self) -> None:
        after = [{"job": self.random.choice(self.jobs), "policy": "finished"}] if self.jobs else []
        request: dict[str, Any] = {
            "command": ["true"],
            "locks": self.random.choice([[], [{"key": "repo"}], [{"key": "repo", "mode": "shared"}]]),
            "pools": self.random.choice([{}, {"resource/gpu": 1}, {"resource/gpu": 2}]),
            "flow": self.random.choice([None, "a", "b", CLEARED_FLOW]),
            "after": self.random.choice([[], after]),
        }
        self.jobs.append(self.session.request_json(submit_job(**request))["job"]["id"])

    def cancel(self) -> None:
        if not self.jobs:
            return
        job = self.random.choice(self.jobs)
        try:
            if self.session.request_json(cancel_job(job))["status"] == "CANCELLED":  # otherwise the job ended first
                self.cancelled.add(job)
        except Conflict:
            pass  # it had ended

    def set_pool(self) -> None:
        name = self.random.choice(["global", "resource/gpu", "flow/a"])
        self.session.request_json(set_pool(name, self.random.choice([0, 1, 3, 8])))

    def rearrange(self) -> None:
        """Move one job or reorder several of its own. Started jobs are refused."""
        with suppress(Conflict):
            if len(self.jobs) < 2 or self.random.random() < 0.5:
                for job in self.jobs[-1:]:
                    self.session.request_json(self.random.choice([move_job(job, first=True), move_job(job, last=True)]))
            else:
                self.session.request_json(reorder_queue(self.random.sample(self.jobs[-4:], 2)))

    def edit(self) -> None:
        with suppress(Conflict):
            for job in self.jobs[-1:]:
                change: dict[str, Any] = self.random.choice(
                    [{"priority": self.random.randint(-2, 2)}, {"delay": "100ms"}]
                )
                self.session.request_json(edit_job(job, **change))

    def pause(self) -> None:
        self.session.request_json(pause(self.random.choice(PAUSED_SCOPES)))

    def resume(self) -> None:
        with suppress(NotFound):  # no job has drawn from it yet
            self.session.request_json(resume(self.random.choice(PAUSED_SCOPES)))

    def clear(self) -> None:
        with suppress(NotFound):  # no job has drawn from it yet
            self.session.request_json(clear(f"flow/{CLEARED_FLOW}"))

    def run_directly(self) -> None:
        """Run a direct execution. It completes, or it times out without having run."""
        body: dict[str, Any] = {
            "command": ["echo", "here"],
            "locks": self.random.choice([[], [{"key": "repo"}], [{"key": "repo", "mode": "shared"}]]),
            "flow": self.random.choice([None, "a"]),
            "wait": "1s",
        }
        try:
            output = self.session.request_json(run_direct(**body))
        except ReservationTimeout:
            return
        assert (output["reservation"]["status"], output["stdout"]) == ("COMPLETED", "here\n"), output

    def read_state(self) -> None:
        self.session.request_json(get_scheduler())
        self.session.request_json(list_reservations())
        if self.jobs:
            self.session.request_json(explain_job(self.random.choice(self.jobs)))


ACTIONS: list[Callable[[Client], None]] = [
    *[Client.submit] * 6,
    Client.cancel,
    Client.set_pool,
    *[Client.rearrange] * 2,
    Client.edit,
    Client.pause,
    *[Client.resume] * 2,
    Client.clear,
    Client.run_directly,
    Client.read_state,
]
"""Actions of a client. The number of occurrences is the weight of an action."""
RELEASE_REQUESTS: list[tuple[str, str, object]] = [
    ("PUT", "/api/pools/global", {"size": 16}),
    ("PUT", "/api/pools/resource/gpu", {"size": 16}),
    ("PUT", "/api/pools/flow/a", {"size": -1}),
    ("PUT", "/api/pools/flow/b", {"size": -1}),
    *(("POST", "/api/scheduler/resume", {"scope": scope}) for scope in PAUSED_SCOPES),
]
"""Requests that release all jobs that the clients left held."""


def test_fifty_concurrent_clients_lose_no_job(rota: Rota) -> None:
    """LESSONS Store: 20 writers: about half the writes silently lost."""
    rota.start()
    clients = [Client(Home(rota.home), number) for number in range(CLIENTS)]
    for client in clients:
        client.thread.start()
    for client in clients:
        client.thread.join(TIMEOUT)
    assert [client for client in clients if client.thread.is_alive()] == [], "a client is blocked"
    assert [client.error for client in clients if client.error is not None] == []
    for method, target, body in RELEASE_REQUESTS:
        assert rota.api(method, target, body).status == 200
    jobs = [job for client in clients for job in client.jobs]
    assert max(Counter(jobs).values()) == 1, "two jobs have the same id"
    shown = {job: rota.wait_for_end(job) for job in jobs}
    assert {job["id"] for job in rota.jobs()} == set(jobs)
    cancelled = {job for client in clients for job in client.cancelled}
    for job, record in shown.items():
        is_cleared = record["flow"] == CLEARED_FLOW and record["reason"] == "cleared"
        assert record["status"] == ("CANCELLED" if job in cancelled or is_cleared else "COMPLETED"), record
        assert (record["run"] is not None) or record["status"] == "CANCELLED"
    status = rota.status()
    assert (status["running"], status["queued"], status["errors"]) == (0, 0, [])
    assert {pool["used"] for pool in status["pools"].values()} == {0}
    assert (rota.api("GET", "/api/reservations").json(), rota.api("GET", "/api/locks").json()["locks"]) == (
        {"reservations": [], "next": None},
        [],
    )
