from __future__ import annotations

import fcntl
import socket
from datetime import timedelta
from pathlib import Path

import pytest

from cli.stand_in import Server, answer, chunked, problem
from rota.cli.logs import pieces
from rota.client.ask import Ask, quote
from rota.client.ask.job import cancel_job, get_job, list_jobs, submit_job, why_job
from rota.client.ask.scheduler import get_scheduler, list_pools, reload, set_pool, stop
from rota.client.problem import BadAnswer, Broken, NoAnswer, NotRunning, from_answer
from rota.client.session import Session
from rota.client.transport import HomeSocket, send
from rota.errors import BY_CODE, Conflict, Deferred, HomeError, InvalidInput, NotFound, RotaError, Unavailable
from rota.home import Home

GET = Ask("GET", "/")


def test_a_request_is_plain_http(server: Server) -> None:
    server.replies = [answer({"ok": True}, 201)]
    with send(HomeSocket(server.home), Ask("POST", "/api/x", body={"é": 1}, key="k")) as stream:
        got = stream.read()
    [request] = server.requests
    assert (got.status, got.json()) == (201, {"ok": True})
    assert (request.method, request.target, request.json()) == ("POST", "/api/x", {"é": 1})
    assert request.headers["idempotency-key"] == "k"
    assert request.headers["content-type"] == "application/json"


def test_chunks_are_one_body(server: Server) -> None:
    server.replies = [chunked(b"one ", b"two", b"")]
    with send(HomeSocket(server.home), GET) as stream:
        assert stream.read().body == b"one two"


@pytest.mark.parametrize("kind", BY_CODE.values())
def test_a_problem_raises_the_class_of_its_code(server: Server, kind: type[RotaError]) -> None:
    server.replies = [problem(kind.http_status, kind.code, "say what to do")]
    with pytest.raises(kind, match="say what to do") as caught:
        Session(server.home).ask(GET)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b"Not Found", NotFound),
        (409, b'{"detail": "busy"}', Conflict),
        (429, b'{"code": "deferred", "detail": "full"}', Deferred),
        (429, b"", Deferred),
        (400, b"[1]", InvalidInput),
        (503, b'{"code": "no such code"}', Unavailable),
        (500, b"oops", Broken),
        (500, b"{}", RotaError),
    ],
)
def test_a_refusal_without_a_known_code_goes_by_its_status(status: int, body: bytes, kind: type[RotaError]) -> None:
    error = from_answer(status, body)
    assert type(error) is kind
    assert error.message


def test_a_problem_in_chunks_is_raised_when_it_is_whole(server: Server) -> None:
    body = problem(409, "conflict", "busy").partition(b"\r\n\r\n")[2]
    server.replies = [chunked(body[:9], body[9:], b"").replace(b"200 OK", b"409 Conflict")]
    with pytest.raises(Conflict, match="busy"):
        Session(server.home).ask(GET)


def test_a_submit_that_lost_its_answer_is_sent_again_with_the_same_key(server: Server) -> None:
    server.replies = [b"", b"HTTP/1.1 201 Created\r\nContent-Le", answer({"result": "submitted"}, 201)]
    assert Session(server.home).ask(submit_job(["true"])) == {"result": "submitted"}
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert (len(server.requests), len(keys)) == (3, 1)


def test_each_submit_has_a_key_of_its_own(server: Server) -> None:
    server.replies = [answer({}, 201), answer({}, 201)]
    for _ in range(2):
        Session(server.home).ask(submit_job(["true"]))
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 2


def test_it_is_not_sent_for_ever(server: Server) -> None:
    server.replies = [b""] * 9
    with pytest.raises(Broken):
        Session(server.home).ask(submit_job())
    assert len(server.requests) == 3


def test_a_post_without_a_key_is_never_repeated(server: Server) -> None:
    server.replies = [b""]
    with pytest.raises(Broken):
        Session(server.home).ask(cancel_job("job-1"))
    assert len(server.requests) == 1


def test_what_is_in_flight_is_waited_for(server: Server) -> None:
    in_flight = problem(409, "in-flight", "ask again in a moment")
    server.replies = [b"", in_flight, in_flight, answer({"result": "submitted"}, 201)]
    assert Session(server.home).ask(submit_job(["true"])) == {"result": "submitted"}
    keys = {request.headers["idempotency-key"] for request in server.requests}
    assert (len(server.requests), len(keys)) == (4, 1)


def test_a_scheduler_that_says_when_to_come_again_is_asked_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    monkeypatch.setattr("time.sleep", paused.append)
    later = problem(503, "unavailable", "stopping").replace(b"\r\n", b"\r\nRetry-After: 2\r\n", 1)
    server.replies = [later, answer({"pid": 1})]
    assert Session(server.home).ask(get_scheduler()) == {"pid": 1}
    assert paused == [2.0]


def test_it_is_not_waited_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    later = problem(503, "unavailable", "stopping").replace(b"\r\n", b"\r\nRetry-After: 2\r\n", 1)
    server.replies = [later] * 9
    with pytest.raises(Unavailable, match="stopping") as caught:
        Session(server.home).ask(get_scheduler())
    assert (len(server.requests), caught.value.status, caught.value.retry_after) == (2, 503, 2)


def test_what_may_not_be_repeated_is_not_asked_again(server: Server) -> None:
    later = problem(503, "unavailable", "stopping").replace(b"\r\n", b"\r\nRetry-After: 1\r\n", 1)
    server.replies = [later]
    with pytest.raises(Unavailable, match="stopping"):
        Session(server.home).ask(cancel_job("job-1"))
    assert len(server.requests) == 1


def test_no_socket_is_no_scheduler(home: Home) -> None:
    with pytest.raises(NotRunning, match="rota up") as missing:
        HomeSocket(home).connect(1)
    assert not missing.value.left_socket
    with pytest.raises(NotRunning):
        HomeSocket(Home(home.root / "nowhere")).connect(1)


def test_a_socket_that_refuses_was_left_behind(home: Home) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home.socket))
    with pytest.raises(NotRunning) as missing:
        HomeSocket(home).connect(1)
    assert missing.value.left_socket


def test_a_silent_scheduler_is_given_up(home: Home) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(home.socket))
        silent.listen()
        hurried = Ask("GET", "/", patience=0.01)
        with (
            send(HomeSocket(home), hurried) as stream,
            pytest.raises(NoAnswer, match="rota doctor"),
        ):
            stream.read()


def test_a_home_that_cannot_be_reached_says_so(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(HomeError, match="cannot connect"):
        HomeSocket(Home(tmp_path / "a")).connect(1)


def test_an_answer_that_is_not_json_is_named(server: Server) -> None:
    server.replies = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]
    with pytest.raises(BadAnswer, match="not JSON"):
        Session(server.home).ask(get_scheduler())


def test_a_long_home_path_works(tmp_path: Path) -> None:
    root = tmp_path / ("h" * 120)
    root.mkdir()
    server = Server(Home(root))
    server.replies = [answer({"pid": 1})]
    assert Session(Home(root)).ask(get_scheduler()) == {"pid": 1}
    server.close()


def test_a_scheduler_that_took_its_socket_along_is_not_brought_back(server: Server) -> None:
    """`rota down` in one terminal must not be undone by `rota wait` in another."""
    session = Session(server.home)
    server.replies = [answer({})]
    session.ask(GET)
    server.home.socket.rename(server.home.root / "away")
    with pytest.raises(Unavailable, match="was stopped meanwhile"):
        session.ask(GET)
    (server.home.root / "away").rename(server.home.socket)


def test_a_read_that_the_server_broke_off_is_asked_again(server: Server) -> None:
    server.replies = [b"HTTP/1.1 500 X\r\nContent-Length: 5\r\n\r\noops\n", answer({"pid": 1})]
    assert Session(server.home).ask(get_scheduler()) == {"pid": 1}


def test_one_that_is_just_leaving_is_not_taken_for_a_crash(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It no longer listens, its socket is still there, and it holds the lock till it has cleaned up."""
    session = Session(server.home)
    server.replies = [answer({})]
    session.ask(GET)
    held = server.home.lock.open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    away = server.home.root / "away"
    server.home.socket.rename(away)
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(server.home.socket))

    def leave(_: float) -> None:
        server.home.socket.unlink()
        held.close()

    monkeypatch.setattr("time.sleep", leave)
    with pytest.raises(Unavailable, match="was stopped meanwhile"):
        session.ask(GET)
    away.rename(server.home.socket)


def test_one_that_crashed_is_started_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(server.home)
    server.replies = [answer({}), answer({"back": True})]
    session.ask(GET)
    away = server.home.root / "away"
    server.home.socket.rename(away)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(server.home.socket))

    def restart(home: Home) -> None:
        home.socket.unlink()
        away.rename(home.socket)

    monkeypatch.setattr("rota.client.autostart.start", restart)
    assert session.ask(GET) == {"back": True}


def test_quote() -> None:
    assert quote("type/a b?é", keep="/") == "type/a%20b%3F%C3%A9"
    assert quote("a/b") == "a%2Fb"


@pytest.mark.parametrize(
    ("ask", "method", "target", "body"),
    [
        (list_jobs(status=("QUEUED", "RUNNING"), limit=5, cursor="a=b"), "GET",
         "/api/jobs?status=QUEUED&status=RUNNING&limit=5&cursor=a%3Db", None),
        (list_jobs(), "GET", "/api/jobs", None),
        (get_job("job-1", wait=2.5, seen="QUEUED"), "GET", "/api/jobs/job-1?wait=2.5&seen=QUEUED", None),
        (cancel_job("job-1"), "POST", "/api/jobs/job-1/cancel", None),
        (why_job("job-1"), "GET", "/api/jobs/job-1/why", None),
        (list_pools(), "GET", "/api/pools", None),
        (set_pool("type/a b", -1), "PUT", "/api/pools/type/a%20b", {"size": -1}),
        (get_scheduler(), "GET", "/api/scheduler", None),
        (stop(grace="5s"), "POST", "/api/scheduler/stop", {"grace": "5s"}),
        (stop(), "POST", "/api/scheduler/stop", {}),
        (reload(), "POST", "/api/scheduler/reload", None),
        (submit_job(["make"], after=["job-1", {"job": "job-2", "policy": "failed"}], locks=["repo"],
                    timeout=timedelta(minutes=2), idle_timeout="5s"), "POST", "/api/jobs",
         {"command": ["make"], "after": [{"job": "job-1"}, {"job": "job-2", "policy": "failed"}],
          "locks": [{"key": "repo"}], "timeout": "120s", "idle_timeout": "5s"}),
    ],
)  # fmt: skip
def test_endpoints(server: Server, ask: Ask, method: str, target: str, body: object) -> None:
    server.replies = [answer({})]
    Session(server.home).ask(ask)
    [request] = server.requests
    assert (request.method, request.target) == (method, target)
    assert (request.json() if request.body else None) == body


def test_a_log_is_read_in_pieces(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.cli.logs.PIECE", 4)
    server.replies = [chunked(b"abcd", b""), chunked(b"ef", b"")]
    assert list(pieces(Session(server.home), "job-1", "stdout", offset=0, run=None)) == [b"abcd", b"ef"]
    assert [request.target for request in server.requests] == [
        "/api/jobs/job-1/logs/stdout?offset=0&limit=4",
        "/api/jobs/job-1/logs/stdout?offset=4&limit=4",
    ]
