"""Each endpoint that makes something makes it once for one key: the answer is the same to the byte, also after a crash,
and another request with the key is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.rig import Answer, Rota, Stage
from e2e.test_webhook import Receiver, settled

TEMPLATE = {"name": "say", "command": ["echo", "{what}"], "default_params": {"what": "x"}}
SCHEDULE = {"name": "nightly", "cron": "@yearly", "job": {"command": ["true"]}}


@pytest.fixture
def listener() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


class Asked:
    """A request with a key of its own."""

    def __init__(self, rota: Rota, target: str, body: Any = None, *, other: Any) -> None:
        self._rota = rota
        self._target = target
        self._body = body
        self._other = other
        """A body that says something else."""
        self.first = self.again()

    def again(self) -> Answer:
        return self._ask(self._body)

    def otherwise(self) -> Answer:
        return self._ask(self._other)

    def _ask(self, body: Any) -> Answer:
        return self._rota.api("POST", self._target, body, Idempotency_Key=f"key of {self._target}")


def asked_once(rota: Rota, url: str) -> list[Asked]:
    """The job that is triggered tells the webhook, and what it was told is sent again."""
    made = [
        Asked(rota, "/api/job-templates", TEMPLATE, other={**TEMPLATE, "timeout": "1h"}),
        Asked(rota, "/api/job-groups", {"name": "night"}, other={"name": "day"}),
        Asked(rota, "/api/schedules", SCHEDULE, other={**SCHEDULE, "cron": "@hourly"}),
        Asked(rota, "/api/webhooks", {"url": url}, other={"url": url, "events": ["job.failed"]}),
        Asked(rota, "/api/webhooks/webhook-1/rotate", other={"keep": "1h"}),
        Asked(rota, "/api/webhooks/webhook-1/test", other={}),
        Asked(rota, "/api/schedules/nightly/trigger", other={"params": {"a": 1}}),
    ]
    rota.ended("job-1")
    settled(rota)
    return [*made, Asked(rota, "/api/webhook-deliveries/delivery-1/redeliver", other={})]


def test_what_comes_again_with_its_key_is_answered_as_before(keeper: Rota, listener: Receiver) -> None:
    asked = asked_once(keeper, f"{listener.url}/ok")
    assert [each.first.status for each in asked] == [201, 201, 201, 201, 200, 200, 201, 200]
    settled(keeper)
    before = everything(keeper)
    assert [each.again() for each in asked] == [each.first for each in asked]
    keeper.crash()
    keeper.start()
    assert [each.again() for each in asked] == [each.first for each in asked]
    for each in asked:
        refused = each.otherwise()
        assert (refused.status, refused.json()["code"]) == (422, "key-reused")
    assert everything(keeper) == before
    assert len(listener.all()) == 3, "a test, a message, and the same once more"


def test_a_trigger_that_made_nothing_may_come_again_with_its_key(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = {"command": stage.actor("first")[1:], "unique": "one"}
    assert rota.api("POST", "/api/schedules", {**SCHEDULE, "job": job}).status == 201
    first = rota.api("POST", "/api/schedules/nightly/trigger")
    assert (first.status, first.json()["result"]) == (201, "submitted")
    refused = Asked(rota, "/api/schedules/nightly/trigger", other={})
    assert (refused.first.status, refused.first.json()["result"]) == (200, "already_active")
    stage.release("first")
    rota.ended("job-1")
    again = refused.again()
    assert (again.status, again.json()["result"], again.json()["job"]["id"]) == (201, "submitted", "job-2")
    assert refused.again() == again


def everything(rota: Rota) -> list[Any]:
    """All that the requests could have made more of."""
    nouns = ("job-templates", "job-groups", "schedules", "job-runs", "webhooks", "webhook-deliveries")
    return [rota.api("GET", f"/api/{each}").json() for each in (*nouns, "webhooks/webhook-1?secret=1")]


def test_a_list_comes_in_pages(keeper: Rota) -> None:
    for name in ("c", "b", "a"):
        assert keeper.api("POST", "/api/job-templates", {**TEMPLATE, "name": name}).status == 201
        assert keeper.api("POST", "/api/job-groups", {"name": name}).status == 201
        assert keeper.api("POST", "/api/schedules", {**SCHEDULE, "name": name}).status == 201
        assert keeper.api("POST", "/api/webhooks", {"url": f"https://127.0.0.1/{name}"}).status == 201
    assert pages(keeper, "/api/job-templates", "templates", "name") == [["c", "b"], ["a"]]
    assert pages(keeper, "/api/job-groups", "groups", "name") == [["a", "b"], ["c"]]
    assert pages(keeper, "/api/schedules", "schedules", "name") == [["c", "b"], ["a"]]
    assert pages(keeper, "/api/webhooks", "webhooks", "id") == [["webhook-1", "webhook-2"], ["webhook-3"]]


def pages(rota: Rota, path: str, name: str, field: str) -> list[list[str]]:
    """Two of them, which is all, and what is in them."""
    first = rota.api("GET", f"{path}?limit=2").json()
    second = rota.api("GET", f"{path}?limit=2&cursor={first['next']}").json()
    assert second["next"] is None
    whole = rota.api("GET", f"{path}?limit=3").json()
    assert (whole["next"], whole[name]) == (None, [*first[name], *second[name]])
    return [[each[field] for each in page[name]] for page in (first, second)]


@pytest.mark.parametrize(
    "path", ["/api/job-templates", "/api/job-groups", "/api/schedules", "/api/webhooks", "/api/webhook-deliveries"]
)
def test_what_cannot_be_asked_is_refused_by_its_name(untouched: Rota, path: str) -> None:
    for query, where, says in (
        ("limit=0", "$.limit", "Expected `int` >= 1"),
        ("limit=many", "$.limit", "Expected `int`, got `str`"),
        ("limit=1001", "$.limit", "Expected `int` <= 1000"),
        ("cursor=here", "$.cursor", "not a cursor: 'here'; use the `next` of the page before"),
        ("offset=3", "$.offset", "nothing is asked by 'offset' here; known are"),
        ("limit=1&limit=2", "$.limit", "limit can be said once only"),
    ):
        refused = untouched.api("GET", f"{path}?{query}")
        assert (refused.status, refused.json()["path"]) == (422, where)
        assert says in refused.json()["detail"]
