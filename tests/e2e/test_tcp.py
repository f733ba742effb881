"""The scheduler over TCP, as programs and people meet it."""

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

from e2e.rig import Answer, Rota, Stage, eventually


def settle(rota: Rota, settings: str = "port = 0") -> dict[str, Any]:
    """Start it with this `[server]`; what it says of TCP."""
    rota.home.mkdir(mode=0o700, exist_ok=True)
    (rota.home / "rota.toml").write_text(f"[server]\n{settings}\n")
    rota.start()
    return tcp(rota)


def tcp(rota: Rota) -> dict[str, Any]:
    """Known as soon as the scheduler has started."""
    said: dict[str, Any] = rota.status()["tcp"]
    return said


def connection(rota: Rota) -> http.client.HTTPConnection:
    host, _, port = tcp(rota)["url"].removeprefix("http://").rpartition(":")
    return http.client.HTTPConnection(host, int(port), timeout=60)


def ask(rota: Rota, method: str, target: str, body: Any = None, *, token: str | None = None) -> Answer:
    given = (rota.home / "token").read_text().strip() if token is None else token
    asking = connection(rota)
    try:
        payload = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {given}", "Content-Type": "application/json"}
        asking.request(method, target, payload, headers)
        response = asking.getresponse()
        return Answer(response.status, response.read())
    finally:
        asking.close()


def test_the_same_over_both(rota: Rota) -> None:
    said = settle(rota)
    assert said["off"] is None
    assert ask(rota, "POST", "/api/jobs", {"command": ["true"]}).status == 201
    assert ask(rota, "GET", "/api/jobs/job-1?wait=30").json()["status"] == "COMPLETED"
    assert ask(rota, "GET", "/api/jobs/job-1").body == rota.api("GET", "/api/jobs/job-1").body
    for path in ("/api/jobs", "/api/scheduler", "/metrics", "/ready", "/api/events", "/jobs", "/nothing"):
        assert ask(rota, "GET", path, token="wrong").status == 401, path
    for path in ("/docs", "/openapi.json", "/problems"):
        assert ask(rota, "GET", path, token="wrong").status == 200, path
    assert ask(rota, "GET", "/health", token="wrong").json() == {"status": "ok"}
    assert ask(rota, "GET", "/health").json() == {"status": "ok", "pid": rota.scheduler}
    assert f"tcp            {said['url']}\n" in rota.ask("status").out
    assert f"ok    tcp         {said['url']}\n" in rota.ask("doctor").out
    assert rota.status()["trouble"] == []


def test_a_batch_of_ten_thousand_jobs_passes(rota: Rota) -> None:
    settle(rota)
    rota.ask("pause")
    jobs = [{"command": ["true"], "params": {"text": "x" * 400}} for _ in range(10_000)]
    answer = ask(rota, "POST", "/api/jobs/batch", {"jobs": jobs})
    assert (answer.status, len(answer.json()["jobs"])) == (201, 10_000)


def test_a_taken_port_stops_nothing(rota: Rota, make_rota: Callable[..., Rota], tmp_path: Path) -> None:
    url = settle(rota)["url"]
    port = int(url.rpartition(":")[2])
    second = make_rota(tmp_path / "second")
    text = f"port {port} is taken on 127.0.0.1; `rota config set server.port 0` takes any that is free"
    assert settle(second, f"port = {port}") == {"url": None, "off": text}
    assert f"tcp            off: {text}\n" in second.ask("status").out
    assert f"ok    tcp         off: {text}\n" in second.ask("doctor").out
    assert second.status()["trouble"] == [], "two homes on one machine are nothing out of the ordinary"
    second.wait(second.submit("--", "true"))
    assert ask(rota, "GET", "/api/jobs").json()["jobs"] == []
    rota.ask("down")
    os.kill(second.scheduler, signal.SIGHUP)
    eventually(lambda: tcp(second)["url"] == url, what="the port, once it is free and the file is read again")


def test_it_changes_while_running(rota: Rota) -> None:
    first = settle(rota)["url"]
    scheduler = rota.scheduler
    rota.ask("config", "set", "server.host", "::1")
    eventually(lambda: str(tcp(rota)["url"]).startswith("http://[::1]:"), what="the other address")
    rota.ask("config", "set", "server.host", "0.0.0.0")  # noqa: S104
    off = eventually(lambda: tcp(rota)["off"], what="TCP off")
    assert off.startswith("server.host = '0.0.0.0' is not a loopback address, and elsewhere only TLS is spoken; set")
    assert rota.status()["trouble"] == [f"TCP is off: {off}"]
    assert f"warn  scheduler   TCP is off: {off}\n" in rota.ask("doctor").out
    rota.ask("config", "set", "server.port", "off")
    eventually(lambda: tcp(rota)["off"] == 'server.port is "off"', what="TCP turned off")
    assert rota.status()["trouble"] == []
    rota.ask("config", "set", "server.host", "default")
    rota.ask("config", "set", "server.port", first.rpartition(":")[2])
    eventually(lambda: tcp(rota)["url"] == first, what="the first address")
    assert rota.scheduler == scheduler


def test_the_token_is_printed_and_replaced(rota: Rota) -> None:
    made = rota.ask("token").out.strip()
    assert (rota.home / "token").stat().st_mode & 0o777 == 0o600
    assert rota.schedulers() == [], "it takes no scheduler"
    settle(rota)
    path = rota.home / "token"
    assert rota.ask("token").out.strip() == made == path.read_text().strip()
    assert rota.ask("token", "--path").out == f"{path}\n"
    assert rota.json("token") == {"token": made, "path": str(path)}
    follower = connection(rota)
    follower.request("GET", "/api/events", headers={"Authorization": f"Bearer {made}"})
    stream = follower.getresponse()
    assert stream.status == 200
    new = rota.ask("token", "--rotate").out.strip()
    assert new != made
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        raise_or_end(stream)
    follower.close()
    assert ask(rota, "GET", "/api/jobs", token=made).status == 401
    assert ask(rota, "GET", "/api/jobs").status == 200
    path.chmod(0o644)
    refused = rota.ask("token", code=1)
    assert refused.err == (
        f"rota: others can read {path}: its mode is 0644, not 0600; `rota token --rotate` makes a new one\n"
    )
    assert rota.status()["tcp"]["url"] is None
    rota.ask("token", "--rotate")
    assert rota.status()["tcp"]["off"] is None


def raise_or_end(stream: http.client.HTTPResponse) -> None:
    """Read to the end; a stream that was cut off has none."""
    stream.read()
    raise http.client.IncompleteRead(b"")


def test_the_end_is_clean_with_clients_there(rota: Rota, stage: Stage) -> None:
    settle(rota)
    job = rota.post(stage.actor("runs"))
    stage.hear()
    token = (rota.home / "token").read_text().strip()
    idle = connection(rota)
    idle.connect()
    streams = []
    for target in ("/api/events", f"/api/jobs/{job}/logs/stdout?follow=1", f"/api/jobs/{job}?wait=60"):
        each = connection(rota)
        each.request("GET", target, headers={"Authorization": f"Bearer {token}"})
        streams.append(each)
    scheduler = rota.scheduler
    rota.ask("down", "--grace", "0s")
    assert scheduler not in rota.processes()
    for each in (idle, *streams):
        each.close()
    log = (rota.home / "rota.log").read_text()
    assert "Traceback" not in log
    assert token not in log
    rota.start()
    stage.release("runs")
    rota.ended(job)


def test_nothing_that_was_sent_is_in_the_log(rota: Rota) -> None:
    settle(rota)
    token = (rota.home / "token").read_text().strip()
    for given in (token, "somebodys-other-secret"):
        ask(rota, "POST", "/api/jobs", {"command": ["true"], "nonsense": 1}, token=given)
        ask(rota, "GET", f"/api/jobs?token={given}", token=given)
    rota.ask("down")
    log = (rota.home / "rota.log").read_text()
    assert token not in log
    assert "somebodys-other-secret" not in log


def test_the_values_of_an_environment_are_nowhere_to_be_seen(rota: Rota) -> None:
    settle(rota)
    secret = "a-value-that-nobody-is-to-see"
    env = {"env": {"SECRET": secret}}
    ask(rota, "POST", "/api/job-templates", {"name": "t", "command": ["true"], **env})
    ask(rota, "POST", "/api/schedules", {"name": "s", "cron": "0 0 * * *", "job": {"command": ["true"], **env}})
    ask(rota, "POST", "/api/jobs/batch", {"jobs": [{"command": ["true"], **env}], "group": {}, **env})
    job = ask(rota, "POST", "/api/jobs", {"command": ["true"], **env})
    direct = ask(rota, "POST", "/api/direct", {"command": ["true"], **env})
    rota.ended("job-1")
    rota.ended("job-2")
    said = [job.body, direct.body]
    paths = json.loads(ask(rota, "GET", "/openapi.json").body)["paths"]
    named = {"job": "job-1", "run": "run-1", "group": "group-1", "template": "t", "schedule": "s", "slot": "slot-1"}
    for path, methods in paths.items():
        target = path.format_map({**dict.fromkeys(_places(path), "x"), **named})
        if "get" in methods and path != "/api/events":
            said.append(ask(rota, "GET", target).body)
    assert len(said) > 30
    assert not [body for body in said if secret.encode() in body]


def _places(path: str) -> list[str]:
    return [part.partition("}")[0] for part in path.split("{")[1:]]


@pytest.mark.parametrize("over_tcp", [False, True])
def test_limits_hold_on_both_ways_in(rota: Rota, over_tcp: bool) -> None:
    settle(rota)
    token = (rota.home / "token").read_text().strip()

    def said(head: str, body: bytes = b"") -> tuple[int, str]:
        asking = connection(rota) if over_tcp else rota.connection()
        asking.connect()
        port = asking.port if over_tcp else 0
        own = f"Host: localhost:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        line, _, rest = head.partition("\r\n")
        asking.sock.sendall(f"{line}\r\n{own}{rest}\r\n".encode())
        try:
            for n in range(0, len(body), 1 << 20):
                asking.sock.sendall(body[n : n + (1 << 20)])
        except (BrokenPipeError, ConnectionResetError):
            pass
        response = http.client.HTTPResponse(asking.sock)
        response.begin()
        document = json.loads(response.read())
        asking.close()
        return response.status, document["code"]

    assert said(f"POST /api/jobs HTTP/1.1\r\nContent-Length: {(64 << 20) + 1}\r\n") == (413, "too-large")
    chunk = b"1000000\r\n" + b" " * 0x1000000 + b"\r\n"
    assert said("POST /api/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", chunk * 5) == (413, "too-large")
    assert said(f"GET /api/jobs HTTP/1.1\r\nx: {'y' * 70_000}\r\n") == (431, "headers-too-large")
    assert said(f"GET /api/jobs?{'x' * 20_000} HTTP/1.1\r\n") == (414, "target-too-long")
    assert said("nonsense\r\n") == (400, "bad-request")
    for depth in (70, 900, 5000, 100_000):
        for opens, closes in (("[", "]"), ('{"a":', "}")):
            deep = f"{opens * depth}1{closes * depth}"
            body = f'{{"command":["true"],"params":{{"x":{deep}}}}}'.encode()
            head = f"POST /api/jobs HTTP/1.1\r\nContent-Length: {len(body)}\r\n"
            assert said(head, body) == (422, "invalid-input")
    deep = "[" * 64 + "]" * 64
    refused = rota.api(
        "POST", "/api/jobs/batch", {"jobs": [{"command": ["true"], "params": {"x": {"y": json.loads(deep)}}}]}
    )
    assert (refused.status, refused.json()["path"]) == (422, "$.jobs[0].params")


def test_a_compressed_body_is_refused_and_said_to_be(rota: Rota) -> None:
    settle(rota)
    body = gzip.compress(b'{"command":["true"]}')
    token = {"Authorization": f"Bearer {(rota.home / 'token').read_text().strip()}"}
    for asking, own in ((rota.connection(), {}), (connection(rota), token)):
        for coding in ("gzip", "GZIP", "deflate, gzip"):
            headers = {"Content-Encoding": coding, "Content-Type": "application/json", **own}
            asking.request("POST", "/api/jobs", body, headers)
            response = asking.getresponse()
            said = json.loads(response.read())
            assert (response.status, said["code"]) == (415, "unsupported-media")
            assert said["detail"] == f"the request's body is said to be {coding!r}; send it uncompressed, as JSON"
        asking.request("POST", "/api/jobs", b'{"command":["true"]}', {**headers, "Content-Encoding": "identity"})
        response = asking.getresponse()
        assert (response.status, bool(response.read())) == (201, True)
        asking.close()


def test_plain_curl_is_enough_on_the_socket(rota: Rota) -> None:
    """No token, no type of the body, any host: only its owner can connect, and no browser."""
    rota.start()
    asking = rota.connection()
    form = {"Content-Type": "application/x-www-form-urlencoded", "Host": "whatever"}
    asking.request("POST", "/api/jobs", b'{"command": ["true"]}', form)
    assert asking.getresponse().status == 201
    asking.close()


def test_nobody_else_can_have_its_port_for_the_socket(rota: Rota) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        assert settle(rota, f"port = {port}")["off"] == (
            f"port {port} is taken on 127.0.0.1; `rota config set server.port 0` takes any that is free"
        )
        rota.wait(rota.submit("--", "true"))
