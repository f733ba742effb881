"""Each verb against the stand-in: what it asks, what it prints, how it leaves."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from cli.stand_in import Request, Server, answer, chunked, problem
from postgres_server import Schema, fresh_schema
from postgres_server import Server as Postgres
from rota.cli import down
from rota.cli.logs import last_lines
from rota.cli.main import main
from rota.cli.outcome import exit_code
from rota.client.ask import Ask
from rota.client.ask.job import ACTIVE, TERMINAL
from rota.client.session import Session
from rota.client.transport import Answer
from rota.core import status
from rota.home import Home
from rota.store.postgres.store import PostgresStore
from rota.store.sqlite.store import SqliteStore


def job(number: int, status: str, **fields: Any) -> dict[str, Any]:
    return {"id": f"job-{number}", "status": status, "name": f"n{number}", "command": ["true"], **fields}


def test_the_statuses_are_the_cores() -> None:
    shown = {each.shown.value for each in status.ACTIVE}
    assert (set(ACTIVE), set(TERMINAL)) == (shown, {each.value for each in status.TERMINAL})


def test_list_hides_what_is_finished_and_says_so(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"QUEUED": 1, "COMPLETED": 2, "FAILED": 1}
    server.replies = [answer({"jobs": [job(1, "QUEUED")], "next": None, "counts": counts})]
    assert main(["list"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1].startswith("job-1  QUEUED")
    assert captured.err == "rota: 3 finished jobs hidden (2 COMPLETED, 1 FAILED); --all shows them\n"
    assert server.requests[0].target.count("status=") == 4


def test_list_of_nothing_has_no_head(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [answer({"jobs": [], "next": None, "counts": {"FAILED": 1}})]
    assert main(["list"]) == 0
    hidden = "rota: 1 finished job hidden (1 FAILED); --all shows them\n"
    assert capsys.readouterr() == ("", f"rota: no active jobs\n{hidden}")


def test_list_all_reads_every_page(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [
        answer({"jobs": [job(1, "QUEUED")], "next": "c1", "counts": {}}),
        answer({"jobs": [job(2, "FAILED")], "next": None, "counts": {}}),
    ]
    assert main(["list", "--all", "--json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["jobs"]] == ["job-1", "job-2"]
    assert [request.target for request in server.requests] == ["/api/jobs?limit=500", "/api/jobs?limit=500&cursor=c1"]


def test_list_with_a_limit_says_that_there_is_more(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [answer({"jobs": [job(1, "RUNNING")], "next": "c", "counts": {}})]
    assert main(["list", "--status", "running", "--status", "waiting-on-locks", "--limit", "1"]) == 0
    assert server.requests[0].target == "/api/jobs?status=RUNNING&status=WAITING_ON_LOCKS&limit=1"
    assert "there are more" in capsys.readouterr().err


def test_show_and_why(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    why = {"text": "job-1 waits for job-2.", "warnings": ["pool gpu has no limit"]}
    server.replies = [answer(job(1, "QUEUED")), answer(why), answer(why)]
    server.routes = {
        "GET /api/jobs/job-1/runs?limit=1000": answer({"runs": []}),
        "GET /api/webhook-deliveries?job=job-1&limit=20": answer({"deliveries": []}),
    }
    assert main(["show", "1"]) == 0
    assert "status             QUEUED\n" in capsys.readouterr().out
    assert main(["why", "job-1"]) == 0
    assert capsys.readouterr().out == "job-1 waits for job-2.\npool gpu has no limit\n"
    assert main(["why", "job-1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == why


def test_not_found_is_3(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [problem(404, "not-found", "there is no job-9; `rota list --all` shows what there is")]
    assert main(["show", "job-9"]) == 3


def test_logs_keep_streams_apart_and_bytes_as_they_are(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    server.replies = [chunked(b"a\x00\xff\r\n", b""), chunked(b"oops\n", b"")]
    assert main(["logs", "job-1"]) == 0
    captured = capfdbinary.readouterr()
    assert (captured.out, captured.err) == (b"a\x00\xff\r\n", b"oops\n")


def test_logs_follow_after_a_tail_begins_where_the_tail_ended(
    server: Server, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    server.routes = {
        "GET /api/jobs/job-1/logs": answer({"job": "job-1", "stdout": {"size": 6}, "stderr": {"size": 0}}),
        "GET /api/jobs/job-1/logs/stdout?offset=0&limit=6": chunked(b"1\n2\n3\n", b""),
        "GET /api/jobs/job-1/logs/stdout?offset=2&limit=1048576": chunked(b"2\n3\n", b""),
        "GET /api/jobs/job-1/logs/stdout?offset=6&follow=1": chunked(b"4\n", b""),
        "GET /api/jobs/job-1?wait=0": answer({"id": "job-1", "status": "COMPLETED"}),
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


@pytest.mark.parametrize("piece", [1, 2, 3, 1 << 16])
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
def test_last_lines(
    home: Home, monkeypatch: pytest.MonkeyPatch, log: bytes, count: int, kept: bytes, piece: int
) -> None:
    asked: list[int] = []

    def part(_session: Session, ask: Ask) -> Answer:
        words = dict(pair.split("=") for pair in ask.target.partition("?")[2].split("&"))
        offset, limit = int(words["offset"]), int(words["limit"])
        asked.append(limit)
        return Answer(200, {}, log[offset : offset + limit])

    monkeypatch.setattr(Session, "answer", part)
    monkeypatch.setattr("rota.cli.logs._PIECE", piece)
    begin = last_lines(Session(home), "job-1", "stdout", len(log), count)
    assert log[begin:] == kept
    assert all(limit <= piece for limit in asked)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("COMPLETED", 0, 0), ("COMPLETED", None, 0), ("SKIPPED", None, 0), ("FAILED", 7, 7), ("FAILED", 137, 137),
        ("FAILED", 124, 124), ("FAILED", None, 1), ("CANCELLED", 143, 143), ("CANCELLED", None, 143),
        ("BLOCKED_BY_DEPENDENCY", None, 1),
    ],
)  # fmt: skip
def test_the_exit_code_of_a_job(status: str, code: int | None, expected: int) -> None:
    assert exit_code({"status": status, "exit_code": code}) == expected


def test_wait_returns_the_first_failure_in_argument_order(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    ended = [job(1, "COMPLETED", exit_code=0), job(2, "FAILED", exit_code=5), job(3, "FAILED", exit_code=6)]
    server.routes = {f"GET /api/jobs/{each['id']}?wait=0": answer(each) for each in ended}
    assert main(["wait", "job-1", "job-3", "job-2", "job-3"]) == 6
    assert capsys.readouterr().err.splitlines() == [
        "rota: job-1 COMPLETED n1", "rota: job-3 FAILED n3", "rota: job-2 FAILED n2"
    ]  # fmt: skip


def test_wait_tells_each_change_once(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = job(1, "WAITING_ON_LOCKS", wait={"kind": "locks", "detail": "waiting on locks", "on": []})
    server.routes = {
        "GET /api/jobs/job-1?wait=0": answer(waiting),
        "GET /api/jobs/job-1?wait=30&seen=WAITING_ON_LOCKS": answer(job(1, "RUNNING")),
        "GET /api/jobs/job-1?wait=30&seen=RUNNING": answer(job(1, "COMPLETED", exit_code=0)),
    }
    assert main(["wait", "job-1", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "rota: job-1 WAITING_ON_LOCKS n1: waiting on locks",
        "rota: job-1 RUNNING n1",
        "rota: job-1 COMPLETED n1",
    ]
    assert json.loads(captured.out)["jobs"][0]["status"] == "COMPLETED"


def test_wait_asks_again_when_the_connection_broke(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    replies = [b"", answer(job(1, "COMPLETED", exit_code=3))]
    server.routes = {
        "GET /api/jobs/job-1?wait=0": answer(job(1, "RUNNING")),
        "GET /api/jobs/job-1?wait=30&seen=RUNNING": lambda _: replies.pop(0),
    }
    assert main(["wait", "job-1"]) == 3


def test_wait_gives_up_with_124(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {
        "GET /api/jobs/job-1?wait=0": answer(job(1, "RUNNING")),
        "GET /api/jobs/job-1?wait=30&seen=RUNNING": answer(job(1, "RUNNING")),
    }
    assert main(["wait", "job-1", "--timeout", "20ms"]) == 124
    assert capsys.readouterr().err.endswith("rota: gave up after 20ms; still not ended: job-1\n")


def test_wait_for_an_unknown_job_is_3(server: Server) -> None:
    server.routes = {"GET /api/jobs/job-1?wait=0": answer(job(1, "RUNNING"))}
    assert main(["wait", "job-1", "job-2"]) == 3


def test_cancel_says_what_became_of_each(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {
        "POST /api/jobs/job-1/cancel": answer(job(1, "CANCELLED")),
        "POST /api/jobs/job-2/cancel": problem(409, "conflict", "job-2 has already ended (COMPLETED)"),
        "POST /api/jobs/job-3/cancel": answer(job(3, "CANCELLED")),
    }
    assert main(["cancel", "1", "2", "3"]) == 4
    captured = capsys.readouterr()
    assert captured.out == "job-1 CANCELLED\njob-3 CANCELLED\n"
    assert captured.err == "rota: job-2 has already ended (COMPLETED)\n"


def test_cancel_waits_longer_than_the_server_does(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {
        "POST /api/jobs/job-1/cancel": answer(job(1, "RUNNING")),
        "GET /api/jobs/job-1?wait=30": answer(job(1, "CANCELLED")),
    }
    assert main(["cancel", "job-1"]) == 0
    assert capsys.readouterr().out == "job-1 CANCELLED\n"


def test_up_says_where_it_is_and_what_it_recovered(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    recovery = {"running_jobs_adopted": 1, "requeued": 0}
    status = {"home": "/h", "socket": "/h/rota.sock", "pid": 5, "recovery": recovery, "trouble": ["TCP is off"]}
    server.replies = [answer(status)]
    assert main(["up"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "home    /h\nsocket  /h/rota.sock\npid     5\nrecovered  running jobs adopted: 1\n"
    assert captured.err == "rota: warning: TCP is off\n"


def test_status_of_the_scheduler(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.replies = [answer({"mode": "direct", "running": 1}), answer({"mode": "direct"})]
    assert main(["status"]) == 0
    assert capsys.readouterr().out.startswith("mode           direct\njobs           1 running")
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"mode": "direct"}


@pytest.mark.parametrize("words", [["down"], ["down", "--json"]])
def test_down_without_a_scheduler_is_harmless(words: list[str], home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    captured = capsys.readouterr()
    assert not home.log.exists()
    assert (captured.err == "rota: not running\n") or json.loads(captured.out) == {"stopped": False, "left_running": []}


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Stands for the scheduler's process: it ends when its input does."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        yield child
        child.kill()


def test_down_waits_for_the_process_and_names_what_is_left(
    server: Server, process: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    running = [job(1, "RUNNING", pid=os.getpid()), job(2, "RUNNING", pid=None)]
    asked: list[str] = []

    def list_running(_: Request) -> bytes:
        asked.append("list")
        if len(asked) > 1:
            process.kill()  # It goes while we ask what still runs.
        return answer({"jobs": running, "next": None, "counts": {}})

    server.routes = {
        "GET /health": answer({"status": "ok", "pid": process.pid}),
        "GET /api/jobs?status=RUNNING": list_running,
        "GET /api/slots?limit=1000": answer({"slots": [{"id": "slot-4", "status": "WAITING"}]}),
        "POST /api/scheduler/stop": answer({}, 202),
    }
    assert main(["down", "--grace", "1s"]) == 0
    assert next(request for request in server.requests if request.method == "POST").json() == {"grace": "1s"}
    assert capsys.readouterr().err.splitlines() == [
        "rota: stopping; still running: job-1 (n1), job-2 (n2)",
        "rota: stopped",
        f"rota: left running: job-1 (n1), pid {os.getpid()}; the next start adopts it",
    ]


def test_down_does_not_wait_for_ever(
    server: Server,
    process: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(down, "_SILENCE", 0.0)
    monkeypatch.setattr(down, "_LOOK_EVERY", 0.01)
    server.routes = {
        "GET /health": answer({"status": "ok", "pid": process.pid}),
        "GET /api/jobs?status=RUNNING": problem(503, "unavailable", "stopping"),
        "POST /api/scheduler/stop": answer({}, 202),
    }
    assert main(["down"]) == 1
    assert f"kill -9 {process.pid}" in capsys.readouterr().err


def test_config_set_tells_a_running_scheduler(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes = {"POST /api/scheduler/reload": answer({})}
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


def test_a_config_that_cannot_be_used_is_1(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.config.write_text("[pools\n")
    assert main(["config", "list"]) == 1
    assert capsys.readouterr().err.startswith("rota: ")


def verdicts(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return {each["name"]: each["verdict"] for each in json.loads(capsys.readouterr().out)["checks"]}


def test_doctor_without_a_scheduler(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.root.rmdir()
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "ok    scheduler   not running; commands start it\n" in out
    assert not home.root.exists()


def test_doctor_sees_a_supervisor_that_keeps_jobs(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    with home.supervisor_lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert main(["doctor"]) == 0
    assert "ok    supervisor  running" in capsys.readouterr().out


def test_doctor_finds_what_is_broken(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.config.write_text("nonsense = 1\n")
    home.database.write_bytes(b"not a database at all")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(home.socket))
    assert main(["doctor", "--json"]) == 1
    found = verdicts(capsys)
    assert (found["config"], found["database"], found["scheduler"]) == ("fail", "fail", "ok")


def test_doctor_reads_the_version_of_the_database(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    SqliteStore(home.database).session().close()
    assert main(["doctor"]) == 0
    assert re.search(r"rota.db, [\d,]+ bytes, schema \d+", capsys.readouterr().out)


def test_doctor_finds_a_database_that_a_newer_version_wrote(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    session = SqliteStore(home.database).session()
    session.begin()
    session.set_meta("schema_version", "99")
    session.commit()
    session.close()
    assert main(["doctor"]) == 1
    assert "newer version of Rota (schema 99" in capsys.readouterr().out


def test_doctor_finds_a_damaged_database(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.database.write_bytes(b"SQLite format 3\0".ljust(100, b"\0"))
    assert main(["doctor"]) == 1
    assert "fail  database" in capsys.readouterr().out


def look_at_store(home: Home, capsys: pytest.CaptureFixture[str], url: str, *, more: str = "") -> tuple[str, str]:
    """What the doctor says of a store at this URL."""
    home.config.write_text(f'{more}[store]\nurl = "{url}"\n')
    code = main(["doctor", "--json"])
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)["checks"]}
    assert code == (1 if "fail" in {each["verdict"] for each in found.values()} else 0)
    assert found["config"]["verdict"] == ("fail" if more else "ok")
    return found["database"]["verdict"], found["database"]["text"]


def test_doctor_looks_at_a_store_on_a_server_that_a_scheduler_is_at_work_on(
    home: Home, capsys: pytest.CaptureFixture[str], postgres_url: str
) -> None:
    store = PostgresStore(postgres_url)
    with closing(store.session()) as session:
        version = session.meta("schema_version")
        assert look_at_store(home, capsys, postgres_url) == ("ok", f"{store.name}, schema {version}")


def test_doctor_makes_nothing_on_a_server(
    home: Home, capsys: pytest.CaptureFixture[str], postgres_server: Postgres, postgres_schema: Schema
) -> None:
    name = fresh_schema()
    verdict, text = look_at_store(home, capsys, postgres_server.url(name))
    assert verdict == "ok"
    assert text.endswith(f"search_path={name}, answers, nothing there yet; made at the first start")
    assert postgres_schema.raw(f"SELECT 1 FROM pg_namespace WHERE nspname = '{name}'") == []


def test_doctor_finds_a_store_on_a_server_that_a_newer_version_wrote(
    home: Home, capsys: pytest.CaptureFixture[str], postgres_url: str, postgres_schema: Schema
) -> None:
    postgres_schema.raw("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    verdict, text = look_at_store(home, capsys, postgres_url)
    assert verdict == "fail"
    assert "newer version of Rota (schema 99" in text


def test_doctor_says_why_a_store_on_a_server_cannot_be_used(
    home: Home, capsys: pytest.CaptureFixture[str], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url, said in (
        (f"postgresql://me:secret@/x?host={home.root}", "is away"),
        ("postgresql://me:secret@db/x?search_path=A", "not the name of one schema"),
        (postgres_url.replace("/postgres?", "/missing?"), "does not exist"),
    ):
        verdict, text = look_at_store(home, capsys, url)
        assert verdict == "fail"
        assert said in text
        assert "secret" not in text
    monkeypatch.setitem(sys.modules, "rota.store.postgres.store", None)
    verdict, text = look_at_store(home, capsys, postgres_url)
    assert (verdict, "pip install" in text) == ("fail", True)


def test_doctor_says_once_that_the_config_cannot_be_read(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert look_at_store(home, capsys, "postgresql://nowhere/x", more="nonsense = 1\n")[0] == "ok"


def test_doctor_warns_of_a_scheduler_in_trouble(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    status = {"pid": 3, "version": "0.0.1", "supervisor_pid": None, "trouble": ["TCP is off"]}
    server.replies = [answer({"status": "ok", "pid": 3}), answer(status)]
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "warn  scheduler   runs version 0.0.1" in out
    assert "warn  scheduler   TCP is off" in out
    assert "warn  supervisor" in out


BREAKER = {"key": "type/x", "state": "open", "failures": 20, "until": "2026-03-01T12:00:00Z", "probe": None}


def test_breaker_lists_by_default(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.routes["GET /api/breakers?limit=1000"] = answer({"breakers": [BREAKER]})
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
def test_breaker_reset_names_a_key_or_a_job(server: Server, word: str, target: str) -> None:
    server.replies = [answer({"key": word, "state": "closed", "failures_forgotten": 2})]
    assert main(["breaker", "reset", word]) == 0
    assert (server.requests[0].method, server.requests[0].target) == ("POST", f"/api/breakers/{target}/reset")


@pytest.mark.parametrize(
    ("status", "goes_at_once", "said"),
    [
        ("QUEUED", True, "failed starts forgotten: 2; it goes at once"),
        ("QUEUED", False, "failed starts forgotten: 2"),
        ("FAILED", False, "failed starts forgotten: 2; it has ended, and stays so: `rota retry job-7` tries again"),
    ],
)
def test_breaker_reset_says_what_follows_from_it(
    server: Server, capsys: pytest.CaptureFixture[str], status: str, goes_at_once: bool, said: str
) -> None:
    told = {"job": "job-7", "status": status, "failures_forgotten": 2, "goes_at_once": goes_at_once}
    server.replies = [answer(told), answer(told)]
    assert main(["breaker", "reset", "7"]) == 0
    assert capsys.readouterr() == (f"job-7 {status}\n", f"rota: {said}\n")
    assert main(["breaker", "reset", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told


@pytest.mark.parametrize(
    ("words", "asked", "said", "out", "err"),
    [
        (
            ["--dry-run"],
            {"dry_run": True, "batch": None},
            {"dispatched": [], "would_dispatch": ["job-1", "job-2"], "skipped": 3, "reason": "capacity"},
            "job-1\njob-2\n",
            "rota: would start 2: there is no room for more; ready and left: 3\n",
        ),
        (
            ["--batch", "4"],
            {"dry_run": False, "batch": 4},
            {"dispatched": ["job-1"], "would_dispatch": ["job-2"], "skipped": 0, "reason": "ready"},
            "job-1\n",
            "rota: started 1, 1 to follow: that is all that is ready\n",
        ),
    ],
)
def test_tick_names_each_job_and_says_why_no_more(
    server: Server, capsys: pytest.CaptureFixture[str], words: list[str], asked: Any, said: Any, out: str, err: str
) -> None:
    server.replies = [answer(said), answer(said)]
    assert main(["tick", *words]) == 0
    assert server.requests[0].json() == asked
    assert capsys.readouterr() == (out, err)
    assert main(["tick", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == said


@pytest.mark.parametrize("text", ["0", "-1", "many", "99999999999"])
def test_tick_refuses_a_batch_that_is_no_number_of_jobs(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tick", f"--batch={text}"]) == 2
    assert f"{text} is no number of jobs; it is 1 or more" in capsys.readouterr().err
