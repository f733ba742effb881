"""One message over HTTP, to receivers as bad as they come. Each is a real socket on loopback."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from rota.core.address import read_network
from rota.core.webhook import HookPolicy
from rota.receiver.http import HttpPost
from rota.receiver.port import Answer

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
QUICK = HookPolicy(timeout=timedelta(milliseconds=300))
PATIENT = HookPolicy(timeout=timedelta(seconds=30))


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length"))
    return head + await reader.readexactly(length)


def told(
    handler: Handler, policy: HookPolicy = PATIENT, *, body: bytes = b"{}", post: HttpPost | None = None,
    url: str = "http://127.0.0.1:{port}/hook", tls: ssl.SSLContext | None = None,
) -> Answer:  # fmt: skip
    async def story() -> Answer:
        over = asyncio.Event()

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
            return await (post or HttpPost())(url.format(port=port), {"webhook-id": "msg_1"}, body, policy)
        finally:
            over.set()
            server.close()

    return asyncio.run(story())


def saying(text: bytes) -> Handler:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(text)
        await writer.drain()
        writer.write_eof()
        await reader.read()

    return handle


@pytest.mark.parametrize(
    ("answer", "status", "error"),
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
            "answered 302: it redirects to 169.254.169.254, which is not followed; the endpoint needs its final URL",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", None, "what it answered is not HTTP"),
        (b"\x00" * 100_000, None, "what it answered is not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000, None, "what it answered is not HTTP"),
        (b"", None, "it closed the connection without an answer"),
    ],
)
def test_what_a_receiver_answers(answer: bytes, status: int | None, error: str | None) -> None:
    assert told(saying(answer)) == Answer(status=status, error=error)


def test_who_resets_the_connection_has_not_answered() -> None:
    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.transport.abort()

    assert told(slam).error == "it closed the connection without an answer"


def test_who_hangs_is_left() -> None:
    async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    assert told(hang, QUICK) == Answer(error="timed out after 300ms")


@pytest.mark.parametrize(
    "beginning", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"]
)
def test_who_drips_is_cut_off_too(beginning: bytes) -> None:
    """The time is for the whole exchange: each byte comes well within it."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        writer.write(beginning)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    assert told(drip, QUICK).error == "timed out after 300ms"


def test_fifty_megabytes_are_not_read() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await _request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(50_000_000 // 65_536):
            writer.write(b"x" * 65_536)
            await writer.drain()
            sent += 65_536

    assert told(flood) == Answer(status=200)
    assert sent < 20_000_000  # what the kernel took before the connection was closed


def test_a_large_message_arrives_whole() -> None:
    heard: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await _request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await reader.read()

    body = b"x" * 3_000_000
    assert told(take, body=body).error is None
    head, _, rest = heard[0].partition(b"\r\n\r\n")
    assert rest == body
    lines = head.decode().lower().splitlines()
    assert lines[0] == "post /hook http/1.1"
    assert {"webhook-id: msg_1", "content-type: application/json"} <= set(lines)


def test_nobody_is_there() -> None:
    async def story() -> Answer:
        server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        return await HttpPost()(f"http://127.0.0.1:{port}/", {}, b"", PATIENT)

    assert asyncio.run(story()) == Answer(error="connection refused")


def resolving(*addresses: str) -> HttpPost:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        if not addresses:
            raise OSError(-2, "Name or service not known")
        return addresses

    return HttpPost(resolve)


TAKES = saying(b"HTTP/1.1 204 No Content\r\n\r\n")


@pytest.mark.parametrize(
    "addresses", [("169.254.169.254",), ("::ffff:169.254.169.254",), ("fe80::1", "169.254.7.7"), ("0.1.2.3",)]
)
def test_a_name_that_leads_where_nothing_is_sent_is_refused_at_each_connect(addresses: tuple[str, ...]) -> None:
    """It may have led elsewhere when it was added."""
    answer = told(TAKES, post=resolving(*addresses), url="http://rebound.example:{port}/")
    assert answer.status is None
    assert "is refused" in (answer.error or "")


def test_of_several_addresses_one_that_may_be_connected_to_is() -> None:
    post = resolving("169.254.169.254", "127.0.0.1")
    assert told(TAKES, post=post, url="http://both.example:{port}/") == Answer(status=204)


def test_an_address_that_refuses_gives_way_to_the_next() -> None:
    post = resolving("127.0.0.77", "127.0.0.1")
    assert told(TAKES, post=post, url="http://both.example:{port}/") == Answer(status=204)


def test_a_name_without_an_address() -> None:
    answer = told(TAKES, post=resolving(), url="http://nowhere.example:{port}/")
    assert answer == Answer(error="Name or service not known")


def test_a_network_can_be_let_through() -> None:
    policy = HookPolicy(timeout=timedelta(milliseconds=300), allow=(read_network("0.0.0.0/8"),))
    assert told(TAKES, policy, url="http://0.0.0.0:{port}/") == Answer(status=204)
    assert "is refused" in (told(TAKES, QUICK, url="http://0.0.0.0:{port}/").error or "")


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert told(TAKES) == Answer(status=204)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=hook.example",
             "-addext", "subjectAltName=DNS:hook.example"]  # fmt: skip
    subprocess.run(words, cwd=path, check=True, capture_output=True)
    return path


def tls_of(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


def test_tls_is_verified_for_the_name_though_the_address_was_chosen(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, url = resolving("127.0.0.1"), "https://hook.example:{port}/"
    untrusted = told(TAKES, post=post, url=url, tls=tls_of(certificate))
    assert "its certificate cannot be trusted" in (untrusted.error or "")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    post = resolving("127.0.0.1")
    assert told(TAKES, post=post, url=url, tls=tls_of(certificate)) == Answer(status=204)
    other = told(TAKES, post=resolving("127.0.0.1"), url="https://other.example:{port}/", tls=tls_of(certificate))
    assert "its certificate cannot be trusted" in (other.error or "")


def test_who_never_shakes_hands_is_left() -> None:
    async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read(100_000)
        await reader.read()

    assert told(hang, QUICK, url="https://127.0.0.1:{port}/") == Answer(error="timed out after 300ms")


def test_one_that_never_comes_to_its_answer_is_cut_off_by_how_much_it_says() -> None:
    """Interim answers without end: a busy connection, on which no deadline of a single read would ever be missed."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _request(reader)
        while True:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
            await writer.drain()

    assert told(handle) == Answer(error="it went on and on without an answer")
