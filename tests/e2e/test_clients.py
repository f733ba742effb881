"""Many clients at once, doing whatever they like to one scheduler: nothing is lost, and nobody waits for ever."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable

from e2e.rig import Rota
from rota.client import api
from rota.client.session import Session
from rota.errors import Conflict
from rota.home import Home

CLIENTS = 50
ACTS_EACH = 12
PATIENCE = 120


class Client:
    """One thread with the real client, and what it was told."""

    def __init__(self, home: Home, number: int) -> None:
        self.session = Session(home)
        self.random = random.Random(number)
        self.jobs: list[str] = []
        self.cancelled: set[str] = set()
        self.trouble: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            for _ in range(ACTS_EACH):
                self.random.choice(ACTS)(self)
        except BaseException as error:  # noqa: BLE001 - the test says so
            self.trouble = error

    def submit(self) -> None:
        after = [{"job": self.random.choice(self.jobs), "policy": "finished"}] if self.jobs else []
        wanted = {
            "command": ["true"],
            "locks": self.random.choice([[], [{"key": "repo"}], [{"key": "repo", "mode": "shared"}]]),
            "pools": self.random.choice([{}, {"resource/gpu": 1}, {"resource/gpu": 2}]),
            "flow": self.random.choice([None, "a", "b"]),
            "after": self.random.choice([[], after]),
        }
        self.jobs.append(api.submit(self.session, wanted)["job"]["id"])

    def cancel(self) -> None:
        if not self.jobs:
            return
        job = self.random.choice(self.jobs)
        try:
            if api.cancel(self.session, job)["status"] == "CANCELLED":  # or it ended first, and that stands
                self.cancelled.add(job)
        except Conflict:
            pass  # it had ended

    def set_pool(self) -> None:
        name = self.random.choice(["global", "resource/gpu", "flow/a"])
        api.set_pool(self.session, name, self.random.choice([0, 1, 3, 8]))

    def look(self) -> None:
        api.scheduler(self.session)
        if self.jobs:
            api.why(self.session, self.random.choice(self.jobs))


ACTS: list[Callable[[Client], None]] = [
    *[Client.submit] * 4,
    Client.cancel,
    Client.set_pool,
    Client.look,
]
"""What a client may do next; as often in the list as it is likely."""
LET_GO: list[tuple[str, str, object]] = [
    ("PUT", "/api/pools/global", {"size": 16}),
    ("PUT", "/api/pools/resource/gpu", {"size": 16}),
    ("PUT", "/api/pools/flow/a", {"size": -1}),
    ("PUT", "/api/pools/flow/b", {"size": -1}),
]
"""What undoes whatever they left behind that holds jobs."""


def test_fifty_clients_at_once_lose_nothing(rota: Rota) -> None:
    """LESSONS Store: 20 writers: about half the writes silently lost."""
    rota.start()
    clients = [Client(Home(rota.home), number) for number in range(CLIENTS)]
    for client in clients:
        client.thread.start()
    for client in clients:
        client.thread.join(PATIENCE)
    assert [client for client in clients if client.thread.is_alive()] == [], "somebody still waits"
    assert [client.trouble for client in clients if client.trouble is not None] == []
    for method, target, body in LET_GO:
        assert rota.api(method, target, body).status == 200
    jobs = [job for client in clients for job in client.jobs]
    assert max(Counter(jobs).values()) == 1, "two were given one number"
    shown = {job: rota.ended(job) for job in jobs}
    assert {job["id"] for job in rota.jobs()} == set(jobs)
    cancelled = {job for client in clients for job in client.cancelled}
    for job, form in shown.items():
        assert form["status"] == "CANCELLED" if job in cancelled else form["status"] == "COMPLETED", form
        assert (form["run"] is not None) or form["status"] == "CANCELLED"
    status = rota.status()
    assert (status["running"], status["queued"], status["trouble"]) == (0, 0, [])
    assert {pool["used"] for pool in status["pools"].values()} == {0}
