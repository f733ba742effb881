"""How many runs a second the supervisor does, as a ratio to bare `posix_spawn` measured in the same minute.

python tests/executor/rate.py [runs] [rounds]
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
from rota.executor.port import Acknowledge, Environment, Exited, FailedToStart, Order, Start
from rota.ids import JobId, RunId


def bare(count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        pid = os.posix_spawn("/bin/true", ["true"], os.environ)
        os.waitid(os.P_PID, pid, os.WEXITED)
    return count / (time.perf_counter() - begun)


def supervised(executor: LocalExecutor, home: Path, first: int, count: int, concurrency: int) -> float:
    begun = time.perf_counter()
    sent = done = 0
    orders: list[Order] = []
    while done < count:
        while sent < count and sent - done < concurrency:
            number = first + sent
            directory = f"{home}/jobs/job-{number}"
            orders.append(
                Start(
                    run=RunId(number),
                    job=JobId(number),
                    argv=["/bin/true"],
                    cwd="/",
                    surroundings=1,
                    overlay={"ROTA_JOB": f"job-{number}"},
                    directory=directory,
                )
            )
            sent += 1
        executor.send(orders)
        orders = []
        select.select([executor], [], [], 10)
        for message in executor.receive():
            if isinstance(message, FailedToStart):
                raise SystemExit(message.error)
            if isinstance(message, Exited):
                done += 1
                orders.append(Acknowledge(run=message.run))
    executor.send(orders)
    return count / (time.perf_counter() - begun)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "jobs").mkdir()
        executor = LocalExecutor(home, 1)
        executor.receive()
        executor.send([Environment(surroundings=1, variables=dict(os.environ))])
        first = 1
        for _ in range(rounds):
            limit = bare(count)
            rates = []
            for concurrency in (1, 2, 4, 8):
                rates.append((concurrency, supervised(executor, home, first, count, concurrency)))
                first += count
            shown = "  ".join(f"c{c} {rate:.0f}/s r{rate / limit:.2f}" for c, rate in rates)
            print(f"bare {limit:.0f}/s  {shown}")
        status = Path(f"/proc/{executor.supervisor_pid}/status").read_text()
        print(next(line for line in status.splitlines() if line.startswith("VmRSS")))
        executor.close()
        os.kill(executor.supervisor_pid, signal.SIGTERM)


if __name__ == "__main__":
    main()
