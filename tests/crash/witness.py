"""What really happened, written by those who did it, line by line in its order.

    TIME begin LABEL RUN JOB PID -      by a child
    TIME end LABEL RUN JOB PID CODE
    TIME kill PROCESS - - - POINT/RUN   by whoever kills, just before

One line is one write to a file that is only appended to, so the order of the lines is the order of what happened: a
child that ended before another began has its line before that one's.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

FILE = "crash.witness"

CHILD = """#!/bin/sh
# LABEL SECONDS CODE: say so, take that long, say so, leave with it. CODE may be:
#   flaky     7 the first time, 0 from then on
#   long      0, and fifteen seconds the first time
#   leaves    0, and something of it stays, in a session of its own
# In a worktree it leaves a file, too, for its patch.
say() {{ echo "- $1 $label $ROTA_RUN ${{ROTA_JOB:--}} $$ $2" >> "{home}/{file}"; }}
label=$1 seconds=$2 code=$3
trap 'say end 143; exit 143' TERM
say begin -
case $PWD in */worktrees/job-*) echo "made by $ROTA_RUN" > made ;; esac
case $code in
    flaky) code=0; mkdir "{home}/first-$label" 2> /dev/null && code=7 ;;
    long) code=0; mkdir "{home}/first-$label" 2> /dev/null && seconds=15 ;;
    leaves) code=0; setsid sleep 20 & ;;
esac
sleep "$seconds"
trap '' TERM
say end "$code"
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


def program(home: Path) -> Path:
    return home / "crash.child"


def put_program(home: Path) -> None:
    """Once, before any child is started: a shell reads its script while it is at it."""
    program(home).write_text(CHILD.format(home=home, file=FILE))
    program(home).chmod(0o755)


def mark(home: Path, kind: str, process: str, what: str) -> None:
    descriptor = os.open(home / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(descriptor, f"{time.time()} {kind} {process} - - - {what}\n".encode())
    os.close(descriptor)


def read(home: Path) -> list[Line]:
    lines = []
    with suppress(FileNotFoundError):
        for text in (home / FILE).read_text().splitlines():
            at, *fields = text.split(" ")
            lines.append(Line(None if at == "-" else float(at), *fields))
    return lines


def processes(home: Path, process: str) -> list[int]:
    """The schedulers or the supervisors of this home. A child that has not come to its own program yet looks like the
    one that makes it."""
    word = {"scheduler": "serve", "supervisor": "rota.executor.supervisor"}[process]
    found = {pid for pid, words in of_home(home).items() if word in words}
    return [pid for pid in found if _parent(pid) not in found]


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def of_home(home: Path) -> dict[int, list[str]]:
    """Everything alive that was started with this home in its environment: pid and arguments."""
    tag, found = b"ROTA_HOME=" + os.fsencode(home), {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and tag in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    return found
