"""Killer inside the process that is to be killed: every point of it checks whether it is armed.

    crash.armed     POINT PASSES VICTIMS NUMBER      written by the test, renamed by the point that kills
    crash.hit       the same, after the kill

It kills with SIGKILL, from the very thread that reached the point. If both processes are to die, the other is killed
first.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.crash import history
from tests.crash.point import POINTS, Point

ARMED = "crash.armed"
HIT = "crash.hit"

_passes: Counter[str] = Counter()


def install(process: str) -> None:
    home = Path(os.environ["ROTA_HOME"])
    for point in POINTS:
        if point.process == process:
            _install_point(point, home)


def _install_point(point: Point, home: Path) -> None:
    """Replace the function where the table names it. A module that imported it by name keeps the original."""
    module, _, path = point.function.partition(":")
    *outer, name = path.split(".")
    owner = functools.reduce(getattr, outer, importlib.import_module(module))
    setattr(owner, name, _wrap(getattr(owner, name), point, home))


def _wrap(function: Callable[..., Any], point: Point, home: Path) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if point.when == "before":
            _check_point(point, home, arguments, None)
            return function(*arguments, **options)
        lines = list(arguments[1].outgoing) if point.has_sent_lines else []
        result = function(*arguments, **options)
        if lines and not arguments[1].outgoing:  # everything is sent
            arguments = (SentLines(lines), *arguments[1:])
        _check_point(point, home, arguments, result)
        return result

    return call


class SentLines:
    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines


def _check_point(point: Point, home: Path, arguments: Any, result: Any) -> None:
    try:
        armed = (home / ARMED).read_text()
    except FileNotFoundError:
        return
    name, passes, victims, _number = armed.split()
    if name != point.name or (run := point.find_run(arguments, result)) is None:
        return
    _passes[armed] += 1
    if _passes[armed] <= int(passes):
        return
    with suppress(FileNotFoundError):  # another thread or process was faster
        (home / ARMED).rename(home / HIT)
        _kill(point, home, victims, run)


def _kill(point: Point, home: Path, victims: str, run: int) -> None:
    processes = [point.process, "supervisor" if point.process == "scheduler" else "scheduler"]
    for process in processes if victims == "both" else processes[:1]:
        history.record(home, "kill", process, f"{point.name}/{run}")
    if victims == "both":
        for pid in history.find_processes(home, processes[1]):
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
