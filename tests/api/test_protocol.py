"""What a request may bring, and how long it may take: real connections that do not behave."""

from __future__ import annotations

import logging
import socket
import struct
from contextlib import ExitStack
from pathlib import Path

import pytest

from api.host import Host, hosting, read
from e2e.rig import eventually
from rota.api import limit, protocol, tcp
from rota.api.protocol import MOST_HEAD, MOST_TARGET, TcpProtocol


def opened(host: Host, *lines: str) -> socket.socket:
    """A connection on which a request has begun; the last of the lines ends with a line's end."""
    connection = host.connect()
    own = [f"Host: {host.url.partition('://')[2]}", f"Authorization: Bearer {host.token}"]
    first, *rest = lines
    connection.sendall("".join(f"{line}\r\n" for line in (first, *own, *rest)).encode())
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Waits until the other side has closed it, one way or the other."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


# Sizes.


def test_headers_have_a_limit(host: Host) -> None:
    assert host.ask(x="a" * (MOST_HEAD - 1000)).status == 200
    large = host.ask(x="a" * MOST_HEAD)
    assert (large.status, large.code) == (431, "headers-too-large")
    assert large.detail == "a request's target and headers have at most 65,536 bytes together"


def test_headers_that_never_end_are_cut_off(host: Host) -> None:
    for piece in (b"a" * 8192, b"x: y\r\n" * 1000, b"a: " + b"b" * 4000 + b"\r\n"):
        with opened(host, "GET / HTTP/1.1", "x: y") as connection:
            for _ in range(4 * MOST_HEAD // len(piece)):
                connection.sendall(piece)
            assert read(connection).status == 431


def test_nothing_but_ends_of_lines_is_cut_off(host: Host) -> None:
    with host.connect() as connection:
        for _ in range(20):
            connection.sendall(b"\r\n" * 4000)
        assert read(connection).status == 431


def test_a_target_has_a_limit(host: Host) -> None:
    assert host.ask(path="/" + "a" * (MOST_TARGET - 1)).status == 200
    long = host.ask(path="/" + "a" * MOST_TARGET)
    assert (long.status, long.code) == (414, "target-too-long")


def test_a_body_has_a_limit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit.Limited.__init__, "__defaults__", (1 << 20,))
    most = 1 << 20
    with hosting(home) as host:
        for size in (1, 65_537, 200_000, 300_000, most):
            assert host.ask("POST", "/", b"a" * size).status == 200
        said = host.ask("POST", "/", b"a" * (most + 1))
        assert (said.status, said.code) == (413, "too-large")
        assert said.detail == "a request body has at most 1,048,576 bytes; submit in several parts"
        # Chunked, it cannot be known before: it is counted as it comes, and refused before it has ended.
        with opened(
            host, "POST / HTTP/1.1", "Content-Type: application/json", "Transfer-Encoding: chunked", ""
        ) as sender:
            piece = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
            for _ in range(17):
                sender.sendall(piece)
            assert read(sender).status == 413
            assert is_closed(sender)
        assert host.bodies == [1, 65_537, 200_000, 300_000, most]


def test_what_is_too_large_is_said_before_it_is_sent(host: Host) -> None:
    head = (
        "POST / HTTP/1.1",
        "Content-Type: application/json",
        f"Content-Length: {1 << 40}",
        "Expect: 100-continue",
        "",
    )
    with opened(host, *head) as connection:
        assert read(connection).status == 413, "not 100"


def test_a_client_that_sends_on_can_read_why_it_was_refused(host: Host) -> None:
    """Closed at once, the answer would be lost with what nobody has read."""
    body = b"a" * (8 << 20)
    for path, headers, expected in (("/", {"authorization": None}, 401), ("/unread", {}, 200)):
        said = host.ask("POST", path, body, connection="keep-alive", **headers)  # type: ignore[arg-type]
        assert said.status == expected


def test_a_small_body_that_nobody_wants_does_not_end_the_connection(host: Host) -> None:
    with opened(host, "POST /unread HTTP/1.1", "Content-Type: application/json", "Content-Length: 2", "") as connection:
        assert read(connection).status == 200
        connection.sendall(b"{}")
        own = f"Host: {host.url.partition('://')[2]}\r\nAuthorization: Bearer {host.token}"
        connection.sendall(f"GET / HTTP/1.1\r\n{own}\r\n\r\n".encode())
        assert read(connection).status == 200


def test_an_answer_comes_in_one_piece(host: Host) -> None:
    for _ in range(10):
        with opened(host, "GET / HTTP/1.1", "") as connection:
            head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
            assert f"content-length: {len(body)}".encode() in head.lower()
            assert body


def test_headers_behind_a_body_are_dropped(host: Host) -> None:
    head = ("POST / HTTP/1.1", "Content-Type: application/json", "Transfer-Encoding: chunked", "")
    with opened(host, *head) as connection:
        connection.sendall(b"2\r\n{}\r\n0\r\n" + b"x: y\r\n" * 50_000 + b"\r\n")
        assert read(connection).status == 200


@pytest.mark.parametrize(
    "sent",
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
def test_what_is_no_http_is_a_problem(host: Host, sent: bytes) -> None:
    with host.connect() as connection:
        connection.sendall(sent)
        said = read(connection)
        assert (said.status, said.code) == (400, "bad-request")
        assert is_closed(connection)


def test_a_body_that_breaks_off_midway_is_no_request(host: Host) -> None:
    before = len(host.bodies)
    with opened(
        host, "POST / HTTP/1.1", "Content-Type: application/json", "Transfer-Encoding: chunked", ""
    ) as connection:
        connection.sendall(b"2\r\n{}\r\nnonsense\r\n")
        assert read(connection).status == 400
    with opened(host, "POST / HTTP/1.1", "Content-Type: application/json", "Content-Length: 9", "") as connection:
        connection.sendall(b"{")
    assert host.ask().status == 200
    assert len(host.bodies) == before + 1


def test_requests_one_behind_the_other(host: Host) -> None:
    own = f"Host: {host.url.partition('://')[2]}\r\nAuthorization: Bearer {host.token}\r\n"
    with host.connect() as connection:
        connection.sendall(f"GET / HTTP/1.1\r\n{own}\r\n".encode() * 3 + b"nonsense\r\n\r\n")
        with connection.makefile("rb") as answers:
            text = answers.read()
    assert b"400" not in text, "who came before the nonsense is not answered with it"
    with host.connect() as connection, connection.makefile("rb") as answers:
        connection.sendall(f"GET / HTTP/1.1\r\n{own}\r\n".encode() * 2)
        connection.sendall(f"GET / HTTP/1.1\r\n{own}Connection: close\r\n\r\n".encode())
        assert answers.read().count(b"HTTP/1.1 200 OK") == 3


# Time.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("HEAD_PATIENCE", 0.2), ("BODY_PATIENCE", 0.2), ("LEAST_BODY", 1000), ("_LINGER", 0.1)):
        monkeypatch.setattr(protocol, name, value)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("sent", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\n", b"\r\n"])
def test_a_request_that_does_not_come_is_cut_off(home: Path, sent: bytes) -> None:
    with hosting(home) as host, host.connect() as connection:
        connection.sendall(sent)
        said = read(connection)
        assert (said.status, said.code, said.detail) == (408, "too-slow", "the request did not come within 0.2 s")
        assert is_closed(connection)


@pytest.mark.usefixtures("quick")
def test_a_header_now_and_then_gains_nothing(home: Path) -> None:
    """Slowloris."""
    with hosting(home) as host, opened(host, "GET / HTTP/1.1") as connection:

        def trickle() -> bool:
            try:
                connection.sendall(b"x: y\r\n")
            except OSError:
                return True
            return b"408" in connection.recv(4096, socket.MSG_DONTWAIT) if _is_readable(connection) else False

        assert eventually(trickle)


@pytest.mark.usefixtures("quick")
def test_a_body_that_comes_to_a_halt_is_cut_off(home: Path) -> None:
    with hosting(home) as host:
        for head in ("Content-Length: 100000", "Transfer-Encoding: chunked"):
            with opened(host, "POST / HTTP/1.1", "Content-Type: application/json", head, "") as connection:
                connection.sendall(b"5\r\nhello\r\n")
                said = read(connection)
                assert (said.status, said.code) == (408, "too-slow")
                assert is_closed(connection)
        assert host.bodies == [], "nothing of it came to the application"


@pytest.mark.usefixtures("quick")
def test_a_slow_body_that_goes_on_is_waited_for(home: Path) -> None:
    with hosting(home) as host:
        size = 30_000
        with opened(host, "POST / HTTP/1.1", "Content-Type: application/json", f"Content-Length: {size}", "") as sender:
            left = size

            def piece() -> bool:
                nonlocal left
                sender.sendall(b"a" * min(left, 400))
                left -= min(left, 400)
                return left == 0

            eventually(piece)  # 400 bytes every 20 ms: it takes much longer than the patience of one look
            assert read(sender).body == b'{"read":30000}'


@pytest.mark.usefixtures("quick")
def test_who_waits_for_an_answer_is_not_cut_off(home: Path) -> None:
    with hosting(home) as host, opened(host, "GET /stream HTTP/1.1", "") as connection:
        said = b""
        while b"first" not in said:
            said += connection.recv(4096)
        connection.settimeout(0.6)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert host.streams == 1


def test_http_1_0_knows_no_pieces(host: Host) -> None:
    """What it is told has a length, or ends with the connection."""

    def told(path: str, method: str = "GET") -> tuple[bytes, bytes]:
        with opened(host, f"{method} {path} HTTP/1.0", "Connection: keep-alive\r\n") as connection:
            said = b""
            while piece := connection.recv(4096):
                said += piece
        head, _, body = said.partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head.lower()
        assert b"connection: close" in head
        return head, body

    head, body = told("/pieces")
    assert (body, b"content-length" in head) == (b"first\nsecond\n", False)
    head, body = told("/")
    assert (body, b"content-length: 10" in head) == (b'{"read":0}', True)
    assert told("/pieces", "HEAD")[1] == b""
    with opened(host, "GET /stream HTTP/1.0", "") as connection:
        said = b""
        while not said.endswith(b"\r\n\r\nfirst\n"):
            piece = connection.recv(4096)
            assert piece, said
            said += piece


def test_who_resets_the_connection_writes_nothing_into_the_log(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When it has its answer, a refusal for want of the token, and before the event loop can see that."""
    linger = TcpProtocol._linger
    stranger = host.connect()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def reset_before(self: TcpProtocol) -> None:
        stranger.close()
        linger(self)

    monkeypatch.setattr(TcpProtocol, "_linger", reset_before)
    own = host.url.partition("://")[2]
    stranger.sendall(f"POST / HTTP/1.1\r\nHost: {own}\r\nContent-Length: 60000000\r\n\r\n{{".encode())
    eventually(lambda: stranger.fileno() < 0, what="the answer")
    monkeypatch.undo()
    assert host.ask().status == 200
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# Numbers.


def test_too_many_connections_are_told_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "_TOLD", 2)
    with hosting(home, most_connections=4) as host, ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(host.connect())
        said = eventually(lambda: said if (said := host.ask()).status == 503 else None)
        assert (said.code, said.headers["retry-after"]) == ("busy", "1")
        told = [stack.enter_context(host.connect()) for _ in range(2)]
        assert len(told) == 2
        with host.connect() as beyond:
            assert is_closed(beyond), "there is an end to telling, too"
        stack.close()
        eventually(lambda: host.ask().status == 200, what="room for who asks when the others have gone")


def _is_readable(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return False
