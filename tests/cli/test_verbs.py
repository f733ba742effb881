"""Verbs with the stand-in: requests, output and exit codes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from rota.cli import down, terminal
from rota.cli.main import main
from rota.client.requests import Request
from rota.client.requests.jobs import ACTIVE_STATUSES, TERMINAL_STATUSES
from rota.client.session import SchedulerSession
from rota.client.transport import HttpResponse
from rota.db.postgres.store import PostgresStore
from rota.db.sqlite.store import SqliteStore
from rota.home import Home, acquire_home_lock
from rota.jobs.cli.logs import ServedLog, last_lines_offset
from rota.jobs.cli.wait import exit_code
from rota.kernel import status as kernel_status
from tests.cli.fake_scheduler import RecordedRequest, Server, chunked, json_response, problem
from tests.postgres_server import Schema, fresh_schema
from tests.postgres_server import Server as Postgres


def job(number: int, status: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"job-{number}", "status": status, "name": f"n{number}", "command": ["true"], **fields}


def test_client_statuses_equal_core_statuses() -> None:
    active = {member.public.value for member in kernel_status.ACTIVE}
    assert (set(ACTIVE_STATUSES), set(TERMINAL_STATUSES)) == (
        active,
        {member.value for member in kernel_status.TERMINAL},
    )


def test_list_hides_finished_jobs_and_reports_them(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"QUEUED": 1, "COMPLETED": 2, "FAILED": 1}
    server.replies = [json_response({"jobs": [job(1, "QUEUED")], "next": None, "counts": counts})]
    assert main(["list"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].startswith("job-1  QUEUED")
    assert captured.err == "rota: 3 ended jobs hidden (2 COMPLETED, 1 FAILED); --all lists them\n"
    assert server.requests[1].target.count("status=") == 5


def test_empty_list_has_no_header(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [json_response({"jobs": [], "next": None, "counts": {"FAILED": 1}})]
    assert main(["list"]) == 0
    hidden = "rota: 1 ended job hidden (1 FAILED); --all lists them\n"
    assert capsys.readouterr() == ("", f"rota: no active jobs\n{hidden}")


def test_list_all_reads_every_page(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that ends between two pages appears on both but is listed once."""
    server.replies = [
        json_response({"jobs": [job(1, "QUEUED"), job(2, "QUEUED")], "next": "c1", "counts": {"QUEUED": 2}}),
        json_response({"jobs": [job(2, "FAILED"), job(9000, "FAILED")], "next": None, "counts": None}),
    ]
    assert main(["list", "--all", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == {
        "jobs": [job(1, "QUEUED"), job(2, "QUEUED"), job(9000, "FAILED")],
        "next": None,
        "counts": {"QUEUED": 2},
    }
    assert out == json.dumps(json.loads(out), indent=2) + "\n"
    assert [request.target for request in server.requests] == ["/api/jobs?limit=100", "/api/jobs?limit=1000&cursor=c1"]


def test_empty_list_as_json_is_a_complete_document(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [json_response({"jobs": [], "next": None, "counts": {}})]
    assert main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"jobs": [], "next": None, "counts": {}}


@pytest.mark.parametrize("options", [[], ["--json"], ["--format", "block"]])
def test_list_prints_a_page_before_it_asks_for_the_next(server: Server, options: list[str]) -> None:
    was_printed = threading.Event()

    def second_page(_: RecordedRequest) -> bytes:
        assert was_printed.wait(20)
        return json_response({"jobs": [job(2, "QUEUED")], "next": None, "counts": None})

    server.replies = [json_response({"jobs": [job(1, "QUEUED")], "next": "c1", "counts": {}}), second_page]
    command = [sys.executable, "-m", "rota", "list", *options]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=buffered) as listing:
        assert listing.stdout is not None
        first = listing.stdout.readline()
        was_printed.set()
        rest = listing.stdout.read()
    assert first.strip()
    assert "job-2" in rest
    assert listing.returncode == 0


def test_list_with_a_limit_counts_the_rest(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [
        json_response({"jobs": [job(1, "RUNNING")], "next": "c", "counts": {}}),
        json_response({"jobs": [job(1, "RUNNING")], "next": "c", "counts": {}, "total": 200_001}),
    ]
    assert main(["list", "--status", "running", "--status", "waiting-on-locks", "--limit", "1"]) == 0
    statuses = "status=RUNNING&status=WAITING_ON_LOCKS"
    assert [request.target for request in server.requests[1:]] == [
        f"/api/jobs?{statuses}&limit=1",
        f"/api/jobs?{statuses}&limit=1&total=1",
    ]
    assert capsys.readouterr().err == "rota: 200,000 more jobs; --limit N lists more, output to a pipe lists all\n"


@pytest.mark.parametrize(("height", "limit"), [(24, 50), (80, 77)])
def test_list_on_a_terminal_fits_the_terminal(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, height: int, limit: int
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(terminal, "_terminal_size", lambda _: (80, height))
    many = [job(number, "QUEUED") for number in range(1, limit + 1)]
    server.replies = [
        json_response({"jobs": many, "next": "c", "counts": {}}),
        json_response({"jobs": many[:1], "next": "c", "counts": {}, "total": limit + 1}),
    ]
    assert main(["list"]) == 0
    captured = capsys.readouterr()
    assert server.requests[1].target.endswith(f"&limit={limit}")
    assert len(captured.out.splitlines()) == limit + 1
    assert captured.err == "rota: 1 more job; --limit N lists more, output to a pipe lists all\n"


def test_show_and_why(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    why = {"text": "job-1 waits for job-2.", "warnings": ["pool gpu has no limit"]}
    server.replies = [json_response(job(1, "QUEUED")), json_response(why), json_response(why)]
    server.routes = {
        "GET /api/jobs/job-1/runs?limit=1000": json_response({"runs": []}),
        "GET /api/webhook-deliveries?job=job-1&limit=20": json_response({"deliveries": []}),
    }
    assert main(["show", "1"]) == 0
    assert "status             QUEUED\n" in capsys.readouterr().out
    assert main(["why", "job-1"]) == 0
    assert capsys.readouterr().out == "job-1 waits for job-2.\npool gpu has no limit\n"
    assert main(["why", "job-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == why


def test_not_found_exits_with_3(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [problem(404, "not-found", "there is no job-9; `rota list --all` lists all jobs")]
    assert main(["show", "job-9"]) == 3


def test_logs_are_copied_byte_for_byte(server: Server, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    server.replies = [chunked(b"a\x00\xff\r\n", b""), chunked(b"oops\n", b"")]
    assert main(["logs", "job-1"]) == 0
    captured = capfdbinary.readouterr()
    assert (captured.out, captured.err) == (b"a\x00\xff\r\n", b"oops\n")


def test_logs_follow_continues_after_the_tail(server: Server, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    server.routes = {
        "GET /api/jobs/job-1/logs": json_response({"job": "job-1", "stdout": {"size": 6}, "stderr": {"size": 0}}),
        "GET /api/jobs/job-1/logs/stdout?offset=0&limit=6": chunked(b"1\n2\n3\n", b""),
        "GET /api/jobs/job-1/logs/stdout?offset=2&limit=1048576": chunked(b"2\n3\n", b""),
        "GET /api/jobs/job-1/logs/stdout?offset=6&follow=1": chunked(b"4\n", b""),
        "GET /api/jobs/job-1?wait=0": json_response({"id": "job-1", "status": "COMPLETED"}),
    }
    assert main(["logs", "job-1", "--stream", "stdout", "--tail", "2", "--follow"]) == 0
    assert capfdbinary.readouterr().out == b"2\n3\n4\n"


def test_logs_as_json(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [chunked(b"x\xff\n", b""), chunked(b"")]
    assert main(["logs", "job-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "job": "job-1",
        "stdout": "x\N{REPLACEMENT CHARACTER}\n",
        "stderr": "",
    }


@pytest.mark.parametrize("chunk", [1, 2, 3, 1 << 16])
@pytest.mark.parametrize(
    ("log", "count", "kept"),
    [
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nbc\nd\n", 2, b"bc\nd\n"),
        (b"a\n\n\n", 2, b"\n\n"),
        (b"a", 5, b"a"),
        (b"a\nb\n", 0, b""),
        (b"\n", 1, b"\n"),
        (b"", 3, b""),
    ],
)
def test_last_lines_offset_for_any_chunk_size(
    home: Home, monkeypatch: pytest.MonkeyPatch, log: bytes, count: int, kept: bytes, chunk: int
) -> None:
    limits: list[int] = []

    def read_part(_session: SchedulerSession, message: Request) -> HttpResponse:
        words = dict(pair.split("=") for pair in message.target.partition("?")[2].split("&"))
        offset, limit = int(words["offset"]), int(words["limit"])
        limits.append(limit)
        return HttpResponse(200, {}, log[offset : offset + limit])

    monkeypatch.setattr(SchedulerSession, "request", read_part)
    monkeypatch.setattr("rota.jobs.cli.logs._SEARCH_CHUNK_BYTES", chunk)
    begin = last_lines_offset(ServedLog(SchedulerSession(home), "job-1", "stdout", None), len(log), count)
    assert log[begin:] == kept
    assert all(limit <= chunk for limit in limits)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("COMPLETED", 0, 0),
        ("COMPLETED", None, 0),
        ("SKIPPED", None, 0),
        ("FAILED", 7, 7),
        ("FAILED", 137, 137),
        ("FAILED", 124, 124),
        ("FAILED", None, 125),
        ("CANCELLED", 143, 143),
        ("CANCELLED", None, 143),
        ("BLOCKED_BY_DEPENDENCY", None, 1),
    ],
)
def test_exit_code_of_a_job(status: str, code: int | None, expected: int) -> None:
    assert exit_code({"status": status, "exit_code": code}) == expected


def test_wait_returns_the_first_failure_in_argument_order(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    ended = [job(1, "COMPLETED", exit_code=0), job(2, "FAILED", exit_code=5), job(3, "FAILED", exit_code=6)]
    server.routes = {f"GET /api/jobs/{record['id']}?wait=0": json_response(record) for record in ended}
    assert main(["wait", "job-1", "job-3", "job-2", "job-3"]) == 6
    assert capsys.readouterr().err.splitlines() == [
        "rota: job-1 COMPLETED n1",
        "rota: job-3 FAILED n3",
        "rota: job-2 FAILED n2",
    ]


def test_wait_prints_each_change_once(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = job(1, "WAITING_ON_LOCKS", wait={"kind": "locks", "detail": "waiting on locks", "topics": []})
    server.routes = {
        "GET /api/jobs/job-1?wait=0": json_response(waiting),
        "GET /api/jobs/job-1?wait=30&last_seen=WAITING_ON_LOCKS": json_response(job(1, "RUNNING")),
        "GET /api/jobs/job-1?wait=30&last_seen=RUNNING": json_response(job(1, "COMPLETED", exit_code=0)),
    }
    assert main(["wait", "job-1", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "rota: job-1 WAITING_ON_LOCKS n1: waiting on locks",
        "rota: job-1 RUNNING n1",
        "rota: job-1 COMPLETED n1",
    ]
    assert json.loads(captured.out)["jobs"][0]["status"] == "COMPLETED"


def test_wait_reconnects_after_a_broken_connection(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    replies = [b"", json_response(job(1, "COMPLETED", exit_code=3))]
    server.routes = {
        "GET /api/jobs/job-1?wait=0": json_response(job(1, "RUNNING")),
        "GET /api/jobs/job-1?wait=30&last_seen=RUNNING": lambda _: replies.pop(0),
    }
    assert main(["wait", "job-1"]) == 3


def test_wait_timeout_exits_with_124(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {
        "GET /api/jobs/job-1?wait=0": json_response(job(1, "RUNNING")),
        "GET /api/jobs/job-1?wait=30&last_seen=RUNNING": json_response(job(1, "RUNNING")),
    }
    assert main(["wait", "job-1", "--timeout", "20ms"]) == 124
    assert capsys.readouterr().err.endswith("rota: stopped waiting after 20ms; not ended: job-1\n")


def test_wait_for_an_unknown_job_exits_with_3(server: Server) -> None:
    server.routes = {"GET /api/jobs/job-1?wait=0": json_response(job(1, "RUNNING"))}
    assert main(["wait", "job-1", "job-2"]) == 3


def test_cancel_and_wait_accept_a_group_name(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    group = {"id": "group-3", "status": "CANCELLED", "name": "release"}
    server.routes = {
        "POST /api/job-groups/release/cancel?wait=8": json_response(group),
        "GET /api/job-groups/release": json_response(group),
        "GET /api/job-groups/build": problem(404, "not_found", "no such group: build"),
    }
    assert main(["cancel", "release"]) == 0
    assert capsys.readouterr().out == "group-3 CANCELLED\n"
    assert main(["wait", "release"]) != 0
    assert capsys.readouterr().err == "rota: group-3 CANCELLED release\n"
    assert main(["wait", "build"]) == 3
    assert capsys.readouterr().err == "rota: no such group: build; to name a job, use its ID, for example job-24\n"


@pytest.mark.parametrize(
    ("name", "get", "post"),
    [
        ("job-1", "GET /api/jobs/job-1?wait=0", "POST /api/jobs/job-1/cancel?wait=8"),
        ("group-3", "GET /api/job-groups/group-3", "POST /api/job-groups/group-3/cancel?wait=8"),
    ],
)
def test_cancel_of_a_cancelled_job_or_group_is_reported(
    name: str, get: str, post: str, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    response = json_response({"id": name, "status": "CANCELLED"})
    server.routes = {get: response, post: response}
    assert main(["cancel", name]) == 0
    assert capsys.readouterr() == (f"{name} CANCELLED\n", f"rota: {name} was already cancelled; nothing was changed\n")


def test_cancel_reports_each_job(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {
        "POST /api/jobs/job-1/cancel?wait=8": json_response(job(1, "CANCELLED")),
        "POST /api/jobs/job-2/cancel?wait=8": problem(409, "conflict", "job-2 has already ended (COMPLETED)"),
        "POST /api/jobs/job-3/cancel?wait=8": json_response(job(3, "CANCELLED")),
    }
    assert main(["cancel", "1", "2", "3"]) == 4
    captured = capsys.readouterr()
    assert captured.out == "job-1 CANCELLED\njob-3 CANCELLED\n"
    assert captured.err == "rota: job-2 has already ended (COMPLETED)\n"


def test_cancel_waits_until_the_job_has_ended(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {
        "POST /api/jobs/job-1/cancel?wait=8": json_response(job(1, "RUNNING")),
        "GET /api/scheduler": json_response({"supervisor_silent_since": None, "errors": []}),
        "GET /api/jobs/job-1?wait=8": json_response(job(1, "CANCELLED")),
    }
    assert main(["cancel", "job-1"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "job-1 CANCELLED\n"
    assert captured.err == "rota: waiting for job-1 to end\n"


def test_up_prints_location_and_recovery(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    recovery = {"running_jobs_adopted": 1, "requeued": 0}
    status = {"home": "/h", "socket": "/h/rota.sock", "pid": 5, "recovery": recovery, "errors": ["TCP is off"]}
    server.replies = [json_response(status)]
    assert main(["up"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "home    /h\nsocket  /h/rota.sock\npid     5\nrecovered  running jobs adopted: 1\n"
    assert captured.err == "rota: warning: TCP is off\n"


def test_status_of_the_scheduler(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [json_response({"mode": "direct", "running": 1}), json_response({"mode": "direct"})]
    assert main(["status"]) == 0
    assert capsys.readouterr().out.startswith("mode           direct\njobs           1 running")
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"mode": "direct"}


@pytest.mark.parametrize("words", [["down"], ["down", "--json"]])
def test_down_without_a_scheduler_succeeds(words: list[str], home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    captured = capsys.readouterr()
    assert not home.log.exists()
    assert (captured.err == "rota: not running\n") or json.loads(captured.out) == {"stopped": False, "left_running": []}


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Provide a process that stands for the scheduler and ends with its input."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        yield child
        child.kill()


def test_down_waits_for_the_process_and_lists_remaining_jobs(
    server: Server, process: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    running = [job(1, "RUNNING", pid=os.getpid()), job(2, "RUNNING", pid=None)]
    requests: list[str] = []

    def list_running(_: RecordedRequest) -> bytes:
        requests.append("list")
        if len(requests) > 2:
            process.kill()  # the process exits during the request
        return json_response({"jobs": running, "next": None, "counts": {}})

    server.routes = {
        "GET /health": json_response({"status": "ok", "pid": process.pid}),
        "GET /api/jobs?status=RUNNING": list_running,
        "GET /api/reservations?limit=1000": json_response(
            {"reservations": [{"id": "reservation-4", "status": "WAITING"}]}
        ),
        "POST /api/scheduler/stop": json_response({"grace": "1s"}, 202),
    }
    assert main(["down", "--grace", "1s"]) == 0
    assert next(request for request in server.requests if request.method == "POST").json() == {"grace": "1s"}
    assert capsys.readouterr().err.splitlines() == [
        "rota: stopping; waiting up to 1s for job-1 (n1), job-2 (n2), then leaving what still runs to the supervisor",
        "rota: the scheduler has stopped",
        f"rota: left running: job-1 (n1), pid {os.getpid()}; the next scheduler adopts it",
    ]


def test_down_lists_jobs_killed_between_polls(
    home: Home, server: Server, process: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    running = [job(number, "RUNNING", run={"id": f"run-{number}"}) for number in (1, 2, 3)]
    ends = {1: ("FAILED", "stopped by shutdown"), 2: ("FAILED", "stopped by shutdown"), 3: ("COMPLETED", None)}
    for number, (state, reason) in ends.items():
        (home.jobs / str(number)).mkdir(parents=True)
        record = job(number, state, run={"id": f"run-{number}"}, reason=reason)
        (home.jobs / str(number) / "job.json").write_text(json.dumps(record))
    requests: list[str] = []

    def list_running(_: RecordedRequest) -> bytes:
        requests.append("list")
        if len(requests) == 1:
            return json_response({"jobs": running, "next": None, "counts": {}})
        time.sleep(0.4)  # until the grace period is over
        process.kill()
        server.routes["GET /api/reservations?limit=1000"] = json_response({"reservations": []})
        return json_response({"jobs": running[1:2], "next": None, "counts": {}})

    server.routes = {
        "GET /health": json_response({"status": "ok", "pid": process.pid}),
        "GET /api/jobs?status=RUNNING": list_running,
        "GET /api/reservations?limit=1000": json_response(
            {"reservations": [{"id": "reservation-4", "status": "RUNNING", "name": "mine"}]}
        ),
        "POST /api/scheduler/stop": json_response({"grace": "300ms"}, 202),
    }
    assert main(["down", "--kill"]) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        "rota: stopping; killing job-2 (n2)",
        "rota: killed job-1 (n1), reservation-4 (mine)",
        "rota: stopped",
    ]


def test_down_lists_jobs_with_unconfirmed_starts(
    home: Home, server: Server, process: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    running = [job(number, "RUNNING", pid=None, run={"id": f"run-{number}"}) for number in (1, 2, 3)]
    ends = {2: job(2, "COMPLETED", run={"id": "run-2"}), 3: job(3, "FAILED", run={"id": "run-1"})}
    for number, record in ends.items():
        (home.jobs / str(number)).mkdir(parents=True)
        (home.jobs / str(number) / "job.json").write_text(json.dumps(record))

    def stop(_: RecordedRequest) -> bytes:
        process.kill()
        return json_response({"grace": "0s"}, 202)

    server.routes = {
        "GET /health": json_response({"status": "ok", "pid": process.pid}),
        "GET /api/jobs?status=RUNNING": json_response({"jobs": running, "next": None, "counts": {}}),
        "GET /api/reservations?limit=1000": json_response({"reservations": []}),
        "POST /api/scheduler/stop": stop,
    }
    with home.supervisor_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["down", "--grace", "0s"]) == 0
    adoption = "its start is not confirmed yet; the next scheduler adopts it, or queues it again if it never started"
    assert capsys.readouterr().err.splitlines() == [
        "rota: the scheduler has stopped",
        f"rota: left running: job-1 (n1), {adoption}",
        f"rota: left running: job-3 (n3), {adoption}",
    ], "job-2 has ended since; the record of job-3 describes an earlier run"


def test_down_reports_lock_whose_holder_never_listens(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(down, "_SOCKET_TIMEOUT", 0.0)
    with acquire_home_lock(home):
        assert main(["down", "--kill"]) == 1
        assert main(["doctor"]) == 0
    output = capsys.readouterr()
    assert f"pid {os.getpid()} holds {home.lock}" in output.err
    assert f"`kill {os.getpid()}`" in output.err
    assert f"pid {os.getpid()} holds the lock of the home" in output.out


def test_down_stops_waiting_for_a_silent_scheduler(
    server: Server,
    process: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(down, "_SILENCE_TIMEOUT", 0.0)
    monkeypatch.setattr(down, "_POLL_INTERVAL", 0.01)
    server.routes = {
        "GET /health": json_response({"status": "ok", "pid": process.pid}),
        "GET /api/jobs?status=RUNNING": problem(503, "unavailable", "stopping"),
        "POST /api/scheduler/stop": json_response({"grace": "30s"}, 202),
    }
    assert main(["down"]) == 1
    assert f"kill -9 {process.pid}" in capsys.readouterr().err


def test_config_set_reloads_a_running_scheduler(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {"POST /api/scheduler/reload": json_response({})}
    assert main(["config", "set", "pools.global", "-1"]) == 0
    assert len(server.requests) == 1
    assert main(["config", "get", "pools.global"]) == 0
    assert capsys.readouterr().out == "-1\n"


def test_config_needs_no_scheduler(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "scheduler.grace", "5s", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"scheduler.grace": "5s"}
    assert main(["config", "list"]) == 0
    assert "scheduler.grace = 5s\n" in capsys.readouterr().out
    assert main(["config", "get", "nonsense"]) == 2
    assert not home.log.exists()


def test_invalid_config_exits_with_1(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.config.write_text("[pools\n")
    assert main(["config", "list"]) == 1
    assert capsys.readouterr().err.startswith("rota: ")


def verdicts(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return {check["name"]: check["verdict"] for check in json.loads(capsys.readouterr().out)["checks"]}


def test_doctor_without_a_scheduler(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.root.rmdir()
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "ok    scheduler   not running; `rota up` and every command that changes something start it\n" in out
    assert not home.root.exists()


def test_doctor_reports_a_supervisor_without_scheduler(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with home.supervisor_lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["doctor"]) == 0
    assert "ok    supervisor  running" in capsys.readouterr().out


def test_doctor_finds_broken_files(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.config.write_text("nonsense = 1\n")
    home.database.write_bytes(b"not a database at all")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home.socket))
    assert main(["doctor", "--json"]) == 1
    result = verdicts(capsys)
    assert (result["config"], result["database"], result["scheduler"]) == ("fail", "fail", "ok")


def test_doctor_reads_the_version_of_the_database(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    SqliteStore(home.database).session().close()
    assert main(["doctor"]) == 0
    assert re.search(r"rota.db, [\d,]+ bytes, schema \d+", capsys.readouterr().out)


def test_doctor_finds_a_database_of_a_newer_version(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    session = SqliteStore(home.database).session()
    session.begin()
    session.meta.set("schema_version", "99")
    session.commit()
    session.close()
    assert main(["doctor"]) == 1
    assert "newer version of Rota (schema 99" in capsys.readouterr().out


def test_doctor_finds_a_damaged_database(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.database.write_bytes(b"SQLite format 3\0".ljust(100, b"\0"))
    assert main(["doctor"]) == 1
    assert "fail  database" in capsys.readouterr().out


def check_store(home: Home, capsys: pytest.CaptureFixture[str], url: str, *, more: str = "") -> tuple[str, str]:
    """Return the verdict and text of the doctor on the store at this URL."""
    home.config.write_text(f'{more}[store]\nurl = "{url}"\n')
    code = main(["doctor", "--json"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert code == (1 if "fail" in {check["verdict"] for check in checks.values()} else 0)
    assert checks["config"]["verdict"] == ("fail" if more else "ok")
    return checks["database"]["verdict"], checks["database"]["text"]


def test_doctor_checks_a_server_store_in_use(home: Home, capsys: pytest.CaptureFixture[str], postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    with closing(store.session()) as session:
        version = session.meta.get("schema_version")
        assert check_store(home, capsys, postgres_url) == ("ok", f"{store.name}, schema {version}")


def test_doctor_creates_nothing_on_a_server(
    home: Home, capsys: pytest.CaptureFixture[str], postgres_server: Postgres, postgres_schema: Schema
) -> None:
    name = fresh_schema()
    verdict, text = check_store(home, capsys, postgres_server.url(name))
    assert verdict == "ok"
    assert text.endswith(f"search_path={name}, reachable, no schema yet; created at the first start")
    assert postgres_schema.run_sql(f"SELECT 1 FROM pg_namespace WHERE nspname = '{name}'") == []


def test_doctor_finds_a_server_store_of_a_newer_version(
    home: Home, capsys: pytest.CaptureFixture[str], postgres_url: str, postgres_schema: Schema
) -> None:
    postgres_schema.run_sql("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    verdict, text = check_store(home, capsys, postgres_url)
    assert verdict == "fail"
    assert "newer version of Rota (schema 99" in text


def test_doctor_explains_an_unusable_server_store(
    home: Home, capsys: pytest.CaptureFixture[str], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url, output in (
        (f"postgresql://me:secret@/x?host={home.root}", "is unavailable"),
        ("postgresql://me:secret@db/x?search_path=A", "not a valid schema name"),
        (postgres_url.replace("/postgres?", "/missing?"), "does not exist"),
    ):
        verdict, text = check_store(home, capsys, url)
        assert verdict == "fail"
        assert output in text
        assert "secret" not in text
    monkeypatch.setitem(sys.modules, "rota.db.postgres.store", None)
    verdict, text = check_store(home, capsys, postgres_url)
    assert (verdict, "pip install" in text) == ("fail", True)


def test_doctor_reports_an_invalid_config_once(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_store(home, capsys, "postgresql://nowhere/x", more="nonsense = 1\n")[0] == "ok"


def test_doctor_warns_about_scheduler_errors(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    status = {"pid": 3, "version": "0.0.1", "supervisor_pid": None, "errors": ["TCP is off"]}
    server.replies = [json_response({"status": "ok", "pid": 3}), json_response(status)]
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "warn  scheduler   runs version 0.0.1" in out
    assert "warn  scheduler   TCP is off" in out
    assert "warn  supervisor" in out


@pytest.mark.parametrize(
    ("has_cgroups", "text"), [(True, "each run has its own"), (False, "systemd-run --user --scope")]
)
def test_doctor_reports_cgroups(
    server: Server, capsys: pytest.CaptureFixture[str], has_cgroups: bool, text: str
) -> None:
    status = {"pid": 3, "version": "0.0.1", "supervisor_pid": 4, "has_cgroups": has_cgroups}
    server.replies = [json_response({"status": "ok", "pid": 3}), json_response(status)]
    assert main(["doctor"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("ok    cgroups"))
    assert text in line


BREAKER = {"key": "type/x", "state": "open", "failures": 20, "probe_at": "2026-03-01T12:00:00Z", "probe_job": None}


def test_breaker_lists_by_default(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes["GET /api/breakers?limit=1000"] = json_response({"breakers": [BREAKER]})
    assert main(["breaker"]) == 0
    listed = capsys.readouterr().out
    assert main(["breaker", "list"]) == 0
    assert capsys.readouterr().out == listed
    assert listed.splitlines() == [
        "BREAKER  STATE  FAILURES  UNTIL/PROBE",
        "type/x   open   20        2026-03-01T12:00:00Z",
    ]
    assert main(["breaker", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"breakers": [BREAKER]}


@pytest.mark.parametrize(
    ("word", "target"),
    [
        ("type/x", "type/x"),
        ("target/a/b", "target/a/b"),
        ("type/50%?#ä", "type/50%25%3F%23%C3%A4"),
        ("job-7", "job-7"),
        ("7", "job-7"),
    ],
)
def test_breaker_reset_accepts_a_key_or_a_job(server: Server, word: str, target: str) -> None:
    server.replies = [json_response({"key": word, "state": "closed", "failures_cleared": 2})]
    assert main(["breaker", "reset", word]) == 0
    assert (server.requests[0].method, server.requests[0].target) == ("POST", f"/api/breakers/{target}/reset")


@pytest.mark.parametrize(
    ("status", "starts_immediately", "output"),
    [
        ("QUEUED", True, "failed starts cleared: 2; the job starts immediately"),
        ("QUEUED", False, "failed starts cleared: 2"),
        ("FAILED", False, "failed starts cleared: 2; the job has ended: `rota retry job-7` retries it"),
    ],
)
def test_breaker_reset_reports_its_effect(
    server: Server, capsys: pytest.CaptureFixture[str], status: str, starts_immediately: bool, output: str
) -> None:
    result = {"job": "job-7", "status": status, "failures_cleared": 2, "starts_immediately": starts_immediately}
    server.replies = [json_response(result), json_response(result)]
    assert main(["breaker", "reset", "7"]) == 0
    assert capsys.readouterr() == (f"job-7 {status}\n", f"rota: {output}\n")
    assert main(["breaker", "reset", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == result


@pytest.mark.parametrize(
    ("words", "requested", "output", "out", "err"),
    [
        (
            ["--dry-run"],
            {"dry_run": True, "batch": None},
            {"dispatched": [], "would_dispatch": ["job-1", "job-2"], "skipped": 3, "reason": "capacity"},
            "job-1\njob-2\n",
            "rota: would start 2: there is no free capacity; ready but not started: 3\n",
        ),
        (
            ["--batch", "4"],
            {"dry_run": False, "batch": 4},
            {"dispatched": ["job-1"], "would_dispatch": ["job-2"], "skipped": 0, "reason": "ready"},
            "job-1\n",
            "rota: started 1, 1 to follow: no more jobs are ready\n",
        ),
    ],
)
def test_tick_lists_jobs_and_the_reason_to_stop(
    server: Server,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    requested: Any,
    output: Any,
    out: str,
    err: str,
) -> None:
    server.replies = [json_response(output), json_response(output)]
    assert main(["tick", *words]) == 0
    assert server.requests[0].json() == requested
    assert capsys.readouterr() == (out, err)
    assert main(["tick", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == output


@pytest.mark.parametrize("text", ["0", "-1", "many", "99999999999"])
def test_tick_refuses_an_invalid_batch(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tick", f"--batch={text}"]) == 2
    assert f"{text} is not a valid number of jobs; use a number from 1 to 2147483647" in capsys.readouterr().err
