"""A bare loop with the structure of Rota and none of its features.

It has two processes: a scheduler that claims, records and commits, and a supervisor that spawns children and keeps a
journal. Each command takes as many rows and journal lines as in Rota. There are no gates, pools, retries or responses:
the difference to Rota is the cost of its features.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import signal
import socket
import sqlite3
import time
from pathlib import Path
from typing import Any

_TRUE = "/bin/true"
_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
_SCHEMA = """
CREATE TABLE job (id INTEGER PRIMARY KEY, status TEXT, run INTEGER, ended_at REAL);
CREATE INDEX job_waiting ON job (id) WHERE status = 'QUEUED';
CREATE TABLE run (id INTEGER PRIMARY KEY, job INTEGER, started_at REAL, pid INTEGER, ended_at REAL, exit_code INTEGER);
CREATE INDEX run_job ON run (job);
CREATE TABLE event (seq INTEGER PRIMARY KEY, at REAL, kind TEXT, job INTEGER, run INTEGER, data TEXT);
CREATE INDEX event_job ON event (job, seq);
"""


class BareLoop:
    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._jobs = directory / "jobs"
        self._jobs.mkdir()
        self._database = sqlite3.connect(directory / "loop.db", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.executescript(_SCHEMA)
        self._socket, supervisor_socket = socket.socketpair()
        context = multiprocessing.get_context("fork")
        self._supervisor = context.Process(
            target=_supervise, args=(supervisor_socket, self._socket, directory / "journal"), daemon=True
        )
        self._supervisor.start()
        supervisor_socket.close()
        self._partial_line = b""

    def close(self) -> None:
        self._socket.close()
        self._supervisor.join()

    def measure_commands(self, count: int, concurrency: int) -> float:
        """Return commands per second at this concurrency."""
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO job (status) VALUES ('QUEUED')", [()] * count)
        self._database.execute("COMMIT")
        started = time.perf_counter()
        remaining, in_flight = count, 0
        messages: list[dict[str, Any]] = []
        while remaining or in_flight:
            orders = []
            self._database.execute("BEGIN IMMEDIATE")
            for message in messages:
                in_flight -= self._record(message)
            while remaining and in_flight < concurrency:
                orders.append(self._claim())
                remaining, in_flight = remaining - 1, in_flight + 1
            self._database.execute("COMMIT")
            self._send(orders)
            messages = self._receive() if remaining or in_flight else []
        return count / (time.perf_counter() - started)

    def _claim(self) -> dict[str, Any]:
        now = time.time()
        [(job,)] = self._database.execute("SELECT min(id) FROM job WHERE status = 'QUEUED'")
        run = self._database.execute("INSERT INTO run (job, started_at) VALUES (?, ?)", (job, now)).lastrowid
        self._database.execute("UPDATE job SET status = 'DISPATCHED', run = ? WHERE id = ?", (run, job))
        self._emit("job.dispatched", now, job, run)
        directory = str(self._jobs / str(job))
        return {"type": "start", "run": run, "job": job, "argv": [_TRUE], "directory": directory, "env": _ENVIRONMENT}

    def _record(self, message: dict[str, Any]) -> int:
        """Store a message and return how many runs it ended."""
        now, job, run = time.time(), message["job"], message["run"]
        if message["type"] == "started":
            self._database.execute("UPDATE run SET pid = ? WHERE id = ?", (message["pid"], run))
            self._database.execute("UPDATE job SET status = 'RUNNING' WHERE id = ?", (job,))
            self._emit("job.running", now, job, run)
            return 0
        self._database.execute("UPDATE run SET ended_at = ?, exit_code = ? WHERE id = ?", (now, message["code"], run))
        self._database.execute("UPDATE job SET status = 'COMPLETED', ended_at = ? WHERE id = ?", (now, job))
        self._emit("job.completed", now, job, run)
        return 1

    def _emit(self, kind: str, now: float, job: int, run: int | None) -> None:
        self._database.execute(
            "INSERT INTO event (at, kind, job, run, data) VALUES (?, ?, ?, ?, '{}')", (now, kind, job, run)
        )

    def _send(self, orders: list[dict[str, Any]]) -> None:
        if orders:
            self._socket.sendall(b"".join(map(_encode_line, orders)))

    def _receive(self) -> list[dict[str, Any]]:
        """Return messages with at least one end; a start alone is not worth a commit."""
        messages: list[dict[str, Any]] = []
        while not any(message["type"] == "exited" for message in messages):
            *lines, self._partial_line = (self._partial_line + self._socket.recv(1 << 16)).split(b"\n")
            messages += map(json.loads, lines)
        return messages


def _encode_line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _supervise(link: socket.socket, scheduler_socket: socket.socket, journal_path: Path) -> None:
    """Spawn children in their own sessions, and journal and report their ends."""
    scheduler_socket.close()
    journal = os.open(journal_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    children: dict[int, dict[str, Any]] = {}
    partial_line = b""
    poll = select.poll()
    poll.register(link, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    while True:
        output = b""
        for ready, _ in poll.poll():
            if ready == wake_read:
                os.read(wake_read, 1 << 10)
                continue
            if not (data := link.recv(1 << 16)):
                return
            *lines, partial_line = (partial_line + data).split(b"\n")
            for order in map(json.loads, lines):
                output += _start(order, children, journal)
        output += _reap(children, journal)
        if output:
            link.sendall(output)


def _start(order: dict[str, Any], children: dict[int, dict[str, Any]], journal: int) -> bytes:
    os.write(journal, _encode_line({"type": "starting", "run": order["run"]}))
    directory = order["directory"]
    os.mkdir(directory, 0o700)  # noqa: PTH102 - the cheapest call
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 1, f"{directory}/stdout.log", flags, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, f"{directory}/stderr.log", flags, 0o600),
    ]
    argv = order["argv"]
    pid = os.posix_spawn(argv[0], argv, order["env"], file_actions=actions, setsid=True)
    children[pid] = order
    line = _encode_line({"type": "started", "run": order["run"], "job": order["job"], "pid": pid})
    os.write(journal, line)
    return line


def _reap(children: dict[int, dict[str, Any]], journal: int) -> bytes:
    output = b""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            break
        order = children.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        line = _encode_line(
            {"type": "exited", "run": order["run"], "job": order["job"], "code": code, "at": time.time()}
        )
        os.write(journal, line)
        output += line
    return output
