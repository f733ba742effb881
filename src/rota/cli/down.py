"""`rota down`: stop the scheduler and stay until it is gone.

Its process is watched by a pidfd: the one sign of its end that can neither come early nor be mistaken. Jobs that
outlast the grace period are not killed; the supervisor keeps them, and they are named here. With `--kill` they are
ended, and the scheduler stays until the last of them is gone.
"""

from __future__ import annotations

import argparse
import os
import select
import time
from contextlib import suppress
from pathlib import Path

from rota.cli.field import label
from rota.cli.parser import seconds
from rota.cli.terminal import say_json, talk
from rota.client.ask.job import list_jobs
from rota.client.ask.scheduler import health, stop
from rota.client.ask.slot import list_slots
from rota.client.problem import Broken, NotRunning
from rota.client.session import Session
from rota.errors import RotaError, Unavailable
from rota.home import Home, find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json

_LOOK_EVERY = 0.5
_SILENCE = 30.0
"""Seconds for which it may live on without answering before we stop waiting: it may be writing its last words."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--grace", metavar="D", help="how long running jobs may take to finish; 30s unless configured")
    parser.add_argument("--kill", action="store_true", help="end what still runs then: FAILED, stopped by shutdown")


def run(args: argparse.Namespace) -> int:
    seconds(args.grace)  # A wrong duration is refused before anything is stopped.
    home = find_home(args.home)
    session = Session(home, starts=False)
    try:
        pid = int(session.ask(health())["pid"])
        descriptor = os.pidfd_open(pid)
    except (NotRunning, ProcessLookupError):
        return _report(args, stopped=False, left=[])
    try:
        running = _running(session)
        _ask_to_stop(session, args.grace, kill=args.kill)
        running = _await_end(session, home, pid, descriptor, running)
    finally:
        os.close(descriptor)
    return _report(args, stopped=True, left=[job for job in running or () if _lives(job)])


def _ask_to_stop(session: Session, grace: str | None, *, kill: bool) -> None:
    with suppress(Broken, NotRunning):  # Then it was already on its way.
        session.ask(stop(grace=grace, kill=kill))


def _await_end(session: Session, home: Home, pid: int, descriptor: int, running: list[Json] | None) -> list[Json]:
    """Wait for the process to end, saying for which jobs it waits; the jobs last seen running."""
    known = running or []
    heard = time.monotonic()
    told: list[str] = []
    while not select.select([descriptor], [], [], 0 if running and not told else _LOOK_EVERY)[0]:
        names = [f"{job['id']} ({label(job)})" for job in known]
        if names and names != told:
            talk(f"stopping; still running: {', '.join(names)}")
            told = names
        running = _running(session)
        if running is not None:
            known, heard = running, time.monotonic()
        elif time.monotonic() - heard > _SILENCE:
            raise Unavailable(
                f"the scheduler (pid {pid}) was told to stop and is still there; see {home.log},"
                f" then ask again or `kill -9 {pid}`: its jobs are kept"
            )
    return known


def _running(session: Session) -> list[Json] | None:
    """Jobs and direct executions that run now; None when the scheduler no longer says."""
    try:
        jobs: list[Json] = session.ask(list_jobs(status=("RUNNING",)))["jobs"]
        slots: list[Json] = [*session.pages(list_slots, "slots")]
    except RotaError:
        return None
    return jobs + [slot for slot in slots if slot["status"] == "RUNNING"]


def _lives(job: Json) -> bool:
    pid = job.get("pid")
    return pid is not None and Path(f"/proc/{int(pid)}").exists()


def _report(args: argparse.Namespace, *, stopped: bool, left: list[Json]) -> int:
    if args.json:
        say_json({"stopped": stopped, "left_running": [job["id"] for job in left]})
    elif not stopped:
        talk("not running")
    else:
        talk("stopped")
    for job in left:
        talk(f"left running: {job['id']} ({label(job)}), pid {job['pid']}; the next start adopts it")
    return 0
