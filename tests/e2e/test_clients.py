"""Many clients at once, doing whatever they like to one scheduler: nothing is lost, and nobody waits for ever."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from e2e.rig import Rota
from rota.client.ask.job import cancel_job, edit_job, move_job, submit_job, why_job
from rota.client.ask.queue import reorder_queue
from rota.client.ask.scheduler import clear, get_scheduler, pause, resume, set_pool
from rota.client.ask.slot import list_slots, run_direct
from rota.client.session import Session
from rota.errors import Conflict, WaitOver
from rota.home import Home

CLIENTS = 50
ACTS_EACH = 16
PATIENCE = 120
CLEARED = "c"
"""The flow that is cleared now and then; what waits in the others is only cancelled by name."""
PAUSED = ("global", "flow/a", "flow/b")


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
        wanted: dict[str, Any] = {
            "command": ["true"],
            "locks": self.random.choice([[], [{"key": "repo"}], [{"key": "repo", "mode": "shared"}]]),
            "pools": self.random.choice([{}, {"resource/gpu": 1}, {"resource/gpu": 2}]),
            "flow": self.random.choice([None, "a", "b", CLEARED]),
            "after": self.random.choice([[], after]),
        }
        self.jobs.append(self.session.ask(submit_job(**wanted))["job"]["id"])

    def cancel(self) -> None:
        if not self.jobs:
            return
        job = self.random.choice(self.jobs)
        try:
            if self.session.ask(cancel_job(job))["status"] == "CANCELLED":  # or it ended first, and that stands
                self.cancelled.add(job)
        except Conflict:
            pass  # it had ended

    def set_pool(self) -> None:
        name = self.random.choice(["global", "resource/gpu", "flow/a"])
        self.session.ask(set_pool(name, self.random.choice([0, 1, 3, 8])))

    def rearrange(self) -> None:
        """One job, or several of its own, before whatever waits; what has begun meanwhile stays."""
        with suppress(Conflict):
            if len(self.jobs) < 2 or self.random.random() < 0.5:
                for job in self.jobs[-1:]:
                    self.session.ask(self.random.choice([move_job(job, first=True), move_job(job, last=True)]))
            else:
                self.session.ask(reorder_queue(self.random.sample(self.jobs[-4:], 2)))

    def edit(self) -> None:
        with suppress(Conflict):
            for job in self.jobs[-1:]:
                change: dict[str, Any] = self.random.choice(
                    [{"priority": self.random.randint(-2, 2)}, {"delay": "100ms"}]
                )
                self.session.ask(edit_job(job, **change))

    def pause(self) -> None:
        self.session.ask(pause(self.random.choice(PAUSED)))

    def resume(self) -> None:
        self.session.ask(resume(self.random.choice(PAUSED)))

    def clear(self) -> None:
        self.session.ask(clear(f"flow/{CLEARED}"))

    def run_directly(self) -> None:
        """It has its turn and comes to its end, or did not have it in time; then nothing of it ran."""
        body: dict[str, Any] = {
            "command": ["echo", "here"],
            "locks": self.random.choice([[], [{"key": "repo"}], [{"key": "repo", "mode": "shared"}]]),
            "flow": self.random.choice([None, "a"]),
            "wait": "1s",
        }
        try:
            said = self.session.ask(run_direct(**body))
        except WaitOver:
            return
        assert (said["slot"]["status"], said["stdout"]) == ("COMPLETED", "here\n"), said

    def look(self) -> None:
        self.session.ask(get_scheduler())
        self.session.ask(list_slots())
        if self.jobs:
            self.session.ask(why_job(self.random.choice(self.jobs)))


ACTS: list[Callable[[Client], None]] = [
    *[Client.submit] * 6,
    Client.cancel,
    Client.set_pool,
    *[Client.rearrange] * 2,
    Client.edit,
    Client.pause,
    *[Client.resume] * 2,
    Client.clear,
    Client.run_directly,
    Client.look,
]
"""What a client may do next; as often in the list as it is likely."""
LET_GO: list[tuple[str, str, object]] = [
    ("PUT", "/api/pools/global", {"size": 16}),
    ("PUT", "/api/pools/resource/gpu", {"size": 16}),
    ("PUT", "/api/pools/flow/a", {"size": -1}),
    ("PUT", "/api/pools/flow/b", {"size": -1}),
    *(("POST", "/api/scheduler/resume", {"scope": scope}) for scope in PAUSED),
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
        is_cleared = form["flow"] == CLEARED and form["reason"] == "cleared"
        assert form["status"] == ("CANCELLED" if job in cancelled or is_cleared else "COMPLETED"), form
        assert (form["run"] is not None) or form["status"] == "CANCELLED"
    status = rota.status()
    assert (status["running"], status["queued"], status["trouble"]) == (0, 0, [])
    assert {pool["used"] for pool in status["pools"].values()} == {0}
    assert (rota.api("GET", "/api/slots").json(), rota.api("GET", "/api/locks").json()["locks"]) == (
        {"slots": [], "next": None},
        [],
    )
