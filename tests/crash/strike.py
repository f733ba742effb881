"""Inside the process that is to be killed: every point of it looks whether it is the one that is armed.

    crash.armed     POINT PASSES VICTIMS NUMBER      written by the test, taken away by the point that strikes
    crash.struck    the same, when it has

It kills with SIGKILL, from the very thread that has come to the point. Where both are to die the other goes first.
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

from crash import witness
from crash.point import POINTS, Point

ARMED = "crash.armed"
STRUCK = "crash.struck"

_passed: Counter[str] = Counter()


def put_up(process: str) -> None:
    home = Path(os.environ["ROTA_HOME"])
    for point in POINTS:
        if point.process == process:
            _surround(point, home)


def _surround(point: Point, home: Path) -> None:
    """Whoever imported the function by name has another one: it is replaced where the table says it is looked up."""
    module, _, path = point.place.partition(":")
    *outer, name = path.split(".")
    owner = functools.reduce(getattr, outer, importlib.import_module(module))
    setattr(owner, name, _surrounded(getattr(owner, name), point, home))


def _surrounded(act: Callable[..., Any], point: Point, home: Path) -> Callable[..., Any]:
    @functools.wraps(act)
    def acted(*arguments: Any, **options: Any) -> Any:
        if point.when == "before":
            _look(point, home, arguments, None)
            return act(*arguments, **options)
        told = list(getattr(arguments[1], "out", ())) if point.name.endswith(".told") else []
        result = act(*arguments, **options)
        if told and not arguments[1].out:  # what was left to be sent is sent
            arguments = (_Sent(told), *arguments[1:])
        _look(point, home, arguments, result)
        return result

    return acted


class _Sent:
    def __init__(self, lines: list[bytes]) -> None:
        self._before = lines


def _look(point: Point, home: Path, arguments: Any, result: Any) -> None:
    try:
        armed = (home / ARMED).read_text()
    except FileNotFoundError:
        return
    name, passes, victims, _number = armed.split()
    if name != point.name or (run := point.find(arguments, result)) is None:
        return
    _passed[armed] += 1
    if _passed[armed] <= int(passes):
        return
    with suppress(FileNotFoundError):  # another thread or process was faster
        (home / ARMED).rename(home / STRUCK)
        _strike(point, home, victims, run)


def _strike(point: Point, home: Path, victims: str, run: int) -> None:
    both = [point.process, "supervisor" if point.process == "scheduler" else "scheduler"]
    for process in both if victims == "both" else both[:1]:
        witness.mark(home, "kill", process, f"{point.name}/{run}")
    if victims == "both":
        for pid in witness.processes(home, both[1]):
            os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
