"""Every endpoint there is, asked over TCP by who may not: only what is the same for everybody is told without the
token, and nothing to a page of another site or under a name that is not the scheduler's. And a body is said to
be JSON."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from types import NoneType
from typing import NamedTuple

import pytest

from e2e.rig import Rota
from e2e.test_tcp import connection, settle
from rota.api.app import ENDPOINTS
from rota.api.endpoint import Endpoint
from rota.api.openapi.place import PLACES

WITHOUT_A_TOKEN = {"/docs", "/docs/{file}", "/openapi.json", "/problems", "/problems/{code}", "/health"}
FOREIGN = [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]


class Asking(NamedTuple):
    connection: http.client.HTTPConnection
    token: str

    def status(self, endpoint: Endpoint, **headers: str) -> int:
        path = endpoint.path.format(**{name: PLACES[name].example for name in endpoint.places})
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        said = {"Content-Type": "application/json", **named}
        self.connection.request(endpoint.method, path, None if endpoint.takes is NoneType else b"{}", said)
        response = self.connection.getresponse()
        assert response.read()
        return response.status

    def faults(self, expected: Callable[[Endpoint], int], **headers: str) -> dict[str, int]:
        """Of all endpoints those that answer otherwise."""
        said = {f"{one.method} {one.path}": (self.status(one, **headers), expected(one)) for one in ENDPOINTS}
        return {asked: status for asked, (status, right) in said.items() if status != right}


@pytest.fixture
def asking(rota: Rota) -> Iterator[Asking]:
    settle(rota)
    asked = connection(rota)
    yield Asking(asked, (rota.home / "token").read_text().strip())
    asked.close()
    assert rota.jobs() == []
    assert rota.status()["stopping"] is False


def test_which_endpoints_need_no_token() -> None:
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.is_public} == WITHOUT_A_TOKEN
    assert {endpoint.method for endpoint in ENDPOINTS if endpoint.is_public} == {"GET"}


def test_every_endpoint_is_closed_to_strangers(asking: Asking) -> None:
    def unless_public(endpoint: Endpoint) -> int:
        return 200 if endpoint.is_public else 401

    assert asking.faults(unless_public) == {}
    assert asking.faults(unless_public, Authorization="Bearer wrong", X_API_Key="wrong") == {}
    right = {"Authorization": f"Bearer {asking.token}"}
    assert asking.faults(lambda _: 421, **right, Host="evil.example") == {}
    for foreign in FOREIGN:
        assert asking.faults(lambda _: 403, **right, **foreign) == {}
    taking = [endpoint for endpoint in ENDPOINTS if endpoint.takes is not NoneType]
    for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        said = {endpoint.path: asking.status(endpoint, **right, Content_Type=media) for endpoint in taking}
        assert set(said.values()) == {415}, (media, said)
