"""Limits of requests in size and time, with real connections of misbehaving clients."""

from __future__ import annotations

import logging
import socket
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from rota.http import limits, protocol, tcp
from rota.http.protocol import MAX_HEAD_BYTES, MAX_TARGET_BYTES, TcpProtocol
from tests.e2e.rig import eventually
from tests.http.host import LocalServer, read_response, run_server


def begin_request(server: LocalServer, *lines: str) -> socket.socket:
    """Connect, and send these lines with the host and the token."""
    connection = server.connect()
    own_headers = [f"Host: {server.url.partition('://')[2]}", f"Authorization: Bearer {server.token}"]
    first, *rest = lines
    connection.sendall("".join(f"{line}\r\n" for line in (first, *own_headers, *rest)).encode())
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server has closed the connection."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


# Size.


def test_large_headers_are_refused(server: LocalServer) -> None:
    assert server.request(x="a" * (MAX_HEAD_BYTES - 1000)).status == 200
    large = server.request(x="a" * MAX_HEAD_BYTES)
    assert (large.status, large.code) == (431, "headers-too-large")
    assert large.detail == "the request target and headers exceed 65,536 bytes in total"


def test_endless_headers_are_refused(server: LocalServer) -> None:
    for part in (b"a" * 8192, b"x: y\r\n" * 1000, b"a: " + b"b" * 4000 + b"\r\n"):
        with begin_request(server, "GET / HTTP/1.1", "x: y") as connection:
            for _ in range(4 * MAX_HEAD_BYTES // len(part)):
                connection.sendall(part)
            assert read_response(connection).status == 431


def test_endless_line_breaks_are_refused(server: LocalServer) -> None:
    with server.connect() as connection:
        for _ in range(20):
            connection.sendall(b"\r\n" * 4000)
        assert read_response(connection).status == 431


def test_long_target_is_refused(server: LocalServer) -> None:
    assert server.request(path="/" + "a" * (MAX_TARGET_BYTES - 1)).status == 200
    long = server.request(path="/" + "a" * MAX_TARGET_BYTES)
    assert (long.status, long.code) == (414, "target-too-long")


def test_large_body_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    max_bytes = 1 << 20
    monkeypatch.setattr(limits.BodyLimit.__init__, "__defaults__", (max_bytes,))
    with run_server(home) as server:
        for size in (1, 65_537, 200_000, 300_000, max_bytes):
            assert server.request("POST", "/", b"a" * size).status == 200
        response = server.request("POST", "/", b"a" * (max_bytes + 1))
        assert (response.status, response.code) == (413, "body-too-large")
        assert response.detail == "the request body exceeds 1,048,576 bytes; submit in several parts"
        # The size of a chunked body is not declared: its bytes are counted, and it is refused before it ends.
        with begin_request(
            server, "POST / HTTP/1.1", "Content-Type: application/json", "Transfer-Encoding: chunked", ""
        ) as sender:
            chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
            for _ in range(17):
                sender.sendall(chunk)
            assert read_response(sender).status == 413
            assert is_closed(sender)
        assert server.body_sizes == [1, 65_537, 200_000, 300_000, max_bytes]


def test_declared_large_body_is_refused_before_it_is_sent(server: LocalServer) -> None:
    head = (
        "POST / HTTP/1.1",
        "Content-Type: application/json",
        f"Content-Length: {1 << 40}",
        "Expect: 100-continue",
        "",
    )
    with begin_request(server, *head) as connection:
        assert read_response(connection).status == 413, "not 100"


def test_client_that_keeps_sending_can_read_the_refusal(server: LocalServer) -> None:
    """If the server closed the connection at once, the response would be lost with the unread input."""
    body = b"a" * (8 << 20)
    for path, headers, expected in (("/", {"authorization": None}, 401), ("/unread", {}, 200)):
        response = server.request("POST", path, body, connection="keep-alive", **headers)  # type: ignore[arg-type]
        assert response.status == expected


def test_small_unread_body_keeps_the_connection_open(server: LocalServer) -> None:
    with begin_request(
        server, "POST /unread HTTP/1.1", "Content-Type: application/json", "Content-Length: 2", ""
    ) as connection:
        assert read_response(connection).status == 200
        connection.sendall(b"{}")
        own_headers = f"Host: {server.url.partition('://')[2]}\r\nAuthorization: Bearer {server.token}"
        connection.sendall(f"GET / HTTP/1.1\r\n{own_headers}\r\n\r\n".encode())
        assert read_response(connection).status == 200


def test_response_is_sent_in_one_write(server: LocalServer) -> None:
    for _ in range(10):
        with begin_request(server, "GET / HTTP/1.1", "") as connection:
            head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
            assert f"content-length: {len(body)}".encode() in head.lower()
            assert body


def test_trailers_are_ignored(server: LocalServer) -> None:
    head = ("POST / HTTP/1.1", "Content-Type: application/json", "Transfer-Encoding: chunked", "")
    with begin_request(server, *head) as connection:
        connection.sendall(b"2\r\n{}\r\n0\r\n" + b"x: y\r\n" * 50_000 + b"\r\n")
        assert read_response(connection).status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"GET / HTTP/1.1\r\nHost\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\n\r\n",
        b"GET \xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
)
def test_invalid_http_is_refused(server: LocalServer, data: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(data)
        response = read_response(connection)
        assert (response.status, response.code) == (400, "bad-request")
        assert is_closed(connection)


def test_interrupted_body_is_not_a_request(server: LocalServer) -> None:
    previous_count = len(server.body_sizes)
    with begin_request(
        server, "POST / HTTP/1.1", "Content-Type: application/json", "Transfer-Encoding: chunked", ""
    ) as connection:
        connection.sendall(b"2\r\n{}\r\nnonsense\r\n")
        assert read_response(connection).status == 400
    with begin_request(
        server, "POST / HTTP/1.1", "Content-Type: application/json", "Content-Length: 9", ""
    ) as connection:
        connection.sendall(b"{")
    assert server.request().status == 200
    assert len(server.body_sizes) == previous_count + 1


def test_pipelined_requests_are_answered_in_order(server: LocalServer) -> None:
    own_headers = f"Host: {server.url.partition('://')[2]}\r\nAuthorization: Bearer {server.token}\r\n"
    with server.connect() as connection:
        connection.sendall(f"GET / HTTP/1.1\r\n{own_headers}\r\n".encode() * 3 + b"nonsense\r\n\r\n")
        with connection.makefile("rb") as responses:
            text = responses.read()
    assert b"400" not in text, "a valid request does not get the refusal of the one after it"
    with server.connect() as connection, connection.makefile("rb") as responses:
        connection.sendall(f"GET / HTTP/1.1\r\n{own_headers}\r\n".encode() * 2)
        connection.sendall(f"GET / HTTP/1.1\r\n{own_headers}Connection: close\r\n\r\n".encode())
        assert responses.read().count(b"HTTP/1.1 200 OK") == 3


# Time.


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT", 0.2)
    monkeypatch.setattr(protocol, "BODY_CHECK_INTERVAL", 0.2)
    monkeypatch.setattr(protocol, "MIN_BODY_PROGRESS_BYTES", 1000)
    monkeypatch.setattr(protocol, "_LINGER_TIMEOUT", 0.1)


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize("data", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\n", b"\r\n"])
def test_late_request_times_out(home: Path, data: bytes) -> None:
    with run_server(home) as server, server.connect() as connection:
        connection.sendall(data)
        response = read_response(connection)
        assert (response.status, response.code, response.detail) == (
            408,
            "request-timeout",
            "the request headers did not arrive within 0.2 s",
        )
        assert is_closed(connection)


@pytest.mark.usefixtures("short_timeouts")
def test_slow_headers_time_out(home: Path) -> None:
    """A Slowloris client sends a header from time to time."""
    with run_server(home) as server, begin_request(server, "GET / HTTP/1.1") as connection:

        def trickle() -> bool:
            try:
                connection.sendall(b"x: y\r\n")
            except OSError:
                return True
            return b"408" in connection.recv(4096, socket.MSG_DONTWAIT) if _is_readable(connection) else False

        assert eventually(trickle)


@pytest.mark.usefixtures("short_timeouts")
def test_stalled_body_times_out(home: Path) -> None:
    with run_server(home) as server:
        for head in ("Content-Length: 100000", "Transfer-Encoding: chunked"):
            with begin_request(server, "POST / HTTP/1.1", "Content-Type: application/json", head, "") as connection:
                connection.sendall(b"5\r\nhello\r\n")
                response = read_response(connection)
                assert (response.status, response.code) == (408, "request-timeout")
                assert is_closed(connection)
        assert server.body_sizes == [], "the application gets no incomplete body"


@pytest.mark.usefixtures("short_timeouts")
def test_slow_body_is_accepted_while_it_progresses(home: Path) -> None:
    with run_server(home) as server:
        size = 30_000
        with begin_request(
            server, "POST / HTTP/1.1", "Content-Type: application/json", f"Content-Length: {size}", ""
        ) as sender:
            remaining = size

            def send_part() -> bool:
                nonlocal remaining
                sender.sendall(b"a" * min(remaining, 400))
                remaining -= min(remaining, 400)
                return remaining == 0

            eventually(send_part)  # 400 bytes every 20 ms take much longer than one check interval
            assert read_response(sender).body == b'{"read":30000}'


@pytest.mark.usefixtures("short_timeouts")
def test_client_waiting_for_a_response_is_kept(home: Path) -> None:
    with run_server(home) as server, begin_request(server, "GET /stream HTTP/1.1", "") as connection:
        received = b""
        while b"first" not in received:
            received += connection.recv(4096)
        connection.settimeout(0.6)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert server.open_streams == 1


def test_http_1_0_response_is_not_chunked(server: LocalServer) -> None:
    """A response has a length, or ends with the connection."""

    def fetch(path: str, method: str = "GET") -> tuple[bytes, bytes]:
        with begin_request(server, f"{method} {path} HTTP/1.0", "Connection: keep-alive\r\n") as connection:
            response = b""
            while data := connection.recv(4096):
                response += data
        head, _, body = response.partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head.lower()
        assert b"connection: close" in head
        return head, body

    head, body = fetch("/chunks")
    assert (body, b"content-length" in head) == (b"first\nsecond\n", False)
    head, body = fetch("/")
    assert (body, b"content-length: 10" in head) == (b'{"read":0}', True)
    assert fetch("/chunks", "HEAD")[1] == b""
    with begin_request(server, "GET /stream HTTP/1.0", "") as connection:
        received = b""
        while not received.endswith(b"\r\n\r\nfirst\n"):
            data = connection.recv(4096)
            assert data, received
            received += data


def test_connection_reset_is_not_logged(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client without a token resets the connection after its refusal, before the event loop can notice it."""
    linger = TcpProtocol._linger
    client = server.connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def reset_and_linger(self: TcpProtocol) -> None:
        client.close()
        linger(self)

    monkeypatch.setattr(TcpProtocol, "_linger", reset_and_linger)
    own_host = server.url.partition("://")[2]
    client.sendall(f"POST / HTTP/1.1\r\nHost: {own_host}\r\nContent-Length: 60000000\r\n\r\n{{".encode())
    eventually(lambda: client.fileno() < 0, description="the response")
    monkeypatch.undo()
    assert server.request().status == 200
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# Number of connections.


def test_connections_beyond_the_limit_are_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tcp, "_MAX_REFUSALS", 2)
    with run_server(home, max_connections=4) as server, ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(server.connect())
        refusal = eventually(lambda: response if (response := server.request()).status == 503 else None)
        assert (refusal.code, refusal.headers["retry-after"]) == ("too-many-connections", "1")
        refused = [stack.enter_context(server.connect()) for _ in range(2)]
        assert len(refused) == 2
        with server.connect() as connection:
            assert is_closed(connection), "the number of refusals is limited too"
        stack.close()
        eventually(lambda: server.request().status == 200, description="room after the other connections have closed")
    notices = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert notices == ["4 TCP connections are open, the maximum; more are refused until some close"]


def _is_readable(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return False
