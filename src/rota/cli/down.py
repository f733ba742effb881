"""`rota down`: stop the scheduler and wait until it and its supervisor have exited.

The lock tells whether a scheduler runs, not the socket, which may have been removed: the scheduler recreates it within
a second. A pidfd watches the process: this signal of its exit cannot come early and cannot refer to another process.
A scheduler that no request can reach, because something else is in the place of its socket, is stopped by a signal.
Jobs that outlast the grace period are not killed; the supervisor keeps them, and the command prints their names. With
`--kill` they are killed, and the scheduler exits after the last of them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

from rota.cli.confirm import DECLINED, add_confirmation, confirm, should_confirm, silence_notice
from rota.cli.parser import parse_seconds
from rota.cli.rendering import format_elapsed, label
from rota.cli.terminal import print_json, print_notice, print_text
from rota.client.problem import ConnectionBroken, NotRunning
from rota.client.requests.control import get_health, stop
from rota.client.requests.direct import list_reservations
from rota.client.requests.jobs import list_jobs
from rota.client.session import SchedulerSession
from rota.errors import RotaError, ServiceUnavailable
from rota.home import Home, await_removed_lock, find_home, holder_pid, is_held
from rota.ids import parse_job_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.requests import Json

_POLL_INTERVAL = 0.5
_RETRY_INTERVAL = 0.02
_SOCKET_TIMEOUT = 10.0
"""Seconds for which a process may hold the lock without listening."""
_SUPERVISOR_EXIT_TIMEOUT = 15.0
"""Seconds for which a supervisor without runs may outlive a stopped scheduler. A supervisor that waited for the lock of
its predecessor takes ten seconds to notice that no scheduler connects."""
_SUPERVISOR_LINGER_TIMEOUT = 3.0
"""Seconds for which a supervisor without runs waits for the next scheduler after the last one was killed."""
_RUN_END_TYPES = ("exited", "failed_to_start", "acknowledged")
"""Types of journal records that end a run."""
_KILLED_REASON = "stopped by shutdown"
"""Reason of a job that was killed because of `--kill`."""
_SILENCE_TIMEOUT = 30.0
"""Seconds for which the scheduler may run without responding before the command stops progress."""


def add_down_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--grace", metavar="DURATION", help="Give running jobs DURATION to finish (default: scheduler.grace, 30s)."
    )
    parser.add_argument("--kill", action="store_true", help="Kill the jobs that still run after the grace period.")
    add_confirmation(parser)


def run_down(args: argparse.Namespace) -> int:
    parse_seconds(args.grace)  # refuse an invalid duration before anything is stopped
    home = find_home(args.home)
    session = SchedulerSession(home, autostart=False)
    await_removed_lock(home)
    was_held = is_held(home.lock)
    _check_suspended(home, resumes=args.kill and not args.dry_run)
    if args.dry_run:
        return _dry_run(args, session, home)
    try:
        pid = _find_scheduler(session, home)
        if should_confirm(args) and not _confirm(session, kill=args.kill):
            return DECLINED
        descriptor = os.pidfd_open(pid)
    except (NotRunning, ProcessLookupError):
        return _print_result(args, home, was_running=was_held, remaining=[])
    try:
        running = _list_running(session) or []
        started = time.monotonic()
        if session.has_answered:
            grace = _request_stop(session, args.grace, kill=args.kill)
        else:
            grace = _signal_stop(args, home, pid)
        progress = _StopProgress(session, started + grace, kill=args.kill)
        # Print immediately: a scheduler that kills the jobs can exit before the next request.
        progress.print_changes(running)
        answers_by = started if session.has_answered else started + grace
        running = _wait_for_exit(session, home, pid, descriptor, running, progress, answers_by)
    finally:
        os.close(descriptor)
    remaining = _still_running(home, running)
    progress.print_killed(home, remaining)
    return _print_result(args, home, was_running=True, remaining=remaining, silence=progress.silence)


def _dry_run(args: argparse.Namespace, session: SchedulerSession, home: Home) -> int:
    try:
        pid = _find_scheduler(session, home)
    except NotRunning:
        kept = list_supervised(home)
        if args.json:
            print_json({"dry_run": True, "pid": None, "running": kept})
        elif kept:
            names = f"its supervisor still runs {', '.join(kept)}"
            print_notice(f"no scheduler is running; {names}: `rota up` adopts {_pronoun(kept)}")
        else:
            print_notice("not running")
        return 0
    running = _list_running(session) or []
    grace = _grace_seconds(args, home)
    if args.json:
        plan = {"dry_run": True, "pid": pid, "grace": f"{grace:g}s", "kill": args.kill}
        print_json({**plan, "running": [job["id"] for job in running]})
        return 0
    print_text(f"would stop the scheduler (pid {pid})")
    for job in running:
        print_text(
            f"would wait up to {format_elapsed(math.ceil(grace))} for {_job_name(job)},"
            f" then {_last_step(kill=args.kill)}"
        )
    return 0


def _grace_seconds(args: argparse.Namespace, home: Home) -> float:
    return _configured_grace(home) if args.grace is None else parse_seconds(args.grace) or 0.0


def _configured_grace(home: Home) -> float:
    from rota.config import load

    return load(home.config).scheduler.grace.total_seconds()


def _last_step(*, kill: bool) -> str:
    return "kill it" if kill else "leave it running for the next scheduler"


def _confirm(session: SchedulerSession, *, kill: bool) -> bool:
    """Ask before the scheduler is stopped under more than one running job."""
    running = _list_running(session) or []
    then = "is killed" if kill else "continues under the supervisor, and the next scheduler adopts it"
    lines = [f"{_job_name(job)} is running; if it does not end within the grace period, it {then}" for job in running]
    return len(running) <= 1 or confirm(f"stop the scheduler while {len(running):,} jobs run?", lines)


def _job_name(job: Json) -> str:
    return f"{job['id']} ({label(job)})"


def _lock_holder(home: Home) -> int | None:
    """Return the pid of the scheduler that holds the lock. Return None if a command holds it, or if the pid in the file
    cannot be verified: it may be of another process."""
    pid = holder_pid(home.lock)
    process = Path("/proc") / pid
    try:
        is_scheduler = pid.isdecimal() and b"serve" in (process / "cmdline").read_bytes().split(b"\0")
        descriptors = list((process / "fd").iterdir()) if is_scheduler and is_held(home.lock) else []
    except OSError:
        return None
    for descriptor in descriptors:
        with suppress(OSError):
            if descriptor.samefile(home.lock):
                return int(pid)
    return None


def _check_suspended(home: Home, *, resumes: bool) -> None:
    """Refuse to wait for a scheduler that is suspended by a signal, or resume it."""
    pid = _lock_holder(home)
    if pid is None or not _is_suspended(pid):
        return
    if not resumes:
        raise ServiceUnavailable(
            f"the scheduler (pid {pid}) is suspended by a signal and cannot stop;"
            f" resume it with `kill -CONT {pid}`, or use `rota down --kill`, which also kills its jobs"
        )
    print_notice(f"resuming the scheduler (pid {pid}), which was suspended by a signal")
    os.kill(pid, signal.SIGCONT)


def _is_suspended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except OSError:
        return False


def _signal_stop(args: argparse.Namespace, home: Home, pid: int) -> float:
    """Stop a scheduler that no request can reach. Return the seconds that running jobs have to finish."""
    state = "is not its socket" if home.socket.exists() else "is missing"
    options = "; --grace and --kill have no effect" if args.grace is not None or args.kill else ""
    print_notice(f"the scheduler (pid {pid}) cannot be reached: {home.socket} {state}; sending SIGTERM{options}")
    os.kill(pid, signal.SIGTERM)
    return _configured_grace(home)


def _find_scheduler(session: SchedulerSession, home: Home) -> int:
    """Return the pid of the scheduler. Wait for a scheduler that holds the lock but does not listen: it is starting,
    exiting or recreating its socket. If it cannot do so, it is found by its lock, and the session has no answer."""
    deadline = time.monotonic() + _SOCKET_TIMEOUT
    while True:
        try:
            return int(session.request_json(get_health())["pid"])
        except NotRunning:
            if not is_held(home.lock):
                raise
        is_late = time.monotonic() >= deadline
        if (is_late or home.socket.is_dir()) and (holder := _lock_holder(home)) is not None:
            return holder
        if is_late:
            pid = holder_pid(home.lock)
            raise ServiceUnavailable(
                f"pid {pid} holds {home.lock} but does not listen on {home.socket}; see {home.log}."
                f" `kill {pid}` stops a scheduler cleanly"
            )
        time.sleep(_RETRY_INTERVAL)


def _request_stop(session: SchedulerSession, grace: str | None, *, kill: bool) -> float:
    """Request the stop and return the seconds that running jobs have to finish."""
    with suppress(ConnectionBroken, NotRunning):  # it is already stopping
        return parse_seconds(session.request_json(stop(grace=grace, kill=kill))["grace"]) or 0.0
    return 0.0


class _StopProgress:
    """Printer of the jobs that the scheduler waits for, and for how long; one message for each change."""

    def __init__(self, session: SchedulerSession, deadline: float, *, kill: bool) -> None:
        self._session = session
        self.silence = ""
        """Notice of the scheduler that the supervisor does not respond."""
        self._deadline = deadline
        self._kill = kill
        self._killable: dict[str, Json] = {}
        """Jobs, by ID, that were observed running at the end of the grace period or later."""
        self._announced_kills: list[str] = []
        """Names of jobs whose kill has been announced."""
        self._last_state: tuple[list[str], bool, str] = ([], False, "")

    def print_changes(self, running: list[Json]) -> None:
        names = [_job_name(job) for job in running]
        left = self._deadline - time.monotonic()
        if left > 0:  # what ends before the deadline is not killed
            self._killable.clear()
        self._killable.update((job["id"], job) for job in running)
        silence = silence_notice(self._session)
        self.silence = self.silence if silence is None else silence
        if not names or (names, left <= 0, self.silence) == self._last_state:
            return
        self._last_state = (names, left <= 0, self.silence)
        if self.silence:
            print_notice(f"stopping; waiting for {', '.join(names)}; {self.silence}")
        elif left > 0:
            then = "killing what still runs" if self._kill else "leaving what still runs to the supervisor"
            print_notice(
                f"stopping; waiting up to {format_elapsed(math.ceil(left))} for {', '.join(names)}, then {then}"
            )
        elif self._kill:
            print_notice(f"stopping; killing {', '.join(names)}")
            self._announced_kills += names

    def print_killed(self, home: Home, remaining: list[Json]) -> None:
        """Print the killed jobs that were not announced: a job can end between two polls."""
        if not self._kill or time.monotonic() < self._deadline:
            return
        spared = {job["id"] for job in remaining}
        killed = [job for job in self._killable.values() if job["id"] not in spared and _was_killed(home, job)]
        names = [name for name in map(_job_name, killed) if name not in self._announced_kills]
        if names:
            print_notice(f"killed {', '.join(names)}")


def _wait_for_exit(
    session: SchedulerSession,
    home: Home,
    pid: int,
    descriptor: int,
    last_running: list[Json],
    progress: _StopProgress,
    answers_by: float,
) -> list[Json]:
    """Wait for the process to exit, print the jobs it waits for, and return the jobs last observed running. Until
    `answers_by`, the scheduler need not respond."""
    received = max(time.monotonic(), answers_by)
    while True:
        running = _list_running(session)  # also immediately: a job may have started in the meantime
        if running is not None:
            last_running, received = running, time.monotonic()
        progress.print_changes(last_running)
        if select.select([descriptor], [], [], _POLL_INTERVAL)[0]:
            return last_running
        if time.monotonic() - received > _SILENCE_TIMEOUT:
            raise ServiceUnavailable(
                f"the scheduler (pid {pid}) has not exited yet; see {home.log},"
                f" then retry `rota down` or run `kill -9 {pid}`: its jobs are kept"
            )


def _list_running(session: SchedulerSession) -> list[Json] | None:
    """Return the running jobs and direct executions, or None if the scheduler does not respond."""
    try:
        jobs: list[Json] = session.request_json(list_jobs(status=("RUNNING",)))["jobs"]
        reservations: list[Json] = [*session.pages(list_reservations, "reservations")]
    except RotaError:
        return None
    return jobs + [item for item in reservations if item["status"] == "RUNNING"]


def _still_running(home: Home, running: list[Json]) -> list[Json]:
    """Return the jobs, last observed running, that continue without the scheduler. A job with an unconfirmed start
    belongs to the supervisor as long as a supervisor runs. A direct execution without a command has no process."""
    has_supervisor = is_held(home.supervisor_lock)
    latest = [_latest_record(home, job) for job in running if job.get("command")]
    return [
        job for job in latest if job["status"] == "RUNNING" and (_is_alive(job) if job.get("pid") else has_supervisor)
    ]


def _latest_record(home: Home, job: Json) -> Json:
    """Return the job, or its stored record if it was last observed without a pid."""
    return job if job.get("pid") else _stored_record(home, job)


def _stored_record(home: Home, job: Json) -> Json:
    """Return the job from its files if they describe the same run. A direct execution has no files."""
    if "run" not in job:
        return job
    try:
        stored: Json = json.loads((home.jobs / str(parse_job_id(job["id"])) / "job.json").read_bytes())
    except (OSError, ValueError):
        return job
    return stored if (stored.get("run") or {}).get("id") == (job["run"] or {}).get("id") else job


def _was_killed(home: Home, job: Json) -> bool:
    """Return whether a job that ran at the end of the grace period was killed. A direct execution has no such file."""
    return "run" not in job or _stored_record(home, job).get("reason") == _KILLED_REASON


def _is_alive(job: Json) -> bool:
    return Path(f"/proc/{int(job['pid'])}").exists()


def list_supervised(home: Home) -> list[str]:
    """Return the jobs and direct executions that a supervisor runs without a scheduler, from its journal."""
    if not is_held(home.supervisor_lock):
        return []
    directories: dict[int, Path] = {}
    with suppress(OSError):
        for line in home.supervisor_journal.read_bytes().splitlines():
            with suppress(ValueError, KeyError, TypeError):  # an incomplete or damaged line
                record = json.loads(line)
                if record["type"] == "starting":
                    directories[record["run"]] = Path(record["directory"])
                elif record["type"] in _RUN_END_TYPES:
                    directories.pop(record["run"], None)
    return [
        f"{'reservation' if directory.parent == home.reservations else 'job'}-{directory.name}"
        for directory in directories.values()
    ]


def _supervisor_outlives(home: Home, *, timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while is_held(home.supervisor_lock):
        if time.monotonic() >= deadline:
            return True
        time.sleep(_RETRY_INTERVAL)
    return False


def _print_result(
    args: argparse.Namespace, home: Home, *, was_running: bool, remaining: list[Json], silence: str = ""
) -> int:
    """Print `stopped` only if the scheduler and the supervisor have exited and no job was left running."""
    remains = _supervisor_outlives(
        home, timeout=0 if remaining else _SUPERVISOR_EXIT_TIMEOUT if was_running else _SUPERVISOR_LINGER_TIMEOUT
    )
    stopped = was_running and not remaining and not remains
    if args.json:
        print_json({"stopped": stopped, "left_running": [job["id"] for job in remaining]})
    elif not remains and not remaining:
        print_notice("stopped" if was_running else "not running")
    else:
        print_notice("the scheduler has stopped" if was_running else "no scheduler is running")
    for job in remaining:
        print_notice(f"left running: {_job_name(job)}, {_describe_adoption(job)}")
    if remains and not remaining:
        kept = list_supervised(home)
        state = f"still runs {', '.join(kept)}" if kept else "still runs and may keep running jobs"
        print_notice(
            f"its supervisor {state}: `rota up` adopts {_pronoun(kept)},"
            f" then `rota down --kill` ends {_pronoun(kept)}; see {home.supervisor_log}"
        )
    if remains and silence:
        print_notice(silence)
    if remains and remaining:
        return 1 if silence else 0
    return 1 if remains and (was_running or args.kill) else 0


def _pronoun(jobs: list[str]) -> str:
    return "it" if len(jobs) == 1 else "them"


def _describe_adoption(job: Json) -> str:
    if job.get("pid"):
        return f"pid {job['pid']}; the next scheduler adopts it"
    return "its start is not confirmed yet; the next scheduler adopts it, or queues it again if it never started"
