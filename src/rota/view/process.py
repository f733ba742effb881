"""The scheduler's own process, as the kernel sees it, under the names that Prometheus has for any process."""

from __future__ import annotations

import os
import platform
import resource
import time
from functools import lru_cache
from pathlib import Path

from rota import __version__
from rota.metric import Gauge, Info, Metric, Total

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def process() -> list[Metric]:
    pages = [int(each) for each in (_PROC / "self/statm").read_text().split()]
    with os.scandir(_PROC / "self/fd") as found:
        descriptors = sum(1 for _ in found) - 1  # without the one that looks
    return [
        Info(
            "rota_build_info", "What runs: always 1.", ("version", "python"),
            {(__version__, platform.python_version()): 1},
        ),
        Gauge("process_start_time_seconds", "When the process started, since the epoch.", (), {(): _started()}),
        Total("process_cpu_seconds", "Processor time that the process has used.", (), {(): time.process_time()}),
        Gauge("process_virtual_memory_bytes", "Virtual memory.", (), {(): pages[0] * _PAGE}),
        Gauge("process_resident_memory_bytes", "Resident memory.", (), {(): pages[1] * _PAGE}),
        Gauge("process_open_fds", "Open file descriptors.", (), {(): descriptors}),
        Gauge("process_max_fds", "How many there may be.", (), {(): resource.getrlimit(resource.RLIMIT_NOFILE)[0]}),
    ]  # fmt: skip


@lru_cache(maxsize=1)
def _started() -> float:
    """Field 22 of its stat, which counts from the start of the machine. The name before it may have spaces."""
    after_name = (_PROC / "self/stat").read_text().rpartition(")")[2].split()
    booted = next(line for line in (_PROC / "stat").read_text().splitlines() if line.startswith("btime "))
    return int(booted.split()[1]) + int(after_name[19]) / os.sysconf("SC_CLK_TCK")
