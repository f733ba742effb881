"""History of what really happened: lines in their order, written by the children and by the killers.

    TIME begin LABEL RUN JOB PID -      by a child
    TIME end LABEL RUN JOB PID CODE
    TIME kill PROCESS - - - POINT/RUN   by the killer, just before the kill

Each line is one write to an append-only file, so the order of the lines is the order of events: a child that ended
before another began has its line before that one's.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

FILE = "crash.history"

CHILD = """#!/bin/sh
# LABEL SECONDS CODE: record the begin, sleep, record the end, and exit with the code. CODE may be:
#   flaky     7 the first time, 0 from then on
#   long      0, and fifteen seconds the first time
#   leaves    0, and a process in its own session is left behind
# In a worktree it also writes a file, for the patch.
record() {{ echo "- $1 $label $ROTA_RUN ${{ROTA_JOB:--}} $$ $2" >> "{home}/{file}"; }}
label=$1 seconds=$2 code=$3
trap 'record end 143; exit 143' TERM
record begin -
case $PWD in */worktrees/job-*) echo "made by $ROTA_RUN" > made ;; esac
case $code in
    flaky) code=0; mkdir "{home}/first-$label" 2> /dev/null && code=7 ;;
    long) code=0; mkdir "{home}/first-$label" 2> /dev/null && seconds=15 ;;
    leaves) code=0; setsid sleep 20 & ;;
esac
sleep "$seconds"
trap '' TERM
record end "$code"
exit "$code"
"""


class Line(NamedTuple):
    at: float | None
    kind: str
    label: str
    run: str
    job: str
    pid: str
    code: str


def program_path(home: Path) -> Path:
    return home / "crash.child"


def install_program(home: Path) -> None:
    """Write the program once, before any child starts: a shell reads its script while it runs."""
    program_path(home).write_text(CHILD.format(home=home, file=FILE))
    program_path(home).chmod(0o755)


def record(home: Path, kind: str, process: str, text: str) -> None:
    descriptor = os.open(home / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(descriptor, f"{time.time()} {kind} {process} - - - {text}\n".encode())
    os.close(descriptor)


def read_lines(home: Path) -> list[Line]:
    lines = []
    with suppress(FileNotFoundError):
        for text in (home / FILE).read_text().splitlines():
            at, *fields = text.split(" ")
            lines.append(Line(None if at == "-" else float(at), *fields))
    return lines


def find_processes(home: Path, process: str) -> list[int]:
    """Return the pids of the schedulers or supervisors of this home. A child before its exec looks like its parent and
    is left out."""
    word = {"scheduler": "serve", "supervisor": "rota.supervisor"}[process]
    pids = {pid for pid, argv in find_home_processes(home).items() if word in argv}
    return [pid for pid in pids if _parent_pid(pid) not in pids]


def _parent_pid(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def find_home_processes(home: Path) -> dict[int, list[str]]:
    """Return pid and arguments of every live process with this home in its environment."""
    tag, processes = b"ROTA_HOME=" + os.fsencode(home), {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and tag in (entry / "environ").read_bytes().split(b"\0"):
                processes[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    return processes
