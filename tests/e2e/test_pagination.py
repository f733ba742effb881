"""A list that changes while its pages are read, and a body sent to an endpoint without one."""

from __future__ import annotations

import pytest

from tests.e2e.rig import Rota


def test_next_page_continues_after_a_moved_job(rota: Rota) -> None:
    rota.start()
    rota.set_global_size(0)
    jobs = [rota.post_job(["true"]) for _ in range(6)]
    first = rota.api("GET", "/api/jobs?limit=3").json()
    assert [job["id"] for job in first["jobs"]] == jobs[:3]
    assert rota.api("POST", f"/api/jobs/{jobs[2]}/move", {"last": True}).status == 200
    rest = rota.api("GET", f"/api/jobs?limit=10&cursor={first['next']}").json()
    assert [job["id"] for job in rest["jobs"]] == [*jobs[3:], jobs[2]]


@pytest.mark.parametrize("body", ["x", {"zzz": 1}, [], {"a": "b" * 5000}])
def test_endpoint_without_body_refuses_a_body(rota: Rota, body: object) -> None:
    rota.start()
    rota.set_global_size(0)
    job = rota.post_job(["true"])
    refused = rota.api("POST", f"/api/jobs/{job}/cancel", body)
    assert (refused.status, refused.json()["code"]) == (422, "invalid-input")
    assert "takes no body; nothing was done" in refused.json()["detail"]
    assert rota.show(job)["status"] == "QUEUED"
    assert rota.api("POST", f"/api/jobs/{job}/cancel", {}).json()["status"] == "CANCELLED"
