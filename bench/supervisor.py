"""Benchmark of the supervisor in runs per second, as a ratio to plain `posix_spawn` measured at the same time.

python -m bench.supervisor [runs] [rounds]
"""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
import time
from pathlib import Path

from rota.executor.local import LocalExecutor
from rota.executor.port import AcknowledgeOrder, EnvironmentUpload, ExecutorOrder, ExitReport, StartFailure, StartOrder
from rota.ids import JobId, RunId


def measure_spawn(count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        pid = os.posix_spawn("/bin/true", ["true"], os.environ)
        os.waitid(os.P_PID, pid, os.WEXITED)
    return count / (time.perf_counter() - started)


def measure_supervisor(executor: LocalExecutor, home: Path, first: int, count: int, concurrency: int) -> float:
    started = time.perf_counter()
    sent = done = 0
    orders: list[ExecutorOrder] = []
    while done < count:
        while sent < count and sent - done < concurrency:
            number = first + sent
            directory = f"{home}/jobs/job-{number}"
            orders.append(
                StartOrder(
                    run=RunId(number),
                    job=JobId(number),
                    argv=["/bin/true"],
                    cwd="/",
                    environment_id=1,
                    overlay={"ROTA_JOB": f"job-{number}"},
                    directory=directory,
                )
            )
            sent += 1
        executor.send(orders)
        orders = []
        select.select([executor], [], [], 10)
        for message in executor.receive():
            if isinstance(message, StartFailure):
                raise SystemExit(message.error)
            if isinstance(message, ExitReport):
                done += 1
                orders.append(AcknowledgeOrder(run=message.run))
    executor.send(orders)
    return count / (time.perf_counter() - started)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "jobs").mkdir()
        executor = LocalExecutor(home, 1)
        executor.receive()
        executor.send([EnvironmentUpload(environment_id=1, variables=dict(os.environ))])
        first = 1
        for _ in range(rounds):
            spawn_rate = measure_spawn(count)
            rates = []
            for concurrency in (1, 2, 4, 8):
                rates.append((concurrency, measure_supervisor(executor, home, first, count, concurrency)))
                first += count
            columns = "  ".join(f"c{c} {rate:.0f}/s r{rate / spawn_rate:.2f}" for c, rate in rates)
            print(f"spawn {spawn_rate:.0f}/s  {columns}")
        status = Path(f"/proc/{executor.supervisor_pid}/status").read_text()
        print(next(line for line in status.splitlines() if line.startswith("VmRSS")))
        executor.close()
        os.kill(executor.supervisor_pid, signal.SIGTERM)


if __name__ == "__main__":
    main()
