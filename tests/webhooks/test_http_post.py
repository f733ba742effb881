"""Delivery over HTTP to badly behaved receivers, each a real socket on loopback."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from rota.webhooks.http_post import HttpMessagePoster, PostResult
from rota.webhooks.model import WebhookPolicy, parse_network

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SHORT_TIMEOUT = WebhookPolicy(timeout=timedelta(milliseconds=300))
LONG_TIMEOUT = WebhookPolicy(timeout=timedelta(seconds=30))


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length"))
    return head + await reader.readexactly(length)


def deliver(
    handler: Handler,
    policy: WebhookPolicy = LONG_TIMEOUT,
    *,
    body: bytes = b"{}",
    post: HttpMessagePoster | None = None,
    url: str = "http://127.0.0.1:{port}/hook",
    tls: ssl.SSLContext | None = None,
) -> PostResult:
    """Deliver one message to a server with this handler and return the result."""

    async def run() -> PostResult:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.transport.abort()

        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        try:
            return await (post or HttpMessagePoster())(url.format(port=port), {"webhook-id": "msg_1"}, body, policy)
        finally:
            server.close()

    return asyncio.run(run())


def respond_with(text: bytes) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_request(reader)
        writer.write(text)
        await writer.drain()
        writer.write_eof()
        await reader.read()

    return handle


@pytest.mark.parametrize(
    ("response", "status", "error"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, None),
        (b"HTTP/1.0 202 Accepted\r\n\r\nfine", 202, None),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", 200, None),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 5\r\n\r\nno\x00pe", 500, "answered 500: nope"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, "answered 404"),
        (b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", 410, "answered 410"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n",
            302,
            "answered 302: redirect to 169.254.169.254 not followed; use the final URL",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", None, "the response is not HTTP"),
        (b"\x00" * 100_000, None, "the response is not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000, None, "the response is not HTTP"),
        (b"", None, "the receiver closed the connection without a response"),
    ],
)
def test_response_decides_the_result(response: bytes, status: int | None, error: str | None) -> None:
    assert deliver(respond_with(response)) == PostResult(status=status, error=error)


def test_connection_reset_is_no_response() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    assert deliver(reset).error == "the receiver closed the connection without a response"


def test_hanging_receiver_times_out() -> None:
    async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    assert deliver(hang, SHORT_TIMEOUT) == PostResult(error="timed out after 300ms")


@pytest.mark.parametrize("prefix", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"])
def test_slow_response_times_out(prefix: bytes) -> None:
    """The timeout covers the whole exchange, although each byte arrives in time."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_request(reader)
        writer.write(prefix)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    assert deliver(drip, SHORT_TIMEOUT).error == "timed out after 300ms"


def test_large_response_is_not_read() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await _read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(50_000_000 // 65_536):
            writer.write(b"x" * 65_536)
            await writer.drain()
            sent += 65_536

    assert deliver(flood) == PostResult(status=200)
    assert sent < 20_000_000  # bytes in kernel buffers when the connection was closed


def test_large_message_is_sent_completely() -> None:
    received: list[bytes] = []

    async def record_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await _read_request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await reader.read()

    body = b"x" * 3_000_000
    assert deliver(record_request, body=body).error is None
    head, _, rest = received[0].partition(b"\r\n\r\n")
    assert rest == body
    lines = head.decode().lower().splitlines()
    assert lines[0] == "post /hook http/1.1"
    assert {"webhook-id: msg_1", "content-type: application/json"} <= set(lines)


def test_refused_connection_is_reported() -> None:
    async def run() -> PostResult:
        server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        return await HttpMessagePoster()(f"http://127.0.0.1:{port}/", {}, b"", LONG_TIMEOUT)

    assert asyncio.run(run()) == PostResult(error="connection refused")


def poster_resolving_to(*addresses: str) -> HttpMessagePoster:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        if not addresses:
            raise OSError(-2, "Name or service not known")
        return addresses

    return HttpMessagePoster(resolve)


ACCEPT = respond_with(b"HTTP/1.1 204 No Content\r\n\r\n")


@pytest.mark.parametrize(
    "addresses", [("169.254.169.254",), ("::ffff:169.254.169.254",), ("fe80::1", "169.254.7.7"), ("0.1.2.3",)]
)
def test_addresses_are_checked_at_each_connection(addresses: tuple[str, ...]) -> None:
    """The name may have resolved to another address when the webhook was added."""
    response = deliver(ACCEPT, post=poster_resolving_to(*addresses), url="http://rebound.example:{port}/")
    assert response.status is None
    assert "is refused" in (response.error or "")


def test_permitted_address_of_several_is_used() -> None:
    poster = poster_resolving_to("169.254.169.254", "127.0.0.1")
    assert deliver(ACCEPT, post=poster, url="http://both.example:{port}/") == PostResult(status=204)


def test_next_address_is_tried_after_refusal() -> None:
    poster = poster_resolving_to("127.0.0.77", "127.0.0.1")
    assert deliver(ACCEPT, post=poster, url="http://both.example:{port}/") == PostResult(status=204)


def test_name_without_address_is_reported() -> None:
    response = deliver(ACCEPT, post=poster_resolving_to(), url="http://nowhere.example:{port}/")
    assert response == PostResult(error="Name or service not known")


def test_allowed_network_is_permitted() -> None:
    policy = WebhookPolicy(timeout=timedelta(milliseconds=300), allow=(parse_network("0.0.0.0/8"),))
    assert deliver(ACCEPT, policy, url="http://0.0.0.0:{port}/") == PostResult(status=204)
    assert "is refused" in (deliver(ACCEPT, SHORT_TIMEOUT, url="http://0.0.0.0:{port}/").error or "")


def test_proxy_environment_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert deliver(ACCEPT) == PostResult(status=204)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
        "-days",
        "2",
        "-subj",
        "/CN=hook.example",
        "-addext",
        "subjectAltName=DNS:hook.example",
    ]
    subprocess.run(command, cwd=path, check=True, capture_output=True)
    return path


def tls_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


def test_certificate_is_verified_against_the_host_name(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poster, url = poster_resolving_to("127.0.0.1"), "https://hook.example:{port}/"
    untrusted = deliver(ACCEPT, post=poster, url=url, tls=tls_context(certificate))
    assert "the certificate is not trusted" in (untrusted.error or "")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    poster = poster_resolving_to("127.0.0.1")
    assert deliver(ACCEPT, post=poster, url=url, tls=tls_context(certificate)) == PostResult(status=204)
    other = deliver(
        ACCEPT, post=poster_resolving_to("127.0.0.1"), url="https://other.example:{port}/", tls=tls_context(certificate)
    )
    assert "the certificate is not trusted" in (other.error or "")


def test_tls_handshake_times_out() -> None:
    async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(100_000)
        await reader.read()

    assert deliver(hang, SHORT_TIMEOUT, url="https://127.0.0.1:{port}/") == PostResult(error="timed out after 300ms")


def test_endless_interim_responses_are_cut_off() -> None:
    """Endless interim responses keep the connection busy, so that no single read would time out."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _read_request(reader)
        while True:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
            await writer.drain()

    assert deliver(handle) == PostResult(error="the receiver sent 64 KiB without a response")
