"""§12: an answer that was lost is asked for again safely."""

from __future__ import annotations

import json

from e2e.rig import Rota, Stage


def test_the_same_request_with_the_same_key_is_one_job(rota: Rota, stage: Stage) -> None:
    rota.start()
    body = {"command": stage.walk_on("once")[1:], "name": "once"}
    first = rota.api("POST", "/api/jobs", body, Idempotency_Key="k1")
    again = rota.api("POST", "/api/jobs", body, Idempotency_Key="k1")
    assert first.status == 201
    assert again == first, "to the byte"
    rota.ended("job-1")
    rota.crash()
    rota.start()
    late = rota.api("POST", "/api/jobs", body, Idempotency_Key="k1")
    assert late == first, "the answer of then, by another scheduler"
    assert rota.show("job-1")["status"] == "COMPLETED"
    other = rota.api("POST", "/api/jobs", {**body, "name": "other"}, Idempotency_Key="k1")
    assert (other.status, other.json()["code"]) == (422, "key-reused")
    assert rota.api("POST", "/api/jobs", body, Idempotency_Key="k2").json()["job"]["id"] == "job-2"
    assert rota.api("POST", "/api/jobs", body).json()["job"]["id"] == "job-3"
    rota.ended("job-3")
    assert len(stage.heard()) == 6


def test_a_refused_request_does_not_use_up_its_key(rota: Rota) -> None:
    rota.start()
    refused = rota.api("POST", "/api/jobs", {"command": ["true"], "after": [{"job": "job-7"}]}, Idempotency_Key="k")
    assert refused.status == 404
    assert rota.api("POST", "/api/jobs", {"command": ["true"]}, Idempotency_Key="k").json()["job"]["id"] == "job-1"


def test_a_key_that_is_none_is_refused_with_what_to_do(rota: Rota) -> None:
    rota.start()
    for keys, said in (
        (("a", "a"), "the request has 2 Idempotency-Key headers; send one, a new one for each request"),
        (("schlüssel",), "an Idempotency-Key has printable ASCII characters only; a UUID is a good one"),
        (("a\tb",), "an Idempotency-Key has printable ASCII characters only; a UUID is a good one"),
        (("",), "an Idempotency-Key has 1 to 255 characters; a UUID is a good one"),
        (("k" * 256,), "an Idempotency-Key has 1 to 255 characters; a UUID is a good one"),
    ):
        connection = rota.connection()
        connection.putrequest("POST", "/api/jobs")
        for key in keys:
            connection.putheader("Idempotency-Key", key.encode())
        connection.putheader("Content-Length", "20")
        connection.endheaders(b'{"command":["true"]}')
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["detail"]) == (422, said)
        connection.close()
    assert rota.jobs() == []
