"""Requests that no endpoint accepts: an unknown path, another method, a body where none is allowed."""

from __future__ import annotations

import json

import pytest

from tests.e2e.rig import Rota


def test_unknown_path_is_404_and_unsupported_method_is_405(read_only_rota: Rota) -> None:
    unknown = read_only_rota.api("GET", "/api/nothing")
    assert (unknown.status, unknown.json()["code"]) == (404, "not-found")
    assert unknown.json()["detail"].startswith("no endpoint at /api/nothing; ")
    connection = read_only_rota.connection()
    connection.request("PUT", "/api/jobs/job-1")
    refused = connection.getresponse()
    problem = json.loads(refused.read())
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD, PATCH")
    assert problem["code"] == "method-not-allowed"
    connection.close()


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
