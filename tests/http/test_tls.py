"""TLS over real connections, with a certificate that the test creates."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rota import AsyncClient, Client, ServiceUnavailable
from rota.http import tls
from tests.e2e.rig import eventually
from tests.http.host import LocalServer, run_server

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104
NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"


def make_certificate(directory: Path, name: str = "rota", *options: str) -> tuple[Path, Path]:
    """Create a self-signed certificate and its key, and return their files."""
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    passphrase_options = options or ("-nodes",)
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            *passphrase_options,
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
            "-addext",
            NAMES,
            "-keyout",
            key,
            "-out",
            cert,
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def tls_settings(files: tuple[Path, Path], **settings: Any) -> dict[str, Any]:
    return {"tls_cert": str(files[0]), "tls_key": str(files[1]), **settings}


def test_tls_on_loopback(home: Path, files: tuple[Path, Path]) -> None:
    with run_server(home, **tls_settings(files)) as server:
        assert server.url == f"https://127.0.0.1:{server.address[1]}"
        assert server.request(cafile=files[0]).status == 200
        assert server.request("POST", body=b"a" * 300_000, cafile=files[0]).body == b'{"read":300000}'
        assert server.request(cafile=files[0], has_token=False).status == 401
        own_host = server.url.partition("://")[2]
        assert server.request(cafile=files[0], origin=f"https://{own_host}").status == 200
        assert server.request(cafile=files[0], origin=f"http://{own_host}").status == 403
        with server.connect(files[0]) as connection:
            assert connection.version() in ("TLSv1.2", "TLSv1.3")  # type: ignore[attr-defined]


def test_other_addresses_require_tls(home: Path, files: tuple[Path, Path]) -> None:
    with run_server(home, host=ALL_ADDRESSES, **tls_settings(files)) as server:
        port = server.address[1]
        assert server.url == f"https://0.0.0.0:{port}"
        assert server.request(cafile=files[0], host=f"127.0.0.1:{port}").status == 200
        assert server.request(cafile=files[0], host=f"0.0.0.0:{port}").status == 421
        assert server.request(cafile=files[0], host=f"rota.example.org:{port}").status == 421
        # Without the files, TCP is off; it does not fall back to plain HTTP.
        server.change_config(host=ALL_ADDRESSES, port=port)
        eventually(lambda: server.tcp_status()["disabled_reason"], description="TCP off")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_tls_on_ipv4_and_ipv6(home: Path, files: tuple[Path, Path]) -> None:
    """An IPv6 socket shows IPv4 addresses in another form."""
    with run_server(home, host="::", **tls_settings(files)) as server:
        port = server.address[1]
        for address in ("127.0.0.1", "::1"):
            context = ssl.create_default_context(cafile=files[0])
            with (
                socket.create_connection((address, port), timeout=20) as plain,
                context.wrap_socket(plain, server_hostname=address) as secure,
            ):
                host = f"[{address}]" if ":" in address else address
                head = f"GET / HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
                secure.sendall(head.encode())
                assert secure.recv(4096).startswith(b"HTTP/1.1 200 OK")


def test_plain_http_is_not_answered_on_a_tls_port(home: Path, files: tuple[Path, Path]) -> None:
    with run_server(home, **tls_settings(files)) as server:
        with server.connect() as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
            try:
                received = connection.recv(4096)
            except ConnectionResetError:
                received = b""
            assert b"HTTP" not in received
        assert server.request(cafile=files[0]).status == 200


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_plain_http_client_gets_a_hint_about_tls(
    home: Path, files: tuple[Path, Path], kind: type[Client | AsyncClient]
) -> None:
    async def send(client: Any, operation: str) -> None:
        result = client.health() if operation == "health" else client.submit(["true"])
        if isinstance(client, AsyncClient):
            await result

    with run_server(home, **tls_settings(files)) as server:
        url = server.url.replace("https://", "http://")
        message = f"{url} closed the connection without a response; if it uses TLS, write https:// instead of http://"
        for operation in ("health", "submit"):
            with pytest.raises(ServiceUnavailable) as raised:
                asyncio.run(send(kind(url=url, token=server.token), operation))
            assert raised.value.message.startswith(message)


def test_silent_connections_do_not_block_handshakes(
    home: Path, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_HANDSHAKE_TIMEOUT", 0.3)
    monkeypatch.setattr(tls, "MAX_HANDSHAKES", 4)
    with run_server(home, **tls_settings(files)) as server, ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(server.connect())
        assert server.run_on_loop(lambda: len(server.tcp._handshakes)) <= 4, (
            "handshakes use a limited number of descriptors"
        )

        def is_accepted() -> bool:
            try:
                return server.request(cafile=files[0]).status == 200
            except OSError:
                return False

        eventually(is_accepted, description="room for a client that completes its handshake")


def test_new_certificate_is_loaded(home: Path, tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    with run_server(home, **tls_settings(files)) as server:
        assert server.request(cafile=files[0]).status == 200
        old_certificate = files[0].read_bytes()
        make_certificate(tmp_path)
        assert files[0].read_bytes() != old_certificate
        with pytest.raises(ssl.SSLCertVerificationError):
            server.request(cafile=files[0])
        server.run_on_loop(server.tcp.wake)  # as `kill -HUP` does

        def is_trusted() -> bool:
            try:
                return server.request(cafile=files[0]).status == 200
            except (ssl.SSLError, OSError):
                return False

        eventually(is_trusted, description="the new certificate")


def disabled_reason(server: LocalServer) -> str:
    reason = server.tcp_status()["disabled_reason"]
    assert reason is not None
    return reason


def test_unusable_tls_files_are_named(home: Path, tmp_path: Path, files: tuple[Path, Path]) -> None:
    other = make_certificate(tmp_path, "other")
    locked = make_certificate(tmp_path, "locked", "-passout", "pass:secret")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("not a certificate\n")
    nonsense.chmod(0o600)
    for pair in ((files[0], other[1]), (nonsense, files[1]), (files[0], nonsense), locked):
        with run_server(home, **tls_settings(pair)) as server:
            reason = disabled_reason(server)
            assert reason.startswith(f"{pair[0]} and {pair[1]} cannot be used as certificate and key (")
            assert reason.endswith("; use PEM files that belong together, and a key without a passphrase")
    with run_server(home, **tls_settings((files[0], tmp_path))) as server:
        assert disabled_reason(server) == f"{tmp_path} cannot be read: Is a directory"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_readable_key_turns_tcp_off(home: Path, tmp_path: Path, mode: int) -> None:
    cert, key = make_certificate(tmp_path)
    key.chmod(mode)
    with run_server(home, **tls_settings((cert, key))) as server:
        reason = f"other users can read {key}: its mode is {mode:04o}, not 0600; run `chmod 600 {key}`, and replace"
        assert disabled_reason(server).startswith(reason)
        error = str(server.run_on_loop(lambda: server.tcp.error))
        assert error.startswith(f"TCP is off: {reason}"), "`rota status` and `rota doctor` show it"
        key.chmod(0o600)
        server.run_on_loop(server.tcp.wake)
        eventually(lambda: server.tcp_status()["url"], description="TCP with a private key file")
        assert server.request(cafile=cert).status == 200


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_key_that_becomes_readable_turns_tcp_off(home: Path, tmp_path: Path, mode: int) -> None:
    """The content of the file does not change, so its mode must be checked."""
    cert, key = make_certificate(tmp_path)
    with run_server(home, **tls_settings((cert, key))) as server:
        address = server.address
        key.chmod(mode)
        server.run_on_loop(server.tcp.wake)  # as `kill -HUP` does
        reason = eventually(lambda: server.tcp_status()["disabled_reason"], description="TCP off")
        assert reason.startswith(f"other users can read {key}: its mode is {mode:04o}, not 0600")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        key.chmod(0o600)
        server.run_on_loop(server.tcp.wake)
        eventually(lambda: server.tcp_status()["url"], description="TCP with a private key file")
        assert server.request(cafile=cert).status == 200
