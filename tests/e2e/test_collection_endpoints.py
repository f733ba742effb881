"""Collection endpoints: idempotency keys and pagination.

Each creating endpoint creates one resource per key. A repeated request gets the same bytes, also after a crash; a
different request with the same key is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.rig import ChildControl, Response, Rota
from tests.e2e.test_webhook import Receiver, wait_until_settled

TEMPLATE = {"name": "say", "command": ["echo", "{what}"], "default_params": {"what": "x"}}
SCHEDULE = {"name": "nightly", "cron": "@yearly", "job": {"command": ["true"]}}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


class KeyedRequest:
    """A POST request with its own idempotency key, sent once on creation."""

    def __init__(self, rota: Rota, target: str, body: Any = None, *, other: Any) -> None:
        self._rota = rota
        self._target = target
        self._body = body
        self._other = other
        """A different body for the same target."""
        self.first = self.repeat()

    def repeat(self) -> Response:
        return self._send(self._body)

    def send_other(self) -> Response:
        return self._send(self._other)

    def _send(self, body: Any) -> Response:
        return self._rota.api("POST", self._target, body, Idempotency_Key=f"key of {self._target}")


def send_all_once(rota: Rota, url: str) -> list[KeyedRequest]:
    """Send one request to each creating endpoint.

    The triggered job notifies the webhook, and that message is redelivered.
    """
    sent = [
        KeyedRequest(rota, "/api/job-templates", TEMPLATE, other={**TEMPLATE, "timeout": "1h"}),
        KeyedRequest(rota, "/api/job-groups", {"name": "night"}, other={"name": "day"}),
        KeyedRequest(rota, "/api/schedules", SCHEDULE, other={**SCHEDULE, "cron": "@hourly"}),
        KeyedRequest(rota, "/api/webhooks", {"url": url}, other={"url": url, "events": ["job.failed"]}),
        KeyedRequest(rota, "/api/webhooks/webhook-1/rotate", other={"keep_old_for": "1h"}),
        KeyedRequest(rota, "/api/webhooks/webhook-1/test", other={}),
        KeyedRequest(rota, "/api/schedules/nightly/trigger", other={"params": {"a": 1}}),
    ]
    rota.wait_for_end("job-1")
    wait_until_settled(rota)
    return [*sent, KeyedRequest(rota, "/api/webhook-deliveries/delivery-1/redeliver", other={})]


def test_repeated_request_gets_the_stored_response(rota_on_each_store: Rota, receiver: Receiver) -> None:
    requests = send_all_once(rota_on_each_store, f"{receiver.url}/ok")
    assert [request.first.status for request in requests] == [201, 201, 201, 201, 200, 200, 201, 200]
    wait_until_settled(rota_on_each_store)
    before = read_all_lists(rota_on_each_store)
    assert [request.repeat() for request in requests] == [request.first for request in requests]
    rota_on_each_store.crash()
    rota_on_each_store.start()
    assert [request.repeat() for request in requests] == [request.first for request in requests]
    for request in requests:
        refused = request.send_other()
        assert (refused.status, refused.json()["code"]) == (422, "idempotency-key-reused")
    assert read_all_lists(rota_on_each_store) == before
    assert len(receiver.take_all()) == 3, "a test message, a delivery and its redelivery"


def test_trigger_without_a_job_can_be_repeated_with_its_key(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = {"command": children.gated_argv("first"), "unique": "one"}
    assert rota.api("POST", "/api/schedules", {**SCHEDULE, "job": job}).status == 201
    first = rota.api("POST", "/api/schedules/nightly/trigger")
    assert (first.status, first.json()["result"]) == (201, "submitted")
    refused = KeyedRequest(rota, "/api/schedules/nightly/trigger", other={})
    assert (refused.first.status, refused.first.json()["result"]) == (200, "already_active")
    children.release("first")
    rota.wait_for_end("job-1")
    again = refused.repeat()
    assert (again.status, again.json()["result"], again.json()["job"]["id"]) == (201, "submitted", "job-2")
    assert refused.repeat() == again


def read_all_lists(rota: Rota) -> list[Any]:
    """Lists of every resource that the requests create."""
    resources = ("job-templates", "job-groups", "schedules", "job-runs", "webhooks", "webhook-deliveries")
    return [rota.api("GET", f"/api/{resource}").json() for resource in (*resources, "webhooks/webhook-1?secret=1")]


def test_lists_are_paginated(rota_on_each_store: Rota) -> None:
    for name in ("c", "b", "a"):
        assert rota_on_each_store.api("POST", "/api/job-templates", {**TEMPLATE, "name": name}).status == 201
        assert rota_on_each_store.api("POST", "/api/job-groups", {"name": name}).status == 201
        assert rota_on_each_store.api("POST", "/api/schedules", {**SCHEDULE, "name": name}).status == 201
        assert rota_on_each_store.api("POST", "/api/webhooks", {"url": f"https://127.0.0.1/{name}"}).status == 201
    assert read_two_pages(rota_on_each_store, "/api/job-templates", "templates", "name") == [["c", "b"], ["a"]]
    assert read_two_pages(rota_on_each_store, "/api/job-groups", "groups", "name") == [["a", "b"], ["c"]]
    assert read_two_pages(rota_on_each_store, "/api/schedules", "schedules", "name") == [["c", "b"], ["a"]]
    assert read_two_pages(rota_on_each_store, "/api/webhooks", "webhooks", "id") == [
        ["webhook-1", "webhook-2"],
        ["webhook-3"],
    ]


def read_two_pages(rota: Rota, path: str, name: str, field: str) -> list[list[str]]:
    """Values of `field` on the two pages of a list with page size 2."""
    first = rota.api("GET", f"{path}?limit=2").json()
    second = rota.api("GET", f"{path}?limit=2&cursor={first['next']}").json()
    assert second["next"] is None
    whole = rota.api("GET", f"{path}?limit=3").json()
    assert (whole["next"], whole[name]) == (None, [*first[name], *second[name]])
    return [[entry[field] for entry in page[name]] for page in (first, second)]


@pytest.mark.parametrize(
    "path", ["/api/job-templates", "/api/job-groups", "/api/schedules", "/api/webhooks", "/api/webhook-deliveries"]
)
def test_invalid_query_parameter_is_named(read_only_rota: Rota, path: str) -> None:
    for query, where, says in (
        ("limit=0", "$.limit", "Expected `int` >= 1"),
        ("limit=many", "$.limit", "Expected `int`, got `str`"),
        ("limit=1001", "$.limit", "Expected `int` <= 1000"),
        ("cursor=here", "$.cursor", "invalid cursor 'here'; use the `next` of the previous page"),
        ("offset=3", "$.offset", "unknown query parameter 'offset'; known parameters:"),
        ("limit=1&limit=2", "$.limit", "limit cannot be repeated; send it once"),
    ):
        refused = read_only_rota.api("GET", f"{path}?{query}")
        assert (refused.status, refused.json()["path"]) == (422, where)
        assert says in refused.json()["detail"]
