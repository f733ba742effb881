"""A request whose response was lost can be repeated safely."""

from __future__ import annotations

import json

from tests.e2e.rig import ChildControl, Rota


def test_repeated_request_with_the_same_key_creates_one_job(rota: Rota, children: ChildControl) -> None:
    rota.start()
    body = {"command": children.immediate_argv("once"), "name": "once"}
    first = rota.api("POST", "/api/jobs", body, Idempotency_Key="k1")
    repeated = rota.api("POST", "/api/jobs", body, Idempotency_Key="k1")
    assert first.status == 201
    assert repeated == first, "byte for byte"
    rota.wait_for_end("job-1")
    rota.crash()
    rota.start()
    late = rota.api("POST", "/api/jobs", body, Idempotency_Key="k1")
    assert late == first, "the original response, from a new scheduler"
    assert rota.show("job-1")["status"] == "COMPLETED"
    other = rota.api("POST", "/api/jobs", {**body, "name": "other"}, Idempotency_Key="k1")
    assert (other.status, other.json()["code"]) == (422, "idempotency-key-reused")
    assert rota.api("POST", "/api/jobs", body, Idempotency_Key="k2").json()["job"]["id"] == "job-2"
    assert rota.api("POST", "/api/jobs", body).json()["job"]["id"] == "job-3"
    rota.wait_for_end("job-3")
    assert len(children.read_available()) == 6


def test_refused_request_does_not_consume_its_key(rota: Rota) -> None:
    rota.start()
    refused = rota.api("POST", "/api/jobs", {"command": ["true"], "after": [{"job": "job-7"}]}, Idempotency_Key="k")
    assert refused.status == 404
    assert rota.api("POST", "/api/jobs", {"command": ["true"]}, Idempotency_Key="k").json()["job"]["id"] == "job-1"


def test_invalid_key_is_refused_with_a_hint(rota: Rota) -> None:
    rota.start()
    for keys, detail in (
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
        assert (response.status, json.loads(response.read())["detail"]) == (422, detail)
        connection.close()
    assert rota.jobs() == []
