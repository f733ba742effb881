"""Metrics of the scheduler process, with the standard Prometheus names."""

from __future__ import annotations

import os
import platform
import resource
import time
from functools import lru_cache
from pathlib import Path

from rota import __version__
from rota.metric import ExternalCounter, Gauge, Info, Metric

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_process_metrics() -> list[Metric]:
    pages = [int(count) for count in (_PROC / "self/statm").read_text().split()]
    with os.scandir(_PROC / "self/fd") as entries:
        descriptors = sum(1 for _ in entries) - 1  # without the descriptor of this scan
    return [
        Info(
            "rota_build_info",
            "Version of Rota and Python. Always 1.",
            ("version", "python"),
            {(__version__, platform.python_version()): 1},
        ),
        Gauge("process_start_time_seconds", "Start time of the process since the Unix epoch.", (), {(): _start_time()}),
        ExternalCounter("process_cpu_seconds", "CPU time that the process has used.", (), {(): time.process_time()}),
        Gauge("process_virtual_memory_bytes", "Virtual memory size.", (), {(): pages[0] * _PAGE_BYTES}),
        Gauge("process_resident_memory_bytes", "Resident memory size.", (), {(): pages[1] * _PAGE_BYTES}),
        Gauge("process_open_fds", "Open file descriptors.", (), {(): descriptors}),
        Gauge(
            "process_max_fds",
            "Maximum number of open file descriptors.",
            (),
            {(): resource.getrlimit(resource.RLIMIT_NOFILE)[0]},
        ),
    ]


@lru_cache(maxsize=1)
def _start_time() -> float:
    """Return the start time: field 22 of `stat`, counted from boot. The name before it can contain spaces."""
    after_name = (_PROC / "self/stat").read_text().rpartition(")")[2].split()
    booted = next(line for line in (_PROC / "stat").read_text().splitlines() if line.startswith("btime "))
    return int(booted.split()[1]) + int(after_name[19]) / os.sysconf("SC_CLK_TCK")
