"""TCP server: where it listens, why it is off, and how it follows changes of the configuration."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from rota import token
from rota.config import ServerConfig
from rota.errors import HomeError
from rota.http import tcp
from tests.e2e.rig import eventually
from tests.http.host import LocalServer, run_server

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104


def tcp_error(server: LocalServer) -> str | None:
    return server.run_on_loop(lambda: server.tcp.error)


def open_stream(server: LocalServer) -> socket.socket:
    connection = server.connect()
    own_headers = f"Host: {server.url.partition('://')[2]}\r\nAuthorization: Bearer {server.token}"
    connection.sendall(f"GET /stream HTTP/1.1\r\n{own_headers}\r\n\r\n".encode())
    assert b"200 OK" in connection.recv(4096)
    return connection


def is_idle(connection: socket.socket) -> bool:
    """Return whether the connection stays open for a moment."""
    connection.settimeout(0.2)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return True
    return False


def is_disconnected(connection: socket.socket) -> bool:
    """Wait until the server has closed the connection."""
    with connection:
        try:
            while connection.recv(4096):
                pass
        except ConnectionResetError:
            pass
        return True


def test_port_0_selects_a_free_port_on_loopback(home: Path) -> None:
    with run_server(home) as server:
        assert server.address[0] == "127.0.0.1"
        assert server.tcp_status() == {"url": f"http://127.0.0.1:{server.address[1]}", "disabled_reason": None}
        assert server.request().status == 200
        assert tcp_error(server) is None
        assert (home / "token").stat().st_mode & 0o777 == 0o600


def test_ipv6_loopback_address(home: Path) -> None:
    with run_server(home, host="::1") as server:
        assert server.url == f"http://[::1]:{server.address[1]}"
        assert server.request().status == 200
        assert (
            server.request(host=f"localhost:{server.address[1]}", origin=f"http://localhost:{server.address[1]}").status
            == 200
        )
        assert server.request(host=f"[::2]:{server.address[1]}").status == 421


def test_name_of_loopback(home: Path) -> None:
    with run_server(home, host="localhost") as server:
        assert server.address[0] in ("127.0.0.1", "::1")
        assert server.request().status == 200


def test_port_in_use_is_not_an_error_and_is_retried(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        with run_server(home, port=port) as server:
            assert server.tcp_status() == {
                "url": None,
                "disabled_reason": f"port {port} is in use on 127.0.0.1;"
                " `rota config set server.port 0` selects any free port",
            }
            assert tcp_error(server) is None
            occupied.close()
            server.run_on_loop(server.tcp.wake)
            eventually(lambda: server.tcp_status()["url"] == f"http://127.0.0.1:{port}", description="the next attempt")
            assert server.request().status == 200


def test_port_is_free_again_after_the_server_stops(home: Path, tmp_path: Path) -> None:
    with run_server(home) as first:
        port = first.address[1]
        with run_server(tmp_path, port=port) as second:
            assert str(second.tcp_status()["disabled_reason"]).startswith(f"port {port} is in use")
        assert first.request().status == 200
    with run_server(home, port=port) as again:
        assert again.address[1] == port


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"host": ALL_ADDRESSES},
            (
                "server.host = '0.0.0.0' is not a loopback address, and others require TLS;"
                " set server.tls_cert and server.tls_key, or set server.host to 127.0.0.1"
            ),
        ),
        ({"host": "::"}, "server.host = '::' is not a loopback address, and others"),
        ({"host": "::ffff:127.0.0.1"}, "server.host = '::ffff:127.0.0.1' is not a loopback address"),
        ({"host": "nowhere.invalid"}, "server.host = 'nowhere.invalid' cannot be resolved: "),
        ({"host": "1.2.3.4.5"}, "server.host = '1.2.3.4.5' cannot be resolved: "),
        ({"tls_cert": "cert.pem"}, "server.tls_cert is set and server.tls_key is not; TLS needs both"),
        ({"tls_key": "key.pem"}, "server.tls_key is set and server.tls_cert is not; TLS needs both"),
        ({"tls_cert": "cert.pem", "tls_key": "key.pem"}, "{home}/cert.pem cannot be read: No such file or directory"),
        ({"tls_cert": "/cert.pem", "tls_key": "key.pem"}, "/cert.pem cannot be read: No such file or directory"),
    ],
)
def test_invalid_settings_turn_tcp_off_with_a_reason(home: Path, settings: dict[str, Any], reason: str) -> None:
    with run_server(home, **settings) as server:
        status = server.tcp_status()
        assert status["url"] is None
        assert str(status["disabled_reason"]).startswith(reason.replace("{home}", str(home)))
        assert tcp_error(server) == f"TCP is off: {status['disabled_reason']}"
        server.change_config()
        eventually(lambda: server.tcp_status()["url"], description="TCP with valid settings")
        assert tcp_error(server) is None


def test_address_of_another_machine_is_refused(home: Path) -> None:
    """No socket can listen there, with or without TLS."""
    with pytest.raises(Exception, match=r"cannot listen on 192\.0\.2\.7 port 0: Cannot assign requested address; see"):
        tcp._bind(socket.AF_INET, ("192.0.2.7", 0), ServerConfig(host="192.0.2.7", port=0))


def test_port_off_turns_tcp_off(home: Path) -> None:
    with run_server(home, port="off") as server:
        assert server.tcp_status() == {"url": None, "disabled_reason": 'server.port is "off"'}
        assert tcp_error(server) is None
        assert list(home.iterdir()) == [], "without TCP, no token is created"


def test_new_address_disconnects_clients(home: Path) -> None:
    with run_server(home) as server:
        old_address = server.address
        connection = open_stream(server)
        server.change_config(host="::1")
        assert is_disconnected(connection)
        eventually(lambda: server.address[0] == "::1", description="the new address")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(old_address)
        assert server.request().status == 200
        connection = open_stream(server)
        server.change_config(port="off")
        assert is_disconnected(connection)
        assert server.tcp_status()["disabled_reason"] == 'server.port is "off"'
        eventually(lambda: server.open_streams == 0, description="the end of the streams in the application")


def test_new_allowed_hosts_keep_connections(home: Path) -> None:
    with run_server(home) as server:
        old_url = server.url
        with open_stream(server) as connection:
            server.change_config(allowed_hosts=("rota.example.org",))
            assert server.request(host="rota.example.org").status == 200
            assert server.url == old_url
            assert is_idle(connection)
            assert server.open_streams == 1


def test_rotated_token_applies_at_once_and_disconnects_clients(home: Path) -> None:
    with run_server(home) as server:
        old_token = server.token
        connection = open_stream(server)
        token.rotate(home / "token")
        assert server.token != old_token
        assert server.request().status == 200
        assert server.request(authorization=f"Bearer {old_token}").status == 401
        assert is_disconnected(connection)
        # After a wake-up, the rotation applies without a request.
        connection = open_stream(server)
        token.rotate(home / "token")
        server.run_on_loop(server.tcp.wake)
        assert is_disconnected(connection)
        assert server.request().status == 200


def test_wrong_token_disconnects_no_client(home: Path) -> None:
    with run_server(home) as server, open_stream(server) as connection:
        for _ in range(3):
            assert server.request(authorization="Bearer wrong").status == 401
        assert is_idle(connection)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o666])
def test_readable_token_file_turns_tcp_off(home: Path, mode: int) -> None:
    path = home / "token"
    token.ensure(path)
    path.chmod(mode)
    with run_server(home) as server:
        reason = (
            f"other users can read {path}: its mode is {mode:04o}, not 0600; `rota token --rotate` creates a new one"
        )
        assert server.tcp_status() == {"url": None, "disabled_reason": reason}
        assert tcp_error(server) == f"TCP is off: {reason}"
        token.rotate(path)
        server.run_on_loop(server.tcp.wake)
        eventually(lambda: server.tcp_status()["url"], description="TCP with a new token")
        assert server.request().status == 200


def test_token_file_that_becomes_unusable_admits_no_client(home: Path) -> None:
    path = home / "token"
    with run_server(home) as server:
        old_token, url = server.token, server.url
        connection = open_stream(server)
        path.chmod(0o644)
        address = server.parse_address(url)
        assert server.request_at(address, old_token).status == 401
        assert is_disconnected(connection)
        assert str(server.tcp_status()["disabled_reason"]).startswith(f"other users can read {path}")
        path.unlink()
        assert server.request_at(address, old_token).status == 401
        assert server.tcp_status() == {
            "url": None,
            "disabled_reason": f"{path} does not exist; `rota token` creates it",
        }
        token.ensure(path)
        assert server.request_at(address, old_token).status == 401
        assert server.request_at(address, server.token).status == 200
        assert server.tcp_status() == {"url": url, "disabled_reason": None}


def test_directory_as_token_file_turns_tcp_off(home: Path) -> None:
    (home / "token").mkdir()
    with pytest.raises(HomeError, match=r"is not a regular file|cannot be read"):
        token.read(home / "token")
    with run_server(home) as server:
        assert server.tcp_status()["url"] is None
        assert "token" in str(server.tcp_status()["disabled_reason"])


def test_start_does_not_wait_forever(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server, or a file system with certificates, may never answer."""
    is_available = threading.Event()
    prepare = tcp._prepare

    def prepare_slowly(*args: Any) -> Any:
        is_available.wait()
        return prepare(*args)

    monkeypatch.setattr(tcp, "_prepare", prepare_slowly)
    monkeypatch.setattr(tcp, "_START_TIMEOUT", 0.05)
    with run_server(home) as server:
        assert str(server.tcp_status()["disabled_reason"]).startswith("it is being started; ")
        is_available.set()
        eventually(lambda: server.tcp_status()["url"], description="TCP after the slow start")
