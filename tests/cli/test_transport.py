"""Requests of the command line over the socket of a home: responses, refusals, retries and a missing scheduler."""

from __future__ import annotations

import fcntl
import socket
from datetime import timedelta
from pathlib import Path

import pytest

from rota.client.problem import ConnectionBroken, InvalidResponse, NotRunning, ResponseTimeout, error_from_response
from rota.client.requests import Request, quote
from rota.client.requests.control import get_scheduler, list_pools, reload, set_pool, stop
from rota.client.requests.jobs import cancel_job, explain_job, get_job, list_jobs, submit_job
from rota.client.session import SchedulerSession
from rota.client.transport import HomeSocket, send
from rota.errors import BY_CODE, Conflict, HomeError, InvalidInput, NotFound, QueueFull, RotaError, ServiceUnavailable
from rota.home import Home
from rota.jobs.cli.logs import ServedLog, read_chunks
from tests.cli.fake_scheduler import Server, chunked, json_response, problem

GET = Request("GET", "/")


def test_request_is_plain_http(server: Server) -> None:
    server.replies = [json_response({"ok": True}, 201)]
    with send(HomeSocket(server.home), Request("POST", "/api/x", body={"é": 1}, key="k")) as stream:
        response = stream.read()
    [request] = server.requests
    assert (response.status, response.json()) == (201, {"ok": True})
    assert (request.method, request.target, request.json()) == ("POST", "/api/x", {"é": 1})
    assert request.headers["idempotency-key"] == "k"
    assert request.headers["content-type"] == "application/json"


def test_chunks_are_joined(server: Server) -> None:
    server.replies = [chunked(b"one ", b"two", b"")]
    with send(HomeSocket(server.home), GET) as stream:
        assert stream.read().body == b"one two"


@pytest.mark.parametrize("kind", BY_CODE.values())
def test_problem_raises_the_class_of_its_code(server: Server, kind: type[RotaError]) -> None:
    server.replies = [problem(kind.http_status, kind.code, "say what to do")]
    with pytest.raises(kind, match="say what to do") as error:
        SchedulerSession(server.home).request_json(GET)
    assert type(error.value) is kind


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b"Not Found", NotFound),
        (409, b'{"detail": "busy"}', Conflict),
        (429, b'{"code": "deferred", "detail": "full"}', QueueFull),
        (429, b"", QueueFull),
        (400, b"[1]", InvalidInput),
        (503, b'{"code": "no such code"}', ServiceUnavailable),
        (500, b"oops", ConnectionBroken),
        (500, b"{}", RotaError),
    ],
)
def test_refusal_without_known_code_is_mapped_by_status(status: int, body: bytes, kind: type[RotaError]) -> None:
    error = error_from_response(status, body)
    assert type(error) is kind
    assert error.message


def test_chunked_problem_is_raised_when_complete(server: Server) -> None:
    body = problem(409, "conflict", "busy").partition(b"\r\n\r\n")[2]
    server.replies = [chunked(body[:9], body[9:], b"").replace(b"200 OK", b"409 Conflict")]
    with pytest.raises(Conflict, match="busy"):
        SchedulerSession(server.home).request_json(GET)


def test_submit_is_retried_with_the_same_key_after_a_lost_response(server: Server) -> None:
    server.replies = [b"", b"HTTP/1.1 201 Created\r\nContent-Le", json_response({"result": "submitted"}, 201)]
    assert SchedulerSession(server.home).request_json(submit_job(["true"])) == {"result": "submitted"}
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert (len(server.requests), len(keys)) == (3, 1)


def test_each_submit_has_its_own_key(server: Server) -> None:
    server.replies = [json_response({}, 201), json_response({}, 201)]
    for _ in range(2):
        SchedulerSession(server.home).request_json(submit_job(["true"]))
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 2


def test_retries_of_a_submit_are_limited(server: Server) -> None:
    server.replies = [b""] * 9
    with pytest.raises(ConnectionBroken):
        SchedulerSession(server.home).request_json(submit_job())
    assert len(server.requests) == 3


def test_post_without_key_is_not_retried(server: Server) -> None:
    server.replies = [b""]
    with pytest.raises(ConnectionBroken):
        SchedulerSession(server.home).request_json(cancel_job("job-1"))
    assert len(server.requests) == 1


def test_request_in_progress_is_retried_until_done(server: Server) -> None:
    in_flight = problem(409, "request-in-progress", "ask again in a moment")
    server.replies = [b"", in_flight, in_flight, json_response({"result": "submitted"}, 201)]
    assert SchedulerSession(server.home).request_json(submit_job(["true"])) == {"result": "submitted"}
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert (len(server.requests), len(keys)) == (4, 1)


def test_retry_after_is_honored(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    monkeypatch.setattr("time.sleep", delays.append)
    later = problem(503, "unavailable", "stopping").replace(b"\r\n", b"\r\nRetry-After: 2\r\n", 1)
    server.replies = [later, json_response({"pid": 1})]
    assert SchedulerSession(server.home).request_json(get_scheduler()) == {"pid": 1}
    assert delays == [2.0]


def test_retry_after_is_limited(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    later = problem(503, "unavailable", "stopping").replace(b"\r\n", b"\r\nRetry-After: 2\r\n", 1)
    server.replies = [later] * 9
    with pytest.raises(ServiceUnavailable, match="stopping") as error:
        SchedulerSession(server.home).request_json(get_scheduler())
    assert (len(server.requests), error.value.status, error.value.retry_after) == (2, 503, 2)


def test_retry_after_is_ignored_for_unrepeatable_requests(server: Server) -> None:
    later = problem(503, "unavailable", "stopping").replace(b"\r\n", b"\r\nRetry-After: 1\r\n", 1)
    server.replies = [later]
    with pytest.raises(ServiceUnavailable, match="stopping"):
        SchedulerSession(server.home).request_json(cancel_job("job-1"))
    assert len(server.requests) == 1


def test_missing_socket_means_not_running(home: Home) -> None:
    with pytest.raises(NotRunning, match="rota up") as error:
        HomeSocket(home).connect(1)
    assert not error.value.has_stale_socket
    with pytest.raises(NotRunning):
        HomeSocket(Home(home.root / "nowhere")).connect(1)


def test_refusing_socket_is_stale(home: Home) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home.socket))
    with pytest.raises(NotRunning) as error:
        HomeSocket(home).connect(1)
    assert error.value.has_stale_socket


def test_silent_scheduler_times_out(home: Home) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(home.socket))
        silent.listen()
        short_request = Request("GET", "/", timeout=0.01)
        with send(HomeSocket(home), short_request) as stream, pytest.raises(ResponseTimeout, match="rota doctor"):
            stream.read()


def test_unreachable_home_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(HomeError, match="cannot connect"):
        HomeSocket(Home(tmp_path / "a")).connect(1)


def test_response_that_is_not_json_is_refused(server: Server) -> None:
    server.replies = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]
    with pytest.raises(InvalidResponse, match="not JSON"):
        SchedulerSession(server.home).request_json(get_scheduler())


def test_long_home_path_works(tmp_path: Path) -> None:
    root = tmp_path / ("h" * 120)
    root.mkdir()
    server = Server(Home(root))
    server.replies = [json_response({"pid": 1})]
    assert SchedulerSession(Home(root)).request_json(get_scheduler()) == {"pid": 1}
    server.close()


def test_stopped_scheduler_is_not_restarted_by_a_waiting_client(server: Server) -> None:
    """`rota down` in one terminal must not be undone by `rota wait` in another."""
    session = SchedulerSession(server.home)
    server.replies = [json_response({})]
    session.request_json(GET)
    server.home.socket.rename(server.home.root / "away")
    with pytest.raises(ServiceUnavailable, match="was stopped meanwhile"):
        session.request_json(GET)
    (server.home.root / "away").rename(server.home.socket)


def test_read_is_retried_after_a_plain_500(server: Server) -> None:
    server.replies = [b"HTTP/1.1 500 X\r\nContent-Length: 5\r\n\r\noops\n", json_response({"pid": 1})]
    assert SchedulerSession(server.home).request_json(get_scheduler()) == {"pid": 1}


def test_exiting_scheduler_is_not_treated_as_crashed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler does not listen, but its socket exists and it holds the lock until it has cleaned up."""
    session = SchedulerSession(server.home)
    server.replies = [json_response({})]
    session.request_json(GET)
    lock = server.home.lock.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    away = server.home.root / "away"
    server.home.socket.rename(away)
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(server.home.socket))

    def exit_scheduler(_: float) -> None:
        server.home.socket.unlink()
        lock.close()

    monkeypatch.setattr("time.sleep", exit_scheduler)
    with pytest.raises(ServiceUnavailable, match="was stopped meanwhile"):
        session.request_json(GET)
    away.rename(server.home.socket)


def test_crashed_scheduler_is_restarted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    session = SchedulerSession(server.home)
    server.replies = [json_response({}), json_response({"back": True})]
    session.request_json(GET)
    away = server.home.root / "away"
    server.home.socket.rename(away)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(server.home.socket))

    def restart(home: Home) -> None:
        home.socket.unlink()
        away.rename(home.socket)

    monkeypatch.setattr("rota.client.autostart.start", restart)
    assert session.request_json(GET) == {"back": True}


def test_quote_escapes_paths() -> None:
    assert quote("type/a b?é", safe="/") == "type/a%20b%3F%C3%A9"
    assert quote("a/b") == "a%2Fb"


@pytest.mark.parametrize(
    ("call", "method", "target", "body"),
    [
        (
            list_jobs(status=("QUEUED", "RUNNING"), limit=5, cursor="a=b"),
            "GET",
            "/api/jobs?status=QUEUED&status=RUNNING&limit=5&cursor=a%3Db",
            None,
        ),
        (list_jobs(), "GET", "/api/jobs", None),
        (get_job("job-1", wait=2.5, last_seen="QUEUED"), "GET", "/api/jobs/job-1?wait=2.5&last_seen=QUEUED", None),
        (cancel_job("job-1"), "POST", "/api/jobs/job-1/cancel", None),
        (explain_job("job-1"), "GET", "/api/jobs/job-1/why", None),
        (list_pools(), "GET", "/api/pools", None),
        (set_pool("type/a b", -1), "PUT", "/api/pools/type/a%20b", {"size": -1}),
        (get_scheduler(), "GET", "/api/scheduler", None),
        (stop(grace="5s"), "POST", "/api/scheduler/stop", {"grace": "5s"}),
        (stop(), "POST", "/api/scheduler/stop", {}),
        (reload(), "POST", "/api/scheduler/reload", None),
        (
            submit_job(
                ["make"],
                after=["job-1", {"job": "job-2", "policy": "failed"}],
                locks=["repo"],
                timeout=timedelta(minutes=2),
                idle_timeout="5s",
            ),
            "POST",
            "/api/jobs",
            {
                "command": ["make"],
                "after": [{"job": "job-1"}, {"job": "job-2", "policy": "failed"}],
                "locks": [{"key": "repo"}],
                "timeout": "120s",
                "idle_timeout": "5s",
            },
        ),
    ],
)
def test_request_functions_build_requests(
    server: Server, call: Request, method: str, target: str, body: object
) -> None:
    server.replies = [json_response({})]
    SchedulerSession(server.home).request_json(call)
    [request] = server.requests
    assert (request.method, request.target) == (method, target)
    assert (request.json() if request.body else None) == body


def test_log_is_read_in_chunks(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.jobs.cli.logs.LOG_CHUNK_BYTES", 4)
    server.replies = [chunked(b"abcd", b""), chunked(b"ef", b"")]
    assert list(read_chunks(ServedLog(SchedulerSession(server.home), "job-1", "stdout", None), 0)) == [b"abcd", b"ef"]
    assert [request.target for request in server.requests] == [
        "/api/jobs/job-1/logs/stdout?offset=0&limit=4",
        "/api/jobs/job-1/logs/stdout?offset=4&limit=4",
    ]
