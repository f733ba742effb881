"""Every endpoint over TCP: without a token only public endpoints answer; foreign origins and host names get nothing.

A body requires the content type application/json.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from types import NoneType
from typing import NamedTuple

import pytest

from rota.http.endpoint import Endpoint
from rota.http.openapi.operation import PATH_PARAMETERS
from rota.routes import ENDPOINTS
from tests.e2e.rig import Rota
from tests.e2e.test_tcp import connection, start_with_server_settings

pytestmark = pytest.mark.executable

PUBLIC_PATHS = {"/docs", "/docs/{file}", "/openapi.json", "/problems", "/problems/{code}", "/health"}
CROSS_SITE_HEADERS = [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]


class TcpClient(NamedTuple):
    connection: http.client.HTTPConnection
    token: str

    def status(self, endpoint: Endpoint, **headers: str) -> int:
        examples = {name: parameter.example for name, parameter in PATH_PARAMETERS.items()}
        # The path parameters of operation contracts are texts without an example.
        path = endpoint.path.format(**{name: examples.get(name, "gt-1") for name in endpoint.path_parameters})
        custom_headers = {name.replace("_", "-"): text for name, text in headers.items()}
        all_headers = {"Content-Type": "application/json", **custom_headers}
        self.connection.request(endpoint.method, path, None if endpoint.body_type is NoneType else b"{}", all_headers)
        response = self.connection.getresponse()
        assert response.read()
        return response.status

    def faults(self, expected: Callable[[Endpoint], int], **headers: str) -> dict[str, int]:
        """Endpoints with another status than expected."""
        statuses = {
            f"{endpoint.method} {endpoint.path}": (self.status(endpoint, **headers), expected(endpoint))
            for endpoint in ENDPOINTS
        }
        return {name: status for name, (status, expected_status) in statuses.items() if status != expected_status}


@pytest.fixture
def tcp_client(rota: Rota) -> Iterator[TcpClient]:
    start_with_server_settings(rota)
    tcp_connection = connection(rota)
    yield TcpClient(tcp_connection, (rota.home / "token").read_text().strip())
    tcp_connection.close()
    assert rota.jobs() == []
    assert rota.status()["stopping"] is False


def test_public_endpoints() -> None:
    assert {endpoint.path for endpoint in ENDPOINTS if endpoint.is_public} == PUBLIC_PATHS
    assert {endpoint.method for endpoint in ENDPOINTS if endpoint.is_public} == {"GET"}


def test_every_endpoint_requires_authentication_and_json(tcp_client: TcpClient) -> None:
    def unless_public(endpoint: Endpoint) -> int:
        return 200 if endpoint.is_public else 401

    assert tcp_client.faults(unless_public) == {}
    assert tcp_client.faults(unless_public, Authorization="Bearer wrong", X_API_Key="wrong") == {}
    authorization = {"Authorization": f"Bearer {tcp_client.token}"}
    assert tcp_client.faults(lambda _: 421, **authorization, Host="evil.example") == {}
    for foreign in CROSS_SITE_HEADERS:
        assert tcp_client.faults(lambda _: 403, **authorization, **foreign) == {}
    with_body = [endpoint for endpoint in ENDPOINTS if endpoint.body_type is not NoneType]
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        statuses = {
            endpoint.path: tcp_client.status(endpoint, **authorization, Content_Type=media_type)
            for endpoint in with_body
        }
        assert set(statuses.values()) == {415}, (media_type, statuses)
