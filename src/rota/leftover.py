"""What a run left in its job's directory, set aside under its number, so that the next one begins with empty logs.

    jobs/7/stdout.log   ──▶ jobs/7/runs/12/stdout.log      every log, and the session
    jobs/7/outcome.json ──▶ gone                           so is the patch; the job's input stays

Done as soon as a job is rewound, and once more by who starts it, before its files are opened: whatever was killed in
between, a run never writes behind another. Doing it twice is doing it once.
"""

# The supervisor loads this, and pathlib would cost it a megabyte:
# ruff: noqa: PTH103, PTH104, PTH108, PTH202, PTH208
from __future__ import annotations

import os

from rota.report import FILE as SESSION

OUTCOME = "outcome.json"
PATCH = "command.patch"
REMOVED = ".removed"
"""Among the jobs' directories, where those are that are being collected."""


def place_of(directory: str, run: int) -> str:
    """Where the logs of a run are that is not the job's current one."""
    return f"{directory}/runs/{run}"


def set_aside(directory: str, run: int) -> None:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        if not _take_back(directory):
            return
        names = os.listdir(directory)
    for name in (OUTCOME, PATCH):
        if name in names:
            os.unlink(f"{directory}/{name}")
    for name in names:
        if name.endswith(".log") or name == SESSION:
            _keep(directory, name, place_of(directory, run))


def _take_back(directory: str) -> bool:
    """A collection that has just taken it away will find that it was rewound; until then the files are there."""
    parent, name = os.path.split(directory)
    try:
        os.rename(f"{parent}/{REMOVED}/{name}", directory)
    except OSError:
        return False
    return True


def _keep(directory: str, name: str, place: str) -> None:
    """Nothing that was kept is replaced; what is empty need not be kept twice."""
    target, number = f"{place}/{name}", 0
    while os.path.lexists(target):
        if not os.path.getsize(f"{directory}/{name}"):
            return
        number += 1
        target = f"{place}/{name}.{number}"
    os.makedirs(place, 0o700, exist_ok=True)
    os.rename(f"{directory}/{name}", target)
