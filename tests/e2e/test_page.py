"""A list that changes while it is read page by page, and a body where none is taken."""

from __future__ import annotations

import pytest

from e2e.rig import Rota


def test_a_page_goes_on_behind_a_place_though_its_job_has_moved(rota: Rota) -> None:
    rota.start()
    rota.set_global(0)
    jobs = [rota.post(["true"]) for _ in range(6)]
    first = rota.api("GET", "/api/jobs?limit=3").json()
    assert [job["id"] for job in first["jobs"]] == jobs[:3]
    assert rota.api("POST", f"/api/jobs/{jobs[2]}/move", {"last": True}).status == 200
    rest = rota.api("GET", f"/api/jobs?limit=10&cursor={first['next']}").json()
    assert [job["id"] for job in rest["jobs"]] == [*jobs[3:], jobs[2]]


@pytest.mark.parametrize("body", ["x", {"zzz": 1}, [], {"a": "b" * 5000}])
def test_what_takes_no_body_refuses_one(rota: Rota, body: object) -> None:
    rota.start()
    rota.set_global(0)
    job = rota.post(["true"])
    refused = rota.api("POST", f"/api/jobs/{job}/cancel", body)
    assert (refused.status, refused.json()["code"]) == (422, "invalid-input")
    assert "takes no body; nothing was done" in refused.json()["detail"]
    assert rota.show(job)["status"] == "QUEUED"
    assert rota.api("POST", f"/api/jobs/{job}/cancel", {}).json()["status"] == "CANCELLED"
