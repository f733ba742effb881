"""Back-pressure with real commands and real load."""

from __future__ import annotations

import threading
from typing import Any

from e2e.rig import Rota, Stage, eventually


def limit(rota: Rota, **figures: int | str) -> None:
    for name, figure in figures.items():
        rota.ask("config", "set", f"queue.{name}", str(figure))


def test_a_full_queue_says_so_and_leaves_no_trace(rota: Rota, stage: Stage) -> None:
    limit(rota, hard_limit="auto", soft_limit="auto")
    rota.submit("--flow", "plan", *stage.actor("busy"))
    for _ in range(7):
        assert rota.ask("submit", "--", "true").err == ""
    warned = rota.json("submit", "--flow", "plan", "--", "true")
    assert warned["result"] == "submitted"
    assert warned["warning"] == "Queue delayed; respecting caps: 8 ready (by flow: plan 1)"
    assert warned["depth"] == {"total": 8, "soft": 8, "hard": 16, "by_flow": {"plan": 1}}
    assert "Queue delayed; respecting caps" in rota.ask("submit", "--", "true").err
    for _ in range(7):
        rota.post(["true"])
    said = rota.ask("--json", "submit", "--unique", "card", "--", "true", code=75)
    assert said.json()["result"] == "deferred"
    assert said.json()["job"] is None
    assert said.json()["depth"]["total"] == 16
    assert "the queue is full, 16 of 16 ready; nothing was stored" in said.err
    assert rota.status()["depth"] == {"total": 16, "soft": 8, "hard": 16, "by_flow": {"plan": 1}}
    assert "16 (soft 8, hard 16, flow plan 1)" in rota.ask("status").out
    assert len(rota.jobs()) == 17
    connection = rota.connection()
    connection.request("POST", "/api/jobs", '{"command": ["true"]}')
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert (response.status, response.getheader("retry-after")) == (429, "5")
    assert response.getheader("content-type") == "application/problem+json"
    assert b'"code":"deferred"' in body
    batch = rota.api("POST", "/api/jobs/batch", {"jobs": [{"command": ["true"]}] * 3})
    assert (batch.status, batch.json()["result"]) == (429, "deferred")
    rota.ask("pool", "set", "global", "5")
    assert rota.submit("--unique", "card", "--", "true") == "job-18"
    stage.release("busy")


def test_under_load_the_hard_limit_holds_and_who_tries_again_gets_everything_in(rota: Rota) -> None:
    """Eight clients with five jobs each, as scripts do it: `until rota submit …; do sleep; done`."""
    limit(rota, hard_limit=4)
    rota.start()
    rota.set_global(0)
    depths, put_off = list[int](), list[str]()
    submitting = threading.Event()

    def watch() -> None:
        while not submitting.is_set():
            depths.append(rota.status()["depth"]["total"])

    def client(name: int) -> None:
        for n in range(5):

            def submitted(what: str = f"{name}-{n}") -> bool:
                said = rota.ask("submit", "--name", what, "--", "true", code=None)
                assert said.code in (0, 75), said
                if said.code == 75:
                    assert said.out == ""
                    put_off.append(what)
                return said.code == 0

            eventually(submitted, patience=120, what=f"{name}-{n} submitted")

    watcher = threading.Thread(target=watch)
    clients = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for thread in (watcher, *clients):
        thread.start()
    eventually(lambda: len(put_off) >= 8, what="a full queue")
    rota.set_global(2)
    for thread in clients:
        thread.join()
    submitting.set()
    watcher.join()
    assert max(depths) == 4, depths
    jobs: list[dict[str, Any]] = rota.jobs()
    assert sorted(job["name"] for job in jobs) == sorted(f"{name}-{n}" for name in range(8) for n in range(5))
    assert [job["id"] for job in jobs] == [f"job-{n}" for n in range(1, 41)], "no number was used up"
    rota.wait(*(job["id"] for job in jobs))
