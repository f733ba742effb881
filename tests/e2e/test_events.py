"""Event stream and event pages over HTTP, and `rota events`."""

from __future__ import annotations

import json
import re
import resource
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from rota.db.store import open_store
from tests.e2e.event_stream import EVENT_STREAM_HEADERS, open_event_stream
from tests.e2e.rig import TIMEOUT, ChildControl, Rota, eventually

JSON = {"Accept": "application/json"}


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """URL of the store; empty for the SQLite database of the home."""
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else ""


@pytest.fixture
def home(make_rota: Callable[..., Rota], store_url: str) -> Rota:
    rota = make_rota()
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text(f"[store]\nurl = {json.dumps(store_url)}\n" if store_url else "")
    rota.start()
    return rota


def stored_events(rota: Rota, store_url: str = "") -> list[tuple[int, str]]:
    """Return number and kind of each event, read from the store directly."""
    with closing(open_store(store_url or rota.home / "rota.db").reader()) as reader:
        return [(seq, event.kind) for seq, event in reader.events.since(0, 10**6)]


def get_page(rota: Rota, query: str = "") -> dict[str, Any]:
    response = rota.api("GET", f"/api/events?format=json&{query}")
    assert response.status == 200, response
    body: dict[str, Any] = response.json()
    return body


class Follower(threading.Thread):
    """Thread that reads the stream and reconnects with the last event number whenever it ends."""

    def __init__(self, rota: Rota, since: int) -> None:
        super().__init__(daemon=True)
        self.received: list[tuple[int, str]] = []
        self.ends: list[str] = []
        self._rota = rota
        self._since = since
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.is_set():
            last = self.received[-1][0] if self.received else self._since
            try:
                with open_event_stream(self._rota, "/api/events", str(last)) as stream:
                    while received := stream.read():
                        self.received += [(int(message.id or 0), message.event) for message in received]
                self.ends.append("complete")
            except (OSError, HTTPException) as error:
                if isinstance(error, IncompleteRead):
                    self.ends.append("incomplete")
                self._is_over.wait(0.02)

    def close(self) -> None:
        self._is_over.set()
        self.join(TIMEOUT)


def test_stream_continues_over_restarts_without_gap_or_repetition(home: Rota, store_url: str) -> None:
    before = get_page(home)["position"]
    follower = Follower(home, before)
    follower.start()
    for interruption in ("crash", "down", "crash"):
        jobs = [home.post_job(["true"]) for _ in range(5)]
        home.wait_for_end(jobs[0])
        home.crash() if interruption == "crash" else home.run("down", "--grace", "0s")
        home.start()
        for job in jobs:
            home.wait_for_end(job)
    expected = stored_events(home, store_url)
    eventually(lambda: len(follower.received) >= len(expected), description="all stored events")
    home.run("down")
    eventually(lambda: follower.ends.count("complete") >= 2, description="the end of the stream")
    follower.close()
    expected = stored_events(home, store_url)
    assert follower.received == expected[-len(follower.received) :]
    assert expected[: -len(follower.received)] == [event for event in expected if event[0] <= before]
    assert [kind for _, kind in follower.received].count("job.completed") == 15


def test_pages_contain_all_stored_events(home: Rota, store_url: str) -> None:
    for job in [home.post_job(["true"]) for _ in range(3)]:
        home.wait_for_end(job)
    read: list[tuple[int, str]] = []
    since = 0
    while True:
        result = get_page(home, f"since={since}&limit=4")
        read += [(event["seq"], event["kind"]) for event in result["events"]]
        assert result["reset"] is None
        if result["next"] is None:
            break
        since = result["next"]
    assert read == stored_events(home, store_url)
    assert result["position"] == read[-1][0]
    assert home.api("GET", "/api/events?limit=4", **JSON).json() == get_page(home, "limit=4")


def test_page_request_waits_for_the_next_event(rota: Rota) -> None:
    rota.start()
    position = get_page(rota)["position"]
    assert get_page(rota, f"since={position}&wait=0.05")["events"] == []
    responses: list[Any] = []
    waiting = threading.Thread(
        target=lambda: responses.append(get_page(rota, f"since={position}&wait=50&kind=job.submitted"))
    )
    waiting.start()
    job = rota.post_job(["true"])
    waiting.join(TIMEOUT)
    assert [(event["kind"], event["job"]) for event in responses[0]["events"]] == [("job.submitted", job)]


def test_stream_begins_with_its_position(rota: Rota) -> None:
    rota.start()
    rota.wait_for_end(rota.post_job(["true"]))
    position = get_page(rota)["position"]
    with open_event_stream(rota, "/api/events") as stream:
        (begin,) = stream.read()
        assert (begin.event, begin.id, begin.json()) == ("begin", str(position), {"since": position})
        job = rota.post_job(["true"])
        (first,) = stream.read()
    assert (first.event, first.id, first.json()["job"]) == ("job.submitted", str(position + 1), job)
    assert first.json() == get_page(rota, f"since={position}")["events"][0]
    with open_event_stream(rota, "/api/events", begin.id) as stream:
        assert stream.read()[0].data == first.data, "a client that disconnected before the first event continues there"


def test_filters_select_events(rota: Rota) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text('[retry]\nbase = "10ms"\n')
    rota.start()
    rota.wait_for_end(rota.post_job(["true"], type="plan"))
    failing = rota.post_job(["false"], retries=1, type="story")
    members = rota.api("POST", "/api/jobs/batch", {"group": {"name": "both"}, "jobs": [{"command": ["true"]}] * 2})
    group, jobs = members.json()["group"], members.json()["jobs"]
    rota.wait_for_end(failing)
    for job in jobs:
        rota.wait_for_end(job)
    all_events = get_page(rota, "limit=1000")["events"]
    retry = next(event["data"]["retried_as"] for event in all_events if event["kind"] == "job.retried")
    rota.wait_for_end(retry)
    all_events = get_page(rota, "limit=1000")["events"]
    queries: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
        (f"job={failing}", lambda event: event["job"] in (failing, retry)),
        (f"job={retry}&job=job-1", lambda event: event["job"] in (failing, retry, "job-1")),
        ("group=both", lambda event: event["group"] == group),
        (f"group={group}&kind=job.completed", lambda event: event["job"] in jobs and event["kind"] == "job.completed"),
        ("kind=group.*&kind=job.failed", lambda event: event["kind"].startswith("group.") or "failed" in event["kind"]),
        ("type=story", lambda event: event["job"] in (failing, retry)),
        ("type=story&kind=job.retried", lambda event: event["kind"] == "job.retried"),
    ]
    for query, matches in queries:
        expected = [event for event in all_events if matches(event)]
        assert expected, query
        assert get_page(rota, f"limit=1000&{query}")["events"] == expected, query
        with open_event_stream(rota, f"/api/events?since=0&{query}") as stream:
            assert [message.json() for message in stream.read(len(expected))] == expected, query


@pytest.mark.parametrize(
    ("query", "status", "output"),
    [
        ("job=job-99", 404, "no such job"),
        ("group=missing", 404, "missing"),
        ("kind=jobs.*", 422, "unknown event kind"),
        ("since=-1", 422, "since"),
        ("limit=0", 422, "limit"),
        ("from=3", 422, "from"),
        ("format=xml", 422, "format"),
    ],
)
def test_invalid_event_query_is_refused(read_only_rota: Rota, query: str, status: int, output: str) -> None:
    response = read_only_rota.api("GET", f"/api/events?{query}")
    assert response.status == status
    assert output in response.json()["detail"]
    assert read_only_rota.api("GET", "/api/events", Last_Event_ID="x").status == 422
    assert read_only_rota.api("HEAD", "/api/events").status == 200, "HEAD ends without a stream"


def test_collected_events_are_reported_as_a_reset(home: Rota, children: ChildControl) -> None:
    home.set_global_size(2)
    kept = home.post_job(children.gated("kept"))
    children.read_lines()
    for job in [home.post_job(["true"]) for _ in range(3)]:
        home.wait_for_end(job)
    home.run("gc", "--days", "0")
    remaining = get_page(home, "limit=1000")
    assert remaining["reset"] is None, "without `since` there is no gap"
    complete = get_page(home, "since=0")["reset"]["complete_from"]
    with open_event_stream(home, "/api/events", "0") as stream:
        reset, *messages = stream.read(1 + len(remaining["events"]))
    assert (reset.event, reset.json()) == ("reset", {"since": 0, "complete_from": complete})
    with open_event_stream(home, "/api/events", reset.id) as stream:
        assert [message.event for message in stream.read()] == ["gc.removed"], "the reset is not repeated on reconnect"
    for query, kinds in (("kind=scheduler.paused", ["reset"]), ("kind=job.submitted", ["reset", "job.submitted"])):
        connection = home.connection()
        connection.request("GET", f"/api/events?{query}", headers={**EVENT_STREAM_HEADERS, "Last-Event-ID": "0"})
        response, output = connection.getresponse(), b""
        while not output.endswith(b"\n\nid: %d\n\n" % (complete - 1)):
            output += response.read1(65_536)
        assert re.findall(r"event: (\S+)", output.decode()) == kinds, "the id after the reset is past the gap"
        connection.close()
    assert [message.json() for message in messages] == remaining["events"], "the remaining events follow the reset"
    first = get_page(home, "since=0&limit=1")
    assert (first["next"], first["reset"]["complete_from"]) == (complete - 1, complete)
    assert get_page(home, f"since={first['next']}&limit=1")["reset"] is None, (
        "the reset is not repeated on the next page"
    )
    result, position = first["events"], first["position"]
    while len(result) < len(remaining["events"]):
        later = get_page(home, f"since={position}&limit=1")
        result, position = result + later["events"], later["position"]
    assert result == remaining["events"], "the pages contain all remaining events"
    with open_event_stream(home, f"/api/events?since=0&job={kept}") as stream:
        assert stream.read()[0].event == "job.submitted", "an existing job has all its events"
    with open_event_stream(home, "/api/events", str(10**9)) as stream:
        (reset,) = stream.read()
        assert (reset.event, reset.json()["since"]) == ("reset", 10**9)
        position = get_page(home)["position"]
        assert reset.json()["complete_from"] == position + 1
        children.release("kept")
        assert int(stream.read()[0].id or 0) == position + 1, "the stream continues with new events"


def test_streams_end_properly_when_the_scheduler_stops(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.gated("one"))
    rota.wait_for_start(job)
    with ExitStack() as stack:
        streams = [
            stack.enter_context(open_event_stream(rota, target))
            for target in ("/api/events", f"/api/events?job={job}", f"/api/jobs/{job}/logs?follow=1")
        ]
        rota.run("down", "--grace", "0s")
        received = [[message.event for message in stream.read_to_end()] for stream in streams]
    assert received == [["begin"], ["begin"], []]


def test_slow_reader_misses_no_event(home: Rota, store_url: str) -> None:
    """There are more events than the buffers between store and reader can hold."""
    home.api("POST", "/api/scheduler/pause", {"scope": "global"})
    position = get_page(home)["position"]
    with open_event_stream(home, "/api/events") as slow, open_event_stream(home, "/api/events") as fast:
        assert slow.read()[0].event == fast.read()[0].event == "begin"
        jobs = [{"command": ["true"], "name": "n" * 200}] * 2000
        assert home.api("POST", "/api/jobs/batch", {"jobs": jobs}).status == 201
        home.run("clear")
        expected = [event for event in stored_events(home, store_url) if event[0] > position]
        assert len(expected) > 4000
        for stream in (fast, slow):
            received = stream.read(len(expected))
            assert [(int(message.id or 0), message.event) for message in received] == expected


def _raise_descriptor_limit(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        assert hard == resource.RLIM_INFINITY or hard >= count, "this test opens many connections"
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _open_raw_stream(rota: Rota, target: str, *, over_tcp: str | None = None) -> socket.socket:
    """Send a request for a stream over the socket, or to the URL `over_tcp`."""
    host_header = "Host: rota"
    if over_tcp is None:
        connection = rota.connection()
        connection.connect()
        sock: socket.socket = connection.sock
    else:
        host, _, port = over_tcp.removeprefix("http://").rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout=TIMEOUT)
        host_header = f"Host: {host}:{port}\r\nAuthorization: Bearer {(rota.home / 'token').read_text().strip()}"
    sock.sendall(f"GET {target} HTTP/1.1\r\n{host_header}\r\nAccept: text/event-stream\r\n\r\n".encode())
    return sock


def _receive_until(sock: socket.socket, text: bytes) -> bytes:
    data = b""
    while text not in data:
        piece = sock.recv(65_536)
        assert piece, data
        data += piece
    return data


@pytest.mark.parametrize("is_over_tcp", [False, True], ids=["socket", "tcp"])
def test_thousand_streams_receive_their_events(make_rota: Callable[..., Rota], *, is_over_tcp: bool) -> None:
    """Each stream receives exactly the events that its filter selects."""
    _raise_descriptor_limit(1200)
    rota = make_rota()
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text("[server]\nport = 0\n")
    rota.start()
    tcp = rota.status()["tcp"]["url"] if is_over_tcp else None
    assert tcp or not is_over_tcp, "status has the TCP address immediately after the start"
    target = "/api/events?kind=scheduler.paused"
    with ExitStack() as stack:
        sockets = [stack.enter_context(closing(_open_raw_stream(rota, target, over_tcp=tcp))) for _ in range(1000)]
        for sock in sockets:
            _receive_until(sock, b"event: begin")
        for job in [rota.post_job(["true"]) for _ in range(20)]:
            rota.wait_for_end(job)
        rota.api("POST", "/api/scheduler/pause", {"scope": "global"})
        for sock in sockets:
            output = _receive_until(sock, b'"scope":"global"')
            assert output.count(b"data: ") == 1
    eventually(
        lambda: len(list(Path(f"/proc/{rota.scheduler_pid}/fd").iterdir())) < 100, description="all connections closed"
    )


def test_streams_beyond_the_limit_are_refused_and_jobs_keep_their_limits(make_rota: Callable[..., Rota]) -> None:
    """The scheduler raises its own descriptor limit. Jobs keep the limit of the user."""
    rota = make_rota(prefix=["prlimit", "--nofile=100:160"])
    pid = rota.start()
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    assert next(line for line in limits if line.startswith("Max open files")).split()[3:5] == ["160", "160"]
    for _ in range(2):
        assert rota.run("run", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn").out.split() == ["100", "160"]
        rota.run("down")
        rota.start()
    with ExitStack() as stack:
        for _ in range(40):
            _receive_until(stack.enter_context(closing(_open_raw_stream(rota, "/api/events"))), b"event: begin")
        connection = stack.enter_context(closing(rota.connection()))
        connection.request("GET", "/api/events", headers={"Accept": "text/event-stream"})
        refused = connection.getresponse()
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert "40 streams are open" in json.loads(refused.read())["detail"]
        assert rota.wait_for_end(rota.post_job(["true"]))["status"] == "COMPLETED", "other requests are not affected"

    def is_free() -> bool:
        with suppress(AssertionError), open_event_stream(rota, "/api/events") as stream:
            return bool(stream.read())
        return False

    eventually(is_free, description="room for another stream")


def test_events_command_prints_filtered_events(rota: Rota) -> None:
    rota.start()
    job = rota.post_job(["false"])
    rota.wait_for_end(job)
    lines = rota.run("events", "--job", "1").lines
    assert [line.split()[3] for line in lines] == ["job.submitted", "job.dispatched", "job.running", "job.failed"]
    assert lines[-1].endswith(f'job.failed             {job}     from=RUNNING exit_code=1 reason="exit code 1"')
    result = [json.loads(line) for line in rota.run("events", "--json", "--kind", "job.*", "--since", "1").lines]
    assert result == [event for event in get_page(rota)["events"] if event["seq"] > 1 and event["job"]]
    assert "unknown event kind" in rota.run("events", "--kind", "x", code=2).err
    assert "--since takes the number" in rota.run("events", "--since", "-1", code=2).err


def test_events_command_follows_over_a_crash(rota: Rota) -> None:
    rota.start()
    following = rota.spawn("events", "--follow", "--since", "0", "--kind", "job.submitted", "--json")
    assert following.stdout is not None
    jobs = [rota.post_job(["true"])]
    assert json.loads(following.stdout.readline())["job"] == jobs[0]
    rota.crash()
    rota.start()
    jobs.append(rota.post_job(["true"]))
    assert json.loads(following.stdout.readline())["job"] == jobs[1]
    rota.run("down")
    output = rota.finish(following)
    assert "the scheduler was stopped" in output.err
    assert output.out == ""
