"""Backpressure with real commands under load."""

from __future__ import annotations

import threading
from typing import Any

from tests.e2e.rig import ChildControl, Rota, eventually


def configure_queue(rota: Rota, **limits: int | str) -> None:
    for name, value in limits.items():
        rota.run("config", "set", f"queue.{name}", str(value))


def test_full_queue_warns_then_defers_and_stores_nothing(rota: Rota, children: ChildControl) -> None:
    configure_queue(rota, hard_limit="auto", soft_limit="auto")
    rota.submit("--flow", "plan", *children.gated("busy"))
    for _ in range(7):
        assert rota.run("submit", "--", "true").err == ""
    warned = rota.json("submit", "--flow", "plan", "--", "true")
    assert warned["result"] == "submitted"
    assert warned["warning"] == "Queue delayed; respecting caps: 8 ready (by flow: plan 1)"
    assert warned["depth"] == {"total": 8, "soft": 8, "hard": 16, "by_flow": {"plan": 1}}
    assert "Queue delayed; respecting caps" in rota.run("submit", "--", "true").err
    for _ in range(7):
        rota.post_job(["true"])
    output = rota.run("--json", "submit", "--unique", "card", "--", "true", code=75)
    assert output.json()["result"] == "deferred"
    assert output.json()["job"] is None
    assert output.json()["depth"]["total"] == 16
    assert "the queue is full, 16 of 16 ready; nothing was stored" in output.err
    assert rota.status()["depth"] == {"total": 16, "soft": 8, "hard": 16, "by_flow": {"plan": 1}}
    assert "16 (soft 8, hard 16, flow plan 1)" in rota.run("status").out
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
    rota.run("pool", "set", "global", "5")
    assert rota.submit("--unique", "card", "--", "true") == "job-18"
    children.release("busy")


def test_hard_limit_holds_under_load_and_repeated_submits_succeed(rota: Rota) -> None:
    """Eight clients submit five jobs each, as a script does with `until rota submit …; do sleep; done`."""
    configure_queue(rota, hard_limit=4)
    rota.start()
    rota.set_global_size(0)
    depths, deferred = list[int](), list[str]()
    submitting = threading.Event()

    def record_depths() -> None:
        while not submitting.is_set():
            depths.append(rota.status()["depth"]["total"])

    def submit_five(name: int) -> None:
        for n in range(5):

            def submitted(job_name: str = f"{name}-{n}") -> bool:
                output = rota.run("submit", "--name", job_name, "--", "true", code=None)
                assert output.code in (0, 75), output
                if output.code == 75:
                    assert output.out == ""
                    deferred.append(job_name)
                return output.code == 0

            eventually(submitted, timeout=120, description=f"{name}-{n} submitted")

    watcher = threading.Thread(target=record_depths)
    clients = [threading.Thread(target=submit_five, args=(n,)) for n in range(8)]
    for thread in (watcher, *clients):
        thread.start()
    eventually(lambda: len(deferred) >= 8, description="a full queue")
    rota.set_global_size(2)
    for thread in clients:
        thread.join()
    submitting.set()
    watcher.join()
    assert max(depths) == 4, depths
    jobs: list[dict[str, Any]] = rota.jobs()
    assert sorted(job["name"] for job in jobs) == sorted(f"{name}-{n}" for name in range(8) for n in range(5))
    assert [job["id"] for job in jobs] == [f"job-{n}" for n in range(1, 41)], "deferred submits use no job number"
    rota.wait(*(job["id"] for job in jobs))
