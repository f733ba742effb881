"""What happens, told to who listens, as a program meets it."""

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

from e2e.listening import STREAM, listening
from e2e.rig import PATIENCE, Rota, Stage, eventually
from rota.store.open import open_store

JSON = {"Accept": "application/json"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Of the store; empty for the home's own."""
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else ""


@pytest.fixture
def home(make_rota: Callable[..., Rota], url: str) -> Rota:
    rota = make_rota()
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text(f"[store]\nurl = {json.dumps(url)}\n" if url else "")
    rota.start()
    return rota


def table(rota: Rota, url: str = "") -> list[tuple[int, str]]:
    """Number and kind of each event, past the scheduler."""
    with closing(open_store(url or rota.home / "rota.db").reader()) as reader:
        return [(seq, event.kind) for seq, event in reader.events_since(0, 10**6)]


def page(rota: Rota, query: str = "") -> dict[str, Any]:
    answer = rota.api("GET", f"/api/events?format=json&{query}")
    assert answer.status == 200, answer
    read: dict[str, Any] = answer.json()
    return read


class Follower(threading.Thread):
    """Listens for ever, and comes back with the last number he had whenever the stream ends."""

    def __init__(self, rota: Rota, since: int) -> None:
        super().__init__(daemon=True)
        self.heard: list[tuple[int, str]] = []
        self.ends: list[str] = []
        self._rota = rota
        self._since = since
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.is_set():
            last = self.heard[-1][0] if self.heard else self._since
            try:
                with listening(self._rota, "/api/events", str(last)) as stream:
                    while heard := stream.hear():
                        self.heard += [(int(each.id or 0), each.event) for each in heard]
                self.ends.append("in good order")
            except (OSError, HTTPException) as error:
                if isinstance(error, IncompleteRead):
                    self.ends.append("broken off")
                self._is_over.wait(0.02)

    def close(self) -> None:
        self._is_over.set()
        self.join(PATIENCE)


def test_a_stream_goes_on_over_restart_and_kill_without_gap_or_repeat(home: Rota, url: str) -> None:
    before = page(home)["position"]
    follower = Follower(home, before)
    follower.start()
    for way in ("crash", "down", "crash"):
        jobs = [home.post(["true"]) for _ in range(5)]
        home.ended(jobs[0])
        home.crash() if way == "crash" else home.ask("down", "--grace", "0s")
        home.start()
        for job in jobs:
            home.ended(job)
    expected = table(home, url)
    eventually(lambda: len(follower.heard) >= len(expected), what="all that the table has")
    home.ask("down")
    eventually(lambda: follower.ends.count("in good order") >= 2, what="the end of the stream")
    follower.close()
    expected = table(home, url)
    assert follower.heard == expected[-len(follower.heard) :]
    assert expected[: -len(follower.heard)] == [each for each in expected if each[0] <= before]
    assert [kind for _, kind in follower.heard].count("job.completed") == 15


def test_a_page_at_a_time_is_the_table(home: Rota, url: str) -> None:
    for job in [home.post(["true"]) for _ in range(3)]:
        home.ended(job)
    read: list[tuple[int, str]] = []
    since = 0
    while True:
        found = page(home, f"since={since}&limit=4")
        read += [(event["seq"], event["kind"]) for event in found["events"]]
        assert found["reset"] is None
        if found["next"] is None:
            break
        since = found["next"]
    assert read == table(home, url)
    assert found["position"] == read[-1][0]
    assert home.api("GET", "/api/events?limit=4", **JSON).json() == page(home, "limit=4")


def test_a_page_waits_for_what_comes(rota: Rota) -> None:
    rota.start()
    position = page(rota)["position"]
    assert page(rota, f"since={position}&wait=0.05")["events"] == []
    answers: list[Any] = []
    waiting = threading.Thread(
        target=lambda: answers.append(page(rota, f"since={position}&wait=50&kind=job.submitted"))
    )
    waiting.start()
    job = rota.post(["true"])
    waiting.join(PATIENCE)
    assert [(event["kind"], event["job"]) for event in answers[0]["events"]] == [("job.submitted", job)]


def test_a_stream_begins_now_and_says_where(rota: Rota) -> None:
    rota.start()
    rota.ended(rota.post(["true"]))
    position = page(rota)["position"]
    with listening(rota, "/api/events") as stream:
        (begin,) = stream.hear()
        assert (begin.event, begin.id, begin.json()) == ("begin", str(position), {"since": position})
        job = rota.post(["true"])
        (first,) = stream.hear()
    assert (first.event, first.id, first.json()["job"]) == ("job.submitted", str(position + 1), job)
    assert first.json() == page(rota, f"since={position}")["events"][0]
    with listening(rota, "/api/events", begin.id) as stream:
        assert stream.hear()[0].data == first.data, "who went before he heard anything comes back to it"


def test_only_what_is_asked_for_comes(rota: Rota) -> None:
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text('[retry]\nbase = "10ms"\n')
    rota.start()
    rota.ended(rota.post(["true"], type="plan"))
    failing = rota.post(["false"], retries=1, type="story")
    members = rota.api("POST", "/api/jobs/batch", {"group": {"name": "both"}, "jobs": [{"command": ["true"]}] * 2})
    group, jobs = members.json()["group"], members.json()["jobs"]
    rota.ended(failing)
    for job in jobs:
        rota.ended(job)
    whole = page(rota, "limit=1000")["events"]
    retry = next(event["data"]["as"] for event in whole if event["kind"] == "job.retried")
    rota.ended(retry)
    whole = page(rota, "limit=1000")["events"]
    queries: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
        (f"job={failing}", lambda event: event["job"] in (failing, retry)),
        (f"job={retry}&job=job-1", lambda event: event["job"] in (failing, retry, "job-1")),
        ("group=both", lambda event: event["group"] == group),
        (f"group={group}&kind=job.completed", lambda event: event["job"] in jobs and event["kind"] == "job.completed"),
        ("kind=group.*&kind=job.failed", lambda event: event["kind"].startswith("group.") or "failed" in event["kind"]),
        ("type=story", lambda event: event["job"] in (failing, retry)),
        ("type=story&kind=job.retried", lambda event: event["kind"] == "job.retried"),
    ]
    for query, is_wanted in queries:
        expected = [event for event in whole if is_wanted(event)]
        assert expected, query
        assert page(rota, f"limit=1000&{query}")["events"] == expected, query
        with listening(rota, f"/api/events?since=0&{query}") as stream:
            assert [message.json() for message in stream.hear(len(expected))] == expected, query


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("job=job-99", 404, "no such job"),
        ("group=nobody", 404, "nobody"),
        ("kind=jobs.*", 422, "no event is of the kind"),
        ("since=-1", 422, "since"),
        ("limit=0", 422, "limit"),
        ("from=3", 422, "from"),
        ("format=xml", 422, "format"),
    ],
)
def test_what_cannot_be_asked_is_refused(untouched: Rota, query: str, status: int, said: str) -> None:
    answer = untouched.api("GET", f"/api/events?{query}")
    assert answer.status == status
    assert said in answer.json()["detail"]
    assert untouched.api("GET", "/api/events", Last_Event_ID="x").status == 422
    assert untouched.api("HEAD", "/api/events").status == 200, "and it ends"


def test_what_was_collected_is_said_to_be_missing(home: Rota, stage: Stage) -> None:
    home.set_global(2)
    kept = home.post(stage.actor("kept"))
    stage.hear()
    for job in [home.post(["true"]) for _ in range(3)]:
        home.ended(job)
    home.ask("gc", "--days", "0")
    left = page(home, "limit=1000")
    assert left["reset"] is None, "nobody asked for what is gone"
    complete = page(home, "since=0")["reset"]["complete_from"]
    with listening(home, "/api/events", "0") as stream:
        reset, *others = stream.hear(1 + len(left["events"]))
    assert (reset.event, reset.json()) == ("reset", {"since": 0, "complete_from": complete})
    with listening(home, "/api/events", reset.id) as stream:
        assert [message.event for message in stream.hear()] == ["gc.removed"], "who comes back is not told again"
    for query, seen in (("kind=scheduler.paused", ["reset"]), ("kind=job.submitted", ["reset", "job.submitted"])):
        connection = home.connection()
        connection.request("GET", f"/api/events?{query}", headers={**STREAM, "Last-Event-ID": "0"})
        response, said = connection.getresponse(), b""
        while not said.endswith(b"\n\nid: %d\n\n" % (complete - 1)):
            said += response.read1(65_536)
        assert re.findall(r"event: (\S+)", said.decode()) == seen, "and what it may come back with is past the gap"
        connection.close()
    assert [message.json() for message in others] == left["events"], "what is there comes all the same"
    first = page(home, "since=0&limit=1")
    assert (first["next"], first["reset"]["complete_from"]) == (complete - 1, complete)
    assert page(home, f"since={first['next']}&limit=1")["reset"] is None, "who goes on is not told again"
    found, position = first["events"], first["position"]
    while len(found) < len(left["events"]):
        later = page(home, f"since={position}&limit=1")
        found, position = found + later["events"], later["position"]
    assert found == left["events"], "nor is anything lost to who wants all that is left"
    with listening(home, f"/api/events?since=0&job={kept}") as stream:
        assert stream.hear()[0].event == "job.submitted", "a job that is there has all its events"
    with listening(home, "/api/events", str(10**9)) as stream:
        (reset,) = stream.hear()
        assert (reset.event, reset.json()["since"]) == ("reset", 10**9)
        position = page(home)["position"]
        assert reset.json()["complete_from"] == position + 1
        stage.release("kept")
        assert int(stream.hear()[0].id or 0) == position + 1, "it goes on with what is"


def test_when_the_scheduler_stops_streams_end_in_good_order(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.actor("one"))
    rota.running(job)
    with ExitStack() as opened:
        streams = [
            opened.enter_context(listening(rota, target))
            for target in ("/api/events", f"/api/events?job={job}", f"/api/jobs/{job}/logs?follow=1")
        ]
        rota.ask("down", "--grace", "0s")
        heard = [[message.event for message in stream.rest()] for stream in streams]
    assert heard == [["begin"], ["begin"], []]


def test_a_reader_that_does_not_read_misses_nothing(home: Rota, url: str) -> None:
    """More happens than any buffer on the way can hold."""
    home.api("POST", "/api/scheduler/pause", {"scope": "global"})
    position = page(home)["position"]
    with listening(home, "/api/events") as slow, listening(home, "/api/events") as quick:
        assert slow.hear()[0].event == quick.hear()[0].event == "begin"
        jobs = [{"command": ["true"], "name": "n" * 200}] * 2000
        assert home.api("POST", "/api/jobs/batch", {"jobs": jobs}).status == 201
        home.ask("clear")
        expected = [each for each in table(home, url) if each[0] > position]
        assert len(expected) > 4000
        for stream in (quick, slow):
            heard = stream.hear(len(expected))
            assert [(int(message.id or 0), message.event) for message in heard] == expected


def _can_open(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        assert hard == resource.RLIM_INFINITY or hard >= count, "this test opens many connections"
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _connected(rota: Rota, target: str, *, over_tcp: str | None = None) -> socket.socket:
    """`over_tcp` is where."""
    own = "Host: rota"
    if over_tcp is None:
        connection = rota.connection()
        connection.connect()
        sock: socket.socket = connection.sock
    else:
        host, _, port = over_tcp.removeprefix("http://").rpartition(":")
        sock = socket.create_connection((host, int(port)), timeout=PATIENCE)
        own = f"Host: {host}:{port}\r\nAuthorization: Bearer {(rota.home / 'token').read_text().strip()}"
    sock.sendall(f"GET {target} HTTP/1.1\r\n{own}\r\nAccept: text/event-stream\r\n\r\n".encode())
    return sock


def _until(sock: socket.socket, word: bytes) -> bytes:
    data = b""
    while word not in data:
        piece = sock.recv(65_536)
        assert piece, data
        data += piece
    return data


@pytest.mark.parametrize("is_over_tcp", [False, True], ids=["socket", "tcp"])
def test_a_thousand_listeners(make_rota: Callable[..., Rota], *, is_over_tcp: bool) -> None:
    """Nobody is told what he did not ask for, and all are told what they did."""
    _can_open(1200)
    rota = make_rota()
    rota.home.mkdir(mode=0o700)
    (rota.home / "rota.toml").write_text("[server]\nport = 0\n")
    rota.start()
    tcp = rota.status()["tcp"]["url"] if is_over_tcp else None
    assert tcp or not is_over_tcp, "where it listens is known as soon as it has started"
    target = "/api/events?kind=scheduler.paused"
    with ExitStack() as opened:
        socks = [opened.enter_context(closing(_connected(rota, target, over_tcp=tcp))) for _ in range(1000)]
        for sock in socks:
            _until(sock, b"event: begin")
        for job in [rota.post(["true"]) for _ in range(20)]:
            rota.ended(job)
        rota.api("POST", "/api/scheduler/pause", {"scope": "global"})
        for sock in socks:
            said = _until(sock, b'"scope":"global"')
            assert said.count(b"data: ") == 1
    eventually(lambda: len(list(Path(f"/proc/{rota.scheduler}/fd").iterdir())) < 100, what="all of them gone")


def test_more_streams_than_there_may_be_are_refused_and_jobs_keep_their_own_limits(
    make_rota: Callable[..., Rota],
) -> None:
    """The scheduler takes what descriptors it may have; jobs have what they would have had without it."""
    rota = make_rota(prefix=["prlimit", "--nofile=100:160"])
    pid = rota.start()
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    assert next(line for line in limits if line.startswith("Max open files")).split()[3:5] == ["160", "160"]
    for _ in range(2):
        assert rota.ask("run", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn").out.split() == ["100", "160"]
        rota.ask("down")
        rota.start()
    with ExitStack() as opened:
        for _ in range(40):
            _until(opened.enter_context(closing(_connected(rota, "/api/events"))), b"event: begin")
        connection = opened.enter_context(closing(rota.connection()))
        connection.request("GET", "/api/events", headers={"Accept": "text/event-stream"})
        refused = connection.getresponse()
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert "40 streams are open" in json.loads(refused.read())["detail"]
        assert rota.ended(rota.post(["true"]))["status"] == "COMPLETED", "all else goes on"

    def is_free() -> bool:
        with suppress(AssertionError), listening(rota, "/api/events") as stream:
            return bool(stream.hear())
        return False

    eventually(is_free, what="room for another")


def test_rota_events(rota: Rota) -> None:
    rota.start()
    job = rota.post(["false"])
    rota.ended(job)
    lines = rota.ask("events", "--job", "1").lines
    assert [line.split()[3] for line in lines] == ["job.submitted", "job.dispatched", "job.running", "job.failed"]
    assert lines[-1].endswith(f'job.failed             {job}     from=RUNNING exit_code=1 reason="exit code 1"')
    told = [json.loads(line) for line in rota.ask("events", "--json", "--kind", "job.*", "--since", "1").lines]
    assert told == [event for event in page(rota)["events"] if event["seq"] > 1 and event["job"]]
    assert "no event is of the kind" in rota.ask("events", "--kind", "x", code=2).err
    assert "--since takes the number" in rota.ask("events", "--since", "-1", code=2).err


def test_rota_events_follows_over_a_crash(rota: Rota) -> None:
    rota.start()
    following = rota.begin("events", "--follow", "--since", "0", "--kind", "job.submitted", "--json")
    assert following.stdout is not None
    jobs = [rota.post(["true"])]
    assert json.loads(following.stdout.readline())["job"] == jobs[0]
    rota.crash()
    rota.start()
    jobs.append(rota.post(["true"]))
    assert json.loads(following.stdout.readline())["job"] == jobs[1]
    rota.ask("down")
    said = rota.end(following)
    assert "the scheduler was stopped" in said.err
    assert said.out == ""
