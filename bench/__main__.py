"""`make bench`: measure everything in one run, interleaved, and write it down as ratios."""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from bench import flow, listen, peer, postgres, scale
from bench.desk import Desk
from bench.floor import Floor, bare_spawns
from bench.live import Rota
from bench.loop import Loop
from bench.measure import ROUNDS, figure, interleave, ratios, shown
from rota.store.port import Store
from rota.store.postgres.store import PostgresStore
from rota.store.sqlite.store import SqliteStore

_SPAWNS = 300
_COMMANDS = 300
_LOOP = "a bare loop of the same shape"
_DESK = "floor"


class Report:
    def __init__(self) -> None:
        self._parts: list[str] = []

    def table(self, title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
        lines = [f"## {title}", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        self._parts.append("\n".join(lines) + "\n")
        print("\n".join(lines) + "\n", flush=True)

    def say(self, text: str) -> None:
        self._parts.append(text)

    def text(self) -> str:
        return "\n".join(self._parts)


@contextmanager
def rota_in(directory: Path, config: str = "", name: str = "home") -> Iterator[Rota]:
    rota = Rota(directory / name, config)
    try:
        yield rota
    finally:
        rota.stop()


@contextmanager
def rotas_in(directory: Path) -> Iterator[dict[str, Rota]]:
    """One on each database that is to be had."""
    with ExitStack() as stack:
        rotas = {"Rota": stack.enter_context(rota_in(directory))}
        if postgres.available(directory):
            server = postgres.Server(directory / "server")
            server.found()
            stack.enter_context(server.running())
            config = f'[store]\nurl = "{server.url}"\n'
            rotas["Rota (PostgreSQL)"] = stack.enter_context(rota_in(directory, config, "home-postgres"))
        yield rotas


def commands(report: Report, directory: Path, rounds: int) -> None:
    floor, loop = Floor(directory), Loop(directory / "loop")
    with rotas_in(directory) as rotas, closing(loop):
        cases: dict[str, Callable[[], float]] = {"bare": lambda: bare_spawns(_SPAWNS)}
        for c in (1, 4):
            count = _count(c)
            cases[f"floor {c}"] = partial(floor.commands, count, c)
            cases[f"{_LOOP} {c}"] = partial(loop.commands, count, c)
            cases |= {f"{name} {c}": partial(rota.commands, count, c) for name, rota in rotas.items()}
        peers = peer.available(directory)
        for name, run in peers.items():
            for c in (1, 4):
                cases[f"{name} {c}"] = partial(run, _count(c), c)
        results = interleave(cases, rounds)
    rows = []
    for name in (*rotas, _LOOP, "floor", *peers):
        for c in (1, 4):
            case = f"{name} {c}"
            rows.append((name, str(c), str(figure(results[case])), str(ratios(results, case, f"floor {c}")),
                         str(ratios(results, case, "bare"))))  # fmt: skip
    rows.append(("bare posix_spawn", "1", str(figure(results["bare"])), "", "1.00"))
    columns = ("what", "concurrency", "commands a second", "against the floor", "against bare spawns")
    report.table("Commands (`/bin/true`)", columns, rows)
    report.say(_PEERS)


def _count(concurrency: int) -> int:
    return _COMMANDS if concurrency == 1 else 2 * _COMMANDS


def submits(report: Report, directory: Path, rounds: int) -> None:
    hows: dict[str, Callable[[Rota | Desk], float]] = {
        "in batches of 5,000": lambda asked: asked.batch_submits(5_000),
        "one by one, 8 client processes": lambda asked: asked.single_submits(2_400, 8),
        "one by one, 32 client processes": lambda asked: asked.single_submits(2_400, 32),
        "one by one, 32 connections of one process": lambda asked: asked.connected_submits(2_400, 32),
    }
    with rotas_in(directory) as rotas, closing(Desk(directory / "desk")) as desk:
        asked: dict[str, Rota | Desk] = {**rotas, _DESK: desk}
        cases = {f"{name}|{how}": partial(submit, one) for name, one in asked.items() for how, submit in hows.items()}
        results = interleave(cases, rounds)
    rows = [
        (*case.split("|"), str(figure(values)), str(ratios(results, case, f"{_DESK}|{case.partition('|')[2]}")))
        for case, values in results.items()
    ]
    report.table("Durable submits over the socket", ("what", "how", "a second", "against the floor"), rows)
    report.say(_DESKS)


def latency(report: Report, directory: Path, rounds: int) -> None:
    fifo = directory / "fifo"
    os.mkfifo(fifo)
    with rotas_in(directory) as rotas:
        cases: dict[str, Callable[[int, Path], list[float]]] = {name: rota.latencies for name, rota in rotas.items()}
        cases["the same shell, spawned directly"] = _direct_latencies
        taken: dict[str, list[float]] = {name: [] for name in cases}
        for n in range(rounds + 1):
            for name, measure in cases.items():
                values = measure(60, fifo)
                taken[name] += values if n else []  # the first round warms up
    rows = [
        (name, f"{statistics.median(values):.2f} ms", f"{sorted(values)[int(len(values) * 0.99)]:.2f} ms")
        for name, values in taken.items()
    ]
    report.table("From request to the child's first act, idle scheduler", ("what", "p50", "p99"), rows)


def reading(report: Report, directory: Path, rounds: int) -> None:
    with rota_in(directory) as rota:
        taken: dict[tuple[str, bool], list[float]] = {(name, busy): [] for name in flow.READS for busy in (False, True)}
        flowed = []
        for n in range(rounds + 1):
            for busy in (False, True):
                found = flow.reads(rota, 60, is_busy=busy)
                flowed += [found.flowed] if n and busy else []
                for name, values in found.milliseconds.items():
                    taken[name, busy] += values if n else []  # the first round warms up
    rows = [
        (name, f"{figure(flowed)} jobs a second flow" if busy else "idle", f"{statistics.median(values):.2f} ms",
         f"{sorted(values)[int(len(values) * 0.99)]:.2f} ms")
        for (name, busy), values in taken.items()
    ]  # fmt: skip
    report.table("Reads over the socket, one after another", ("what", "while", "p50", "p99"), rows)


def listening(report: Report, directory: Path, rounds: int) -> None:
    with rota_in(directory) as rota:
        results = interleave({case: partial(listen.commands, rota, _COMMANDS, case) for case in listen.CASES}, rounds)
    rows = [(case, str(figure(values)), str(ratios(results, case, "nobody"))) for case, values in results.items()]
    columns = ("listeners", "commands a second, 4 at a time", "against nobody")
    report.table("Commands while somebody listens to events", columns, rows)


def _direct_latencies(count: int, fifo: Path) -> list[float]:
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        pid = os.posix_spawn("/bin/sh", ["/bin/sh", "-c", f": > '{fifo}'"], {})
        with fifo.open("rb") as reading:
            reading.read()
        taken.append((time.perf_counter() - begun) * 1000)
        os.waitpid(pid, 0)
    return taken


def scaling(report: Report, directory: Path, rounds: int) -> None:
    with ExitStack() as stack:
        stores: dict[str, Callable[[Path], Store]] = {"SQLite": lambda place: SqliteStore(place / "rota.db")}
        if postgres.available(directory):
            server = postgres.Server(directory / "server")
            server.found()
            stack.enter_context(server.running())
            numbers = itertools.count()
            stores["PostgreSQL"] = lambda _: PostgresStore(f"{server.url}&search_path=scale_{next(numbers)}")
        _scaling(report, directory, rounds, stores)


def _scaling(report: Report, directory: Path, rounds: int, stores: dict[str, Callable[[Path], Store]]) -> None:
    rows = []
    for store, make in stores.items():
        for shape, (jobs, sizes) in scale.SHAPES.items():
            small, large = _sizes(store, shape)
            results: dict[int, list[float]] = {small: [], large: []}
            for n in range(rounds if store == "SQLite" else 3):
                for count, values in results.items():
                    place = directory / f"{store}-{shape.replace(' ', '-')}-{count}-{n}"
                    place.mkdir()
                    bench = scale.Bench(make(place), place, sizes)
                    bench.queue(jobs(count))
                    values.append(bench.per_job(_measured(shape, count)))
            ratio = figure([b / a for a, b in zip(results[small], results[large], strict=True)])
            rows.append(
                (store, shape, f"{large:,} / {small:,}", f"{shown(figure(results[small]).median)} µs", str(ratio))
            )
            print(rows[-1], flush=True)
    columns = ("store", "shape", "sizes", "a job at the smaller", "the larger against the smaller")
    report.table("A job's cost as the queue grows (without processes)", columns, rows)
    report.say(_ALONE)


def _sizes(store: str, shape: str) -> tuple[int, int]:
    """Over a server's socket a turn takes ten times as long, and is reported only."""
    if store == "SQLite":
        return 1_000, 100_000 if shape == "flat queue" else 10_000
    return (1_000, 10_000) if shape == "flat queue" else (300, 3_000)


def _measured(shape: str, count: int) -> int:
    """A fan is measured whole, since its cost lies in its ends; of the others, so many jobs of the queue."""
    return count if shape.startswith("fan") else min(90 if "pool" in shape else 500, count // 2)


def at_rest(report: Report, directory: Path, seconds: float) -> None:
    with rota_in(directory) as rota:
        rota.limit(0)
        rota.queue(100_000)
        rota.stop()
        start = rota.start()
        rota.client.ask("GET", "/api/scheduler")
        pids = rota.processes()
        before = sum(map(_cpu, pids))
        time.sleep(seconds)
        busy = (sum(map(_cpu, pids)) - before) / seconds * 100
        memory = sum(map(_memory, pids))
    rows = [
        ("start with 100,000 queued jobs, until it answers", f"{start:.2f} s"),
        (f"CPU of both processes, idle for {seconds:g} s", f"{busy:.2f} %"),
        ("memory of both processes", f"{memory:.0f} MiB"),
    ]
    report.table("At rest", ("what", "measured"), rows)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )


_PEERS = """The floor is one process that spawns in a session of its own, makes a directory and two log files, and
commits once. The bare loop has Rota's two processes, its journal, its rows and its commits, and no feature at all: no
gate, no pool, no retry, nobody to answer. Both store in SQLite, whatever they are compared with. A server of its own
shares the cores with all else. Of the others only task-spooler keeps what a command wrote, and only in memory what is
queued; huey and Celery keep no record of a success.
"""

_ALONE = """Each job has turns of its own here: what starts several at once, or ahead of the next turn, is left out.
"""

_DESKS = """The floor is one process that reads the request, stores it as one row, with one commit for all that are
asked at the same time, and answers as much as Rota does: nothing is checked, and nothing comes of it. Its database is
SQLite. A process of its own for each client needs cores too, which the scheduler does without; one process that keeps
32 connections busy, as load generators do, needs little.
"""

_HEAD = """# Benchmarks

Written by `make bench`. A figure is the median of {rounds} rounds, with the middle half of them in brackets; the cases
of one table take turns within each round, and a ratio is taken round by round, so that what slows the machine down
slows both sides. Percentiles are of all rounds together, a server's queues are measured in three rounds, and what is
said of rest is seen once. All of Rota is on: logs, sessions, run and event rows, `synchronous=FULL` commits.

Measured on {machine}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", action="append", help="commands, submits, latency, reading, listening, scaling, rest")
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds at rest")
    parser.add_argument("--where", type=Path, help="a folder on the file system to measure")
    args = parser.parse_args()
    report = Report()
    parts: dict[str, Callable[[Path], None]] = {
        "commands": lambda place: commands(report, place, args.rounds),
        "submits": lambda place: submits(report, place, args.rounds),
        "latency": lambda place: latency(report, place, args.rounds),
        "reading": lambda place: reading(report, place, args.rounds),
        "listening": lambda place: listening(report, place, args.rounds),
        "scaling": lambda place: scaling(report, place, args.rounds),
        "rest": lambda place: at_rest(report, place, args.idle),
    }
    # Removed at the very end: some file systems are slow to make new files for a while after many were removed.
    with tempfile.TemporaryDirectory(prefix="rota-bench-", dir=args.where, ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o711)  # PostgreSQL's user has to get through
        for name in args.only or parts:
            (Path(place) / name).mkdir(mode=0o711)
            parts[name](Path(place) / name)
    if args.write:
        head = _HEAD.format(rounds=args.rounds, machine=_machine())
        args.write.write_text(f"{head}\n{report.text()}")


if __name__ == "__main__":
    main()
