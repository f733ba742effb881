"""Where it listens, why it does not, and how that changes while it runs."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from api.host import Host, hosting
from e2e.rig import eventually
from rota import token
from rota.api import tcp
from rota.config import Server
from rota.errors import HomeError


def trouble(host: Host) -> str | None:
    return host.on_loop(lambda: host.tcp.trouble)


def stream(host: Host) -> socket.socket:
    connection = host.connect()
    own = f"Host: {host.url.partition('://')[2]}\r\nAuthorization: Bearer {host.token}"
    connection.sendall(f"GET /stream HTTP/1.1\r\n{own}\r\n\r\n".encode())
    assert b"200 OK" in connection.recv(4096)
    return connection


ANYWHERE = "0.0.0.0"  # noqa: S104


def is_silent(connection: socket.socket) -> bool:
    """Nothing comes for a moment, and it is not closed."""
    connection.settimeout(0.2)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return True
    return False


def is_cut(connection: socket.socket) -> bool:
    with connection:
        try:
            while connection.recv(4096):
                pass
        except ConnectionResetError:
            pass
        return True


def test_any_free_port_on_loopback(home: Path) -> None:
    with hosting(home) as host:
        assert host.address[0] == "127.0.0.1"
        assert host.settled() == {"url": f"http://127.0.0.1:{host.address[1]}", "off": None}
        assert host.ask().status == 200
        assert trouble(host) is None
        assert (home / "token").stat().st_mode & 0o777 == 0o600


def test_ipv6(home: Path) -> None:
    with hosting(home, host="::1") as host:
        assert host.url == f"http://[::1]:{host.address[1]}"
        assert host.ask().status == 200
        assert host.ask(host=f"localhost:{host.address[1]}", origin=f"http://localhost:{host.address[1]}").status == 200
        assert host.ask(host=f"[::2]:{host.address[1]}").status == 421


def test_a_name_for_loopback(home: Path) -> None:
    with hosting(home, host="localhost") as host:
        assert host.address[0] in ("127.0.0.1", "::1")
        assert host.ask().status == 200


def test_a_taken_port_is_nobodys_fault_and_is_tried_again(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with hosting(home, port=port) as host:
            assert host.settled() == {
                "url": None,
                "off": f"port {port} is taken on 127.0.0.1; `rota config set server.port 0` takes any that is free",
            }
            assert trouble(host) is None
            taken.close()
            host.on_loop(host.tcp.wake)
            eventually(lambda: host.settled()["url"] == f"http://127.0.0.1:{port}", what="another try")
            assert host.ask().status == 200


def test_two_at_one_port_and_the_next_start_has_it_again(home: Path, tmp_path: Path) -> None:
    with hosting(home) as first:
        port = first.address[1]
        with hosting(tmp_path, port=port) as second:
            assert str(second.settled()["off"]).startswith(f"port {port} is taken")
        assert first.ask().status == 200
    with hosting(home, port=port) as again:
        assert again.address[1] == port


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"host": ANYWHERE},
            (
                "server.host = '0.0.0.0' is not a loopback address, and elsewhere only TLS is spoken;"
                " set server.tls_cert and server.tls_key, or leave server.host at 127.0.0.1"
            ),
        ),
        ({"host": "::"}, "server.host = '::' is not a loopback address, and elsewhere"),
        ({"host": "::ffff:127.0.0.1"}, "server.host = '::ffff:127.0.0.1' is not a loopback address"),
        ({"host": "nowhere.invalid"}, "server.host = 'nowhere.invalid' is not known here: "),
        ({"host": "1.2.3.4.5"}, "server.host = '1.2.3.4.5' is not known here: "),
        ({"tls_cert": "cert.pem"}, "server.tls_cert is set and server.tls_key is not; TLS needs both"),
        ({"tls_key": "key.pem"}, "server.tls_key is set and server.tls_cert is not; TLS needs both"),
        ({"tls_cert": "cert.pem", "tls_key": "key.pem"}, "{home}/cert.pem cannot be read: No such file or directory"),
        ({"tls_cert": "/cert.pem", "tls_key": "key.pem"}, "/cert.pem cannot be read: No such file or directory"),
    ],
)  # fmt: skip
def test_a_mistake_turns_it_off_and_is_said(home: Path, settings: dict[str, Any], said: str) -> None:
    with hosting(home, **settings) as host:
        about = host.settled()
        assert about["url"] is None
        assert str(about["off"]).startswith(said.replace("{home}", str(home)))
        assert trouble(host) == f"TCP is off: {about['off']}"
        host.change()
        eventually(lambda: host.settled()["url"], what="TCP once it is mended")
        assert trouble(host) is None


def test_an_address_of_another_machine(home: Path) -> None:
    """With TLS or without, nobody can listen there."""
    with pytest.raises(Exception, match=r"cannot listen on 192\.0\.2\.7 port 0: Cannot assign requested address; see"):
        tcp._bind(socket.AF_INET, ("192.0.2.7", 0), Server(host="192.0.2.7", port=0))


def test_off(home: Path) -> None:
    with hosting(home, port="off") as host:
        assert host.settled() == {"url": None, "off": 'server.port is "off"'}
        assert trouble(host) is None
        assert list(home.iterdir()) == [], "a token that nobody needs is not made"


def test_another_address_ends_what_is_connected(home: Path) -> None:
    with hosting(home) as host:
        before = host.address
        listener = stream(host)
        host.change(host="::1")
        assert is_cut(listener)
        eventually(lambda: host.address[0] == "::1", what="the other address")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(before)
        assert host.ask().status == 200
        listener = stream(host)
        host.change(port="off")
        assert is_cut(listener)
        assert host.settled()["off"] == 'server.port is "off"'
        eventually(lambda: host.streams == 0, what="the application to know")


def test_what_does_not_concern_it_leaves_it_alone(home: Path) -> None:
    with hosting(home) as host:
        before = host.url
        with stream(host) as listener:
            host.change(allowed_hosts=("rota.example.org",))
            assert host.ask(host="rota.example.org").status == 200
            assert host.url == before
            assert is_silent(listener)
            assert host.streams == 1


def test_a_new_token_holds_at_once_and_ends_what_the_old_one_opened(home: Path) -> None:
    with hosting(home) as host:
        old = host.token
        listener = stream(host)
        token.rotate(home / "token")
        assert host.token != old
        assert host.ask().status == 200
        assert host.ask(authorization=f"Bearer {old}").status == 401
        assert is_cut(listener)
        # Told of it, nobody has to ask first.
        listener = stream(host)
        token.rotate(home / "token")
        host.on_loop(host.tcp.wake)
        assert is_cut(listener)
        assert host.ask().status == 200


def test_a_wrong_guess_after_a_rotation_ends_nothing_twice(home: Path) -> None:
    with hosting(home) as host, stream(host) as listener:
        for _ in range(3):
            assert host.ask(authorization="Bearer wrong").status == 401
        assert is_silent(listener)


@pytest.mark.parametrize("bits", [0o644, 0o640, 0o666])
def test_a_token_that_others_can_read_lets_nobody_in(home: Path, bits: int) -> None:
    path = home / "token"
    token.ensure(path)
    path.chmod(bits)
    with hosting(home) as host:
        said = f"others can read {path}: its mode is {bits:04o}, not 0600; `rota token --rotate` makes a new one"
        assert host.settled() == {"url": None, "off": said}
        assert trouble(host) == f"TCP is off: {said}"
        token.rotate(path)
        host.on_loop(host.tcp.wake)
        eventually(lambda: host.settled()["url"], what="TCP with a token that is a secret")
        assert host.ask().status == 200


def test_a_token_that_goes_bad_while_running_lets_nobody_in(home: Path) -> None:
    path = home / "token"
    with hosting(home) as host:
        good, own = host.token, host.url
        listener = stream(host)
        path.chmod(0o644)
        address = host.address_of(own)
        assert host.ask_at(address, good).status == 401
        assert is_cut(listener)
        assert str(host.settled()["off"]).startswith(f"others can read {path}")
        path.unlink()
        assert host.ask_at(address, good).status == 401
        assert host.settled() == {"url": None, "off": f"{path} is not there; `rota token` makes it"}
        token.ensure(path)
        assert host.ask_at(address, good).status == 401
        assert host.ask_at(address, host.token).status == 200
        assert host.settled() == {"url": own, "off": None}


def test_no_token_can_be_made(home: Path) -> None:
    (home / "token").mkdir()
    with pytest.raises(HomeError, match=r"is not a plain file|cannot be read"):
        token.read(home / "token")
    with hosting(home) as host:
        assert host.settled()["url"] is None
        assert "token" in str(host.settled()["off"])


def test_a_start_does_not_wait_for_ever(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server, or a file system with certificates, may never answer."""
    answers = threading.Event()
    prepare = tcp._prepare

    def slowly(*given: Any) -> Any:
        answers.wait()
        return prepare(*given)

    monkeypatch.setattr(tcp, "_prepare", slowly)
    monkeypatch.setattr(tcp, "_PATIENCE", 0.05)
    with hosting(home) as host:
        assert str(host.settled()["off"]).startswith("it is being started; ")
        answers.set()
        eventually(lambda: host.settled()["url"], what="TCP as soon as all it needs is known")
