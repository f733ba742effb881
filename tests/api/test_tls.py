"""TLS: with a certificate that the test makes, over real connections."""

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

from api.host import Host, hosting
from e2e.rig import eventually
from rota import AsyncClient, Client, Unavailable
from rota.api import tls

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")

ANYWHERE = "0.0.0.0"  # noqa: S104
NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"


def certify(folder: Path, name: str = "rota", *options: str) -> tuple[Path, Path]:
    """A certificate that vouches for itself, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    secret = options or ("-nodes",)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *secret, "-days", "2",
         "-subj", f"/CN={name}", "-addext", NAMES, "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certify(tmp_path_factory.mktemp("tls"))


def settings(files: tuple[Path, Path], **more: Any) -> dict[str, Any]:
    return {"tls_cert": str(files[0]), "tls_key": str(files[1]), **more}


def test_on_loopback_where_it_is_wanted(home: Path, files: tuple[Path, Path]) -> None:
    with hosting(home, **settings(files)) as host:
        assert host.url == f"https://127.0.0.1:{host.address[1]}"
        assert host.ask(trust=files[0]).status == 200
        assert host.ask("POST", body=b"a" * 300_000, trust=files[0]).body == b'{"read":300000}'
        assert host.ask(trust=files[0], has_token=False).status == 401
        own = host.url.partition("://")[2]
        assert host.ask(trust=files[0], origin=f"https://{own}").status == 200
        assert host.ask(trust=files[0], origin=f"http://{own}").status == 403
        with host.connect(files[0]) as connection:
            assert connection.version() in ("TLSv1.2", "TLSv1.3")  # type: ignore[attr-defined]


def test_elsewhere_only_with_it(home: Path, files: tuple[Path, Path]) -> None:
    with hosting(home, host=ANYWHERE, **settings(files)) as host:
        port = host.address[1]
        assert host.url == f"https://0.0.0.0:{port}"
        assert host.ask(trust=files[0], host=f"127.0.0.1:{port}").status == 200
        assert host.ask(trust=files[0], host=f"0.0.0.0:{port}").status == 421
        assert host.ask(trust=files[0], host=f"rota.example.org:{port}").status == 421
        # Without the files there is no TCP, not a plain one.
        host.change(host=ANYWHERE, port=port)
        eventually(lambda: host.settled()["off"], what="TCP off")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_both_families_at_once(home: Path, files: tuple[Path, Path]) -> None:
    """Seen through the newer one, the older's addresses look otherwise."""
    with hosting(home, host="::", **settings(files)) as host:
        port = host.address[1]
        for address in ("127.0.0.1", "::1"):
            context = ssl.create_default_context(cafile=files[0])
            with (
                socket.create_connection((address, port), timeout=20) as plain,
                context.wrap_socket(plain, server_hostname=address) as secure,
            ):
                shown = f"[{address}]" if ":" in address else address
                head = f"GET / HTTP/1.1\r\nHost: {shown}:{port}\r\nAuthorization: Bearer {host.token}\r\n\r\n"
                secure.sendall(head.encode())
                assert secure.recv(4096).startswith(b"HTTP/1.1 200 OK")


def test_plain_http_is_not_answered_there(home: Path, files: tuple[Path, Path]) -> None:
    with hosting(home, **settings(files)) as host:
        with host.connect() as connection:
            connection.sendall(f"GET / HTTP/1.1\r\nAuthorization: Bearer {host.token}\r\n\r\n".encode())
            try:
                said = connection.recv(4096)
            except ConnectionResetError:
                said = b""
            assert b"HTTP" not in said
        assert host.ask(trust=files[0]).status == 200


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_that_speaks_plain_http_there_is_told(
    home: Path, files: tuple[Path, Path], kind: type[Client | AsyncClient]
) -> None:
    async def ask(client: Any, what: str) -> None:
        asked = client.health() if what == "health" else client.submit(["true"])
        if isinstance(client, AsyncClient):
            await asked

    with hosting(home, **settings(files)) as host:
        url = host.url.replace("https://", "http://")
        said = f"{url} closes the connection without an answer; if it speaks TLS, write https:// instead of http://"
        for what in ("health", "submit"):
            with pytest.raises(Unavailable) as told:
                asyncio.run(ask(kind(url=url, token=host.token), what))
            assert told.value.message.startswith(said)


def test_who_never_shakes_hands_keeps_nobody_out_for_long(
    home: Path, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_PATIENCE", 0.3)
    monkeypatch.setattr(tls, "MOST_HANDSHAKES", 4)
    with hosting(home, **settings(files)) as host, ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(host.connect())
        assert host.on_loop(lambda: len(host.tcp._shaking)) <= 4, "no more descriptors than that"

        def is_in() -> bool:
            try:
                return host.ask(trust=files[0]).status == 200
            except OSError:
                return False

        eventually(is_in, what="a place for who speaks TLS")


def test_a_new_certificate_is_taken_up(home: Path, tmp_path: Path) -> None:
    files = certify(tmp_path)
    with hosting(home, **settings(files)) as host:
        assert host.ask(trust=files[0]).status == 200
        before = files[0].read_bytes()
        certify(tmp_path)
        assert files[0].read_bytes() != before
        with pytest.raises(ssl.SSLCertVerificationError):
            host.ask(trust=files[0])
        host.on_loop(host.tcp.wake)  # as `kill -HUP` does

        def is_new() -> bool:
            try:
                return host.ask(trust=files[0]).status == 200
            except (ssl.SSLError, OSError):
                return False

        eventually(is_new, what="the new certificate")


def off(host: Host) -> str:
    said = host.settled()["off"]
    assert said is not None
    return said


def test_files_that_cannot_be_used_are_named(home: Path, tmp_path: Path, files: tuple[Path, Path]) -> None:
    other = certify(tmp_path, "other")
    locked = certify(tmp_path, "locked", "-passout", "pass:secret")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("not a certificate\n")
    nonsense.chmod(0o600)
    for pair in ((files[0], other[1]), (nonsense, files[1]), (files[0], nonsense), locked):
        with hosting(home, **settings(pair)) as host:
            said = off(host)
            assert said.startswith(f"{pair[0]} and {pair[1]} cannot be used as certificate and key (")
            assert said.endswith("; they are PEM files that belong together, and the key has no passphrase")
    with hosting(home, **settings((files[0], tmp_path))) as host:
        assert off(host) == f"{tmp_path} cannot be read: Is a directory"


@pytest.mark.parametrize("bits", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_turns_it_off(home: Path, tmp_path: Path, bits: int) -> None:
    cert, key = certify(tmp_path)
    key.chmod(bits)
    with hosting(home, **settings((cert, key))) as host:
        said = f"others can read {key}: its mode is {bits:04o}, not 0600; `chmod 600 {key}`, and if somebody"
        assert str(host.settled()["off"]).startswith(said)
        assert str(host.on_loop(lambda: host.tcp.trouble)).startswith(f"TCP is off: {said}"), "in `status` and `doctor`"
        key.chmod(0o600)
        host.on_loop(host.tcp.wake)
        eventually(lambda: host.settled()["url"], what="TCP with a key that is a secret")
        assert host.ask(trust=cert).status == 200


@pytest.mark.parametrize("others_may", [0o644, 0o640])
def test_a_key_that_others_come_to_read_turns_it_off(home: Path, tmp_path: Path, others_may: int) -> None:
    """What is in it is the same, so it has to be its mode that is looked at again."""
    cert, key = certify(tmp_path)
    with hosting(home, **settings((cert, key))) as host:
        address = host.address
        key.chmod(others_may)
        host.on_loop(host.tcp.wake)  # as `kill -HUP` does
        said = eventually(lambda: host.settled()["off"], what="TCP off")
        assert said.startswith(f"others can read {key}: its mode is {others_may:04o}, not 0600")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        key.chmod(0o600)
        host.on_loop(host.tcp.wake)
        eventually(lambda: host.settled()["url"], what="TCP with a key that is a secret")
        assert host.ask(trust=cert).status == 200
