"""The scheduler over TCP."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import ChildControl, Response, Rota, eventually


def start_with_server_settings(rota: Rota, settings: str = "port = 0") -> dict[str, Any]:
    """Start the scheduler with these `[server]` settings; return its TCP status."""
    rota.home.mkdir(mode=0o700, exist_ok=True)
    (rota.home / "rota.toml").write_text(f"[server]\n{settings}\n")
    rota.start()
    return tcp_status(rota)


def tcp_status(rota: Rota) -> dict[str, Any]:
    """TCP status, available once the scheduler has started."""
    output: dict[str, Any] = rota.status()["tcp"]
    return output


def connection(rota: Rota) -> http.client.HTTPConnection:
    host, _, port = tcp_status(rota)["url"].removeprefix("http://").rpartition(":")
    return http.client.HTTPConnection(host, int(port), timeout=60)


def send(rota: Rota, method: str, target: str, body: Any = None, *, token: str | None = None) -> Response:
    used_token = (rota.home / "token").read_text().strip() if token is None else token
    client = connection(rota)
    try:
        payload = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {used_token}", "Content-Type": "application/json"}
        client.request(method, target, payload, headers)
        response = client.getresponse()
        return Response(response.status, response.read())
    finally:
        client.close()


def test_tcp_and_socket_give_the_same_responses(rota: Rota) -> None:
    status = start_with_server_settings(rota)
    assert status["disabled_reason"] is None
    assert send(rota, "POST", "/api/jobs", {"command": ["true"]}).status == 201
    assert send(rota, "GET", "/api/jobs/job-1?wait=30").json()["status"] == "COMPLETED"
    assert send(rota, "GET", "/api/jobs/job-1").body == rota.api("GET", "/api/jobs/job-1").body
    for path in ("/api/jobs", "/api/scheduler", "/metrics", "/ready", "/api/events", "/jobs", "/nothing"):
        assert send(rota, "GET", path, token="wrong").status == 401, path
    for path in ("/docs", "/openapi.json", "/problems"):
        assert send(rota, "GET", path, token="wrong").status == 200, path
    assert send(rota, "GET", "/health", token="wrong").json() == {"status": "ok"}
    assert send(rota, "GET", "/health").json() == {"status": "ok", "pid": rota.scheduler_pid}
    assert f"tcp            {status['url']}\n" in rota.run("status").out
    assert f"ok    tcp         {status['url']}\n" in rota.run("doctor").out
    assert rota.status()["errors"] == []


def test_batch_of_ten_thousand_jobs_is_accepted(rota: Rota) -> None:
    start_with_server_settings(rota)
    rota.run("pause")
    jobs = [{"command": ["true"], "params": {"text": "x" * 400}} for _ in range(10_000)]
    response = send(rota, "POST", "/api/jobs/batch", {"jobs": jobs})
    assert (response.status, len(response.json()["jobs"])) == (201, 10_000)


def test_port_in_use_does_not_stop_the_scheduler(rota: Rota, make_rota: Callable[..., Rota], tmp_path: Path) -> None:
    url = start_with_server_settings(rota)["url"]
    port = int(url.rpartition(":")[2])
    second = make_rota(tmp_path / "second")
    text = f"port {port} is in use on 127.0.0.1; `rota config set server.port 0` selects any free port"
    assert start_with_server_settings(second, f"port = {port}") == {"url": None, "disabled_reason": text}
    assert f"tcp            off: {text}\n" in second.run("status").out
    assert f"ok    tcp         off: {text}\n" in second.run("doctor").out
    assert second.status()["errors"] == [], "two homes on one machine are not an error"
    second.wait(second.submit("--", "true"))
    assert send(rota, "GET", "/api/jobs").json()["jobs"] == []
    rota.run("down")
    os.kill(second.scheduler_pid, signal.SIGHUP)
    eventually(lambda: tcp_status(second)["url"] == url, description="the free port after a reload")


def test_address_changes_while_running(rota: Rota) -> None:
    first = start_with_server_settings(rota)["url"]
    scheduler = rota.scheduler_pid
    rota.run("config", "set", "server.host", "::1")
    eventually(lambda: str(tcp_status(rota)["url"]).startswith("http://[::1]:"), description="the other address")
    rota.run("config", "set", "server.host", "0.0.0.0")  # noqa: S104
    reason = eventually(lambda: tcp_status(rota)["disabled_reason"], description="TCP off")
    assert reason.startswith("server.host = '0.0.0.0' is not a loopback address, and others require TLS; set")
    assert rota.status()["errors"] == [f"TCP is off: {reason}"]
    assert f"warn  scheduler   TCP is off: {reason}\n" in rota.run("doctor").out
    rota.run("config", "set", "server.port", "off")
    eventually(lambda: tcp_status(rota)["disabled_reason"] == 'server.port is "off"', description="TCP turned off")
    assert rota.status()["errors"] == []
    rota.run("config", "set", "server.host", "default")
    rota.run("config", "set", "server.port", first.rpartition(":")[2])
    eventually(lambda: tcp_status(rota)["url"] == first, description="the first address")
    assert rota.scheduler_pid == scheduler


def test_token_is_printed_and_rotated(rota: Rota) -> None:
    created = rota.run("token").out.strip()
    assert (rota.home / "token").stat().st_mode & 0o777 == 0o600
    assert rota.schedulers() == [], "needs no scheduler"
    start_with_server_settings(rota)
    path = rota.home / "token"
    assert rota.run("token").out.strip() == created == path.read_text().strip()
    assert rota.run("token", "--path").out == f"{path}\n"
    assert rota.json("token") == {"token": created, "path": str(path)}
    follower = connection(rota)
    follower.request("GET", "/api/events", headers={"Authorization": f"Bearer {created}"})
    stream = follower.getresponse()
    assert stream.status == 200
    new = rota.run("token", "--rotate").out.strip()
    assert new != created
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        expect_cut_stream(stream)
    follower.close()
    assert send(rota, "GET", "/api/jobs", token=created).status == 401
    assert send(rota, "GET", "/api/jobs").status == 200
    path.chmod(0o644)
    refused = rota.run("token", code=1)
    assert refused.err == (
        f"rota: other users can read {path}: its mode is 0644, not 0600; `rota token --rotate` creates a new one\n"
    )
    assert rota.status()["tcp"]["url"] is None
    rota.run("token", "--rotate")
    assert rota.status()["tcp"]["disabled_reason"] is None


def expect_cut_stream(stream: http.client.HTTPResponse) -> None:
    """Read the stream and raise IncompleteRead if it ends without an error."""
    stream.read()
    raise http.client.IncompleteRead(b"")


def test_shutdown_with_open_connections_is_clean(rota: Rota, children: ChildControl) -> None:
    start_with_server_settings(rota)
    job = rota.post_job(children.gated("runs"))
    children.read_lines()
    token = (rota.home / "token").read_text().strip()
    idle = connection(rota)
    idle.connect()
    streams = []
    for target in ("/api/events", f"/api/jobs/{job}/logs/stdout?follow=1", f"/api/jobs/{job}?wait=60"):
        stream_connection = connection(rota)
        stream_connection.request("GET", target, headers={"Authorization": f"Bearer {token}"})
        streams.append(stream_connection)
    scheduler = rota.scheduler_pid
    rota.run("down", "--grace", "0s")
    assert scheduler not in rota.processes()
    for client in (idle, *streams):
        client.close()
    log = (rota.home / "rota.log").read_text()
    assert "Traceback" not in log
    assert token not in log
    rota.start()
    children.release("runs")
    rota.wait_for_end(job)


def test_request_contents_are_not_logged(rota: Rota) -> None:
    start_with_server_settings(rota)
    token = (rota.home / "token").read_text().strip()
    for used_token in (token, "another-secret"):
        send(rota, "POST", "/api/jobs", {"command": ["true"], "nonsense": 1}, token=used_token)
        send(rota, "GET", f"/api/jobs?token={used_token}", token=used_token)
    rota.run("down")
    log = (rota.home / "rota.log").read_text()
    assert token not in log
    assert "another-secret" not in log


def test_environment_values_are_never_returned(rota: Rota) -> None:
    start_with_server_settings(rota)
    secret = "a-secret-value"
    env = {"env": {"SECRET": secret}}
    send(rota, "POST", "/api/job-templates", {"name": "t", "command": ["true"], **env})
    send(rota, "POST", "/api/schedules", {"name": "s", "cron": "0 0 * * *", "job": {"command": ["true"], **env}})
    send(rota, "POST", "/api/jobs/batch", {"jobs": [{"command": ["true"], **env}], "group": {}, **env})
    job = send(rota, "POST", "/api/jobs", {"command": ["true"], **env})
    direct = send(rota, "POST", "/api/direct", {"command": ["true"], **env})
    rota.wait_for_end("job-1")
    rota.wait_for_end("job-2")
    bodies = [job.body, direct.body]
    paths = json.loads(send(rota, "GET", "/openapi.json").body)["paths"]
    known_parameters = {
        "job": "job-1",
        "run": "run-1",
        "group": "group-1",
        "template": "t",
        "schedule": "s",
        "reservation": "reservation-1",
    }
    for path, methods in paths.items():
        target = path.format_map({**dict.fromkeys(_path_parameters(path), "x"), **known_parameters})
        if "get" in methods and path != "/api/events":
            bodies.append(send(rota, "GET", target).body)
    assert len(bodies) > 30
    assert not [body for body in bodies if secret.encode() in body]


def _path_parameters(path: str) -> list[str]:
    return [part.partition("}")[0] for part in path.split("{")[1:]]


@pytest.mark.parametrize("over_tcp", [False, True])
def test_limits_apply_to_tcp_and_socket(rota: Rota, over_tcp: bool) -> None:
    start_with_server_settings(rota)
    token = (rota.home / "token").read_text().strip()

    def send_raw(head: str, body: bytes = b"") -> tuple[int, str]:
        client = connection(rota) if over_tcp else rota.connection()
        client.connect()
        port = client.port if over_tcp else 0
        own_headers = f"Host: localhost:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        line, _, rest = head.partition("\r\n")
        client.sock.sendall(f"{line}\r\n{own_headers}{rest}\r\n".encode())
        try:
            for n in range(0, len(body), 1 << 20):
                client.sock.sendall(body[n : n + (1 << 20)])
        except (BrokenPipeError, ConnectionResetError):
            pass
        response = http.client.HTTPResponse(client.sock)
        response.begin()
        document = json.loads(response.read())
        client.close()
        return response.status, document["code"]

    assert send_raw(f"POST /api/jobs HTTP/1.1\r\nContent-Length: {(64 << 20) + 1}\r\n") == (413, "body-too-large")
    chunk = b"1000000\r\n" + b" " * 0x1000000 + b"\r\n"
    assert send_raw("POST /api/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", chunk * 5) == (413, "body-too-large")
    assert send_raw(f"GET /api/jobs HTTP/1.1\r\nx: {'y' * 70_000}\r\n") == (431, "headers-too-large")
    assert send_raw(f"GET /api/jobs?{'x' * 20_000} HTTP/1.1\r\n") == (414, "target-too-long")
    assert send_raw("nonsense\r\n") == (400, "bad-request")
    for depth in (70, 900, 5000, 100_000):
        for opens, closes in (("[", "]"), ('{"a":', "}")):
            nested = f"{opens * depth}1{closes * depth}"
            body = f'{{"command":["true"],"params":{{"x":{nested}}}}}'.encode()
            head = f"POST /api/jobs HTTP/1.1\r\nContent-Length: {len(body)}\r\n"
            assert send_raw(head, body) == (422, "invalid-input")
    nested = "[" * 64 + "]" * 64
    refused = rota.api(
        "POST", "/api/jobs/batch", {"jobs": [{"command": ["true"], "params": {"x": {"y": json.loads(nested)}}}]}
    )
    assert (refused.status, refused.json()["path"]) == (422, "$.jobs[0].params")


def test_compressed_body_is_refused(rota: Rota) -> None:
    start_with_server_settings(rota)
    body = gzip.compress(b'{"command":["true"]}')
    token = {"Authorization": f"Bearer {(rota.home / 'token').read_text().strip()}"}
    for client, own_headers in ((rota.connection(), {}), (connection(rota), token)):
        for coding in ("gzip", "GZIP", "deflate, gzip"):
            headers = {"Content-Encoding": coding, "Content-Type": "application/json", **own_headers}
            client.request("POST", "/api/jobs", body, headers)
            response = client.getresponse()
            problem = json.loads(response.read())
            assert (response.status, problem["code"]) == (415, "unsupported-media-type")
            assert problem["detail"] == f"Content-Encoding {coding!r} is not supported; send uncompressed JSON"
        client.request("POST", "/api/jobs", b'{"command":["true"]}', {**headers, "Content-Encoding": "identity"})
        response = client.getresponse()
        assert (response.status, bool(response.read())) == (201, True)
        client.close()


def test_socket_needs_no_token_or_content_type(rota: Rota) -> None:
    """The socket needs no token, content type or host name: only its owner can connect, and no browser can."""
    rota.start()
    client = rota.connection()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Host": "whatever"}
    client.request("POST", "/api/jobs", b'{"command": ["true"]}', headers)
    assert client.getresponse().status == 201
    client.close()


def test_port_in_use_does_not_affect_the_socket(rota: Rota) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        assert start_with_server_settings(rota, f"port = {port}")["disabled_reason"] == (
            f"port {port} is in use on 127.0.0.1; `rota config set server.port 0` selects any free port"
        )
        rota.wait(rota.submit("--", "true"))
