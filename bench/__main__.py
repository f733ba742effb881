"""`make bench`: run all benchmarks interleaved and write the results as ratios."""

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

from bench import listen, peer, postgres, reads, scale, work_items
from bench.floor import CommandFloor, bare_spawns
from bench.live import Rota
from bench.loop import BareLoop
from bench.measure import ROUNDS, format_number, interleave, summarize, summarize_ratios
from bench.submit_floor import SubmitFloor
from rota.db.postgres.store import PostgresStore
from rota.db.sqlite.store import SqliteStore
from rota.db.store import Store

_SPAWNS = 300
_COMMANDS = 300
_LOOP = "bare loop"
_FLOOR = "floor"
_MANUAL_SECTION = "## Other machines"
"""Heading of the part of the page that is written by hand."""


class Report:
    def __init__(self) -> None:
        self._parts: list[str] = []

    def add_table(
        self, title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], introduction: str = ""
    ) -> None:
        lines = [f"## {title}", ""]
        lines += [introduction] if introduction else []
        lines += [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        self._parts.append("\n".join(lines) + "\n")
        print("\n".join(lines) + "\n", flush=True)

    def render(self) -> str:
        return "\n".join(self._parts)


@contextmanager
def running_rota(directory: Path, config: str = "", name: str = "home") -> Iterator[Rota]:
    rota = Rota(directory / name, config)
    try:
        yield rota
    finally:
        rota.stop()


@contextmanager
def running_rotas(directory: Path) -> Iterator[dict[str, Rota]]:
    """Run one Rota for each available database."""
    with ExitStack() as stack:
        rotas = {"Rota": stack.enter_context(running_rota(directory))}
        if postgres.is_available(directory):
            server = postgres.Server(directory / "server")
            server.initialize()
            stack.enter_context(server.running())
            config = f'[store]\nurl = "{server.url}"\n'
            rotas["Rota (PostgreSQL)"] = stack.enter_context(running_rota(directory, config, "home-postgres"))
        yield rotas


def bench_commands(report: Report, directory: Path, rounds: int) -> None:
    floor, loop = CommandFloor(directory), BareLoop(directory / "loop")
    with running_rotas(directory) as rotas, closing(loop):
        cases: dict[str, Callable[[], float]] = {"bare": lambda: bare_spawns(_SPAWNS)}
        for c in (1, 4):
            count = _command_count(c)
            cases[f"{_FLOOR} {c}"] = partial(floor.measure_commands, count, c)
            cases[f"{_LOOP} {c}"] = partial(loop.measure_commands, count, c)
            cases |= {f"{name} {c}": partial(rota.measure_commands, count, c) for name, rota in rotas.items()}
        peers = peer.available_peers(directory)
        for name, measure in peers.items():
            for c in (1, 4):
                cases[f"{name} {c}"] = partial(measure, _command_count(c), c)
        results = interleave(cases, rounds)
    rows = []
    for name in (*rotas, _LOOP, _FLOOR, *peers):
        for c in (1, 4):
            case = f"{name} {c}"
            rows.append(
                (
                    name,
                    str(c),
                    str(summarize(results[case])),
                    str(summarize_ratios(results, case, f"{_FLOOR} {c}")),
                    str(summarize_ratios(results, case, "bare")),
                )
            )
    rows.append(("bare spawns", "1", str(summarize(results["bare"])), "", "1.00"))
    columns = ("tool", "concurrency", "commands per second", "ratio to the floor of commands", "ratio to bare spawns")
    report.add_table("Commands (`/bin/true`)", columns, rows, _COMMANDS_TEXT)


def _command_count(concurrency: int) -> int:
    return _COMMANDS if concurrency == 1 else 2 * _COMMANDS


def bench_submits(report: Report, directory: Path, rounds: int) -> None:
    methods: dict[str, Callable[[Rota | SubmitFloor], float]] = {
        "batches of 5,000": lambda target: target.batch_submits(5_000),
        "single, 8 client processes": lambda target: target.single_submits(2_400, 8),
        "single, 32 client processes": lambda target: target.single_submits(2_400, 32),
        "single, 32 connections of one process": lambda target: target.connected_submits(2_400, 32),
    }
    with running_rotas(directory) as rotas, closing(SubmitFloor(directory / "floor")) as floor:
        targets: dict[str, Rota | SubmitFloor] = {**rotas, _FLOOR: floor}
        cases = {
            f"{name}|{method}": partial(submit, target)
            for name, target in targets.items()
            for method, submit in methods.items()
        }
        results = interleave(cases, rounds)
    rows = []
    for case, values in results.items():
        name, _, method = case.partition("|")
        ratio = summarize_ratios(results, case, f"{_FLOOR}|{method}")
        rows.append((name, method, str(summarize(values)), str(ratio)))
    columns = ("server", "method", "submits per second", "ratio to the floor of submits")
    report.add_table("Durable submits over the socket", columns, rows, _SUBMITS_TEXT)


def bench_latency(report: Report, directory: Path, rounds: int) -> None:
    fifo = directory / "fifo"
    os.mkfifo(fifo)
    with running_rotas(directory) as rotas:
        cases: dict[str, Callable[[int, Path], list[float]]] = {
            name: rota.measure_latencies for name, rota in rotas.items()
        }
        cases["`posix_spawn`, without a scheduler"] = _measure_direct_latencies
        milliseconds: dict[str, list[float]] = {name: [] for name in cases}
        for n in range(rounds + 1):
            for name, measure in cases.items():
                values = measure(60, fifo)
                milliseconds[name] += values if n else []  # the first round is a warm-up
    rows = [(name, *_format_percentiles(values)) for name, values in milliseconds.items()]
    report.add_table(
        "From the request to the child's first system call, idle scheduler", ("started by", "p50", "p99"), rows
    )


def bench_reads(report: Report, directory: Path, rounds: int) -> None:
    with running_rota(directory) as rota:
        milliseconds: dict[tuple[str, bool], list[float]] = {
            (name, is_busy): [] for name in reads.READS for is_busy in (False, True)
        }
        rates = []
        for n in range(rounds + 1):
            for is_busy in (False, True):
                result = reads.measure_reads(rota, 60, is_busy=is_busy)
                rates += [result.jobs_per_second] if n and is_busy else []
                for name, values in result.milliseconds.items():
                    milliseconds[name, is_busy] += values if n else []  # the first round is a warm-up
    rows = [
        (name, f"{summarize(rates)} jobs per second" if is_busy else "idle", *_format_percentiles(values))
        for (name, is_busy), values in milliseconds.items()
    ]
    report.add_table("Sequential reads over the socket", ("read", "load", "p50", "p99"), rows)


def _format_percentiles(milliseconds: list[float]) -> tuple[str, str]:
    """Format p50 and p99."""
    p99 = sorted(milliseconds)[int(len(milliseconds) * 0.99)]
    return f"{statistics.median(milliseconds):.2f} ms", f"{p99:.2f} ms"


def bench_listening(report: Report, directory: Path, rounds: int) -> None:
    with running_rota(directory) as rota:
        cases = {case: partial(listen.measure_commands, rota, _COMMANDS, case) for case in listen.CASES}
        results = interleave(cases, rounds)
    rows = [
        (case, str(summarize(values)), str(summarize_ratios(results, case, listen.NO_SUBSCRIBERS)))
        for case, values in results.items()
    ]
    columns = ("subscribers", "commands per second, 4 at a time", "ratio to none")
    report.add_table("Commands with event subscribers", columns, rows)


def _measure_direct_latencies(count: int, fifo: Path) -> list[float]:
    milliseconds = []
    for _ in range(count):
        started = time.perf_counter()
        pid = os.posix_spawn("/bin/sh", ["/bin/sh", "-c", f": > '{fifo}'"], {})
        with fifo.open("rb") as stream:
            stream.read()
        milliseconds.append((time.perf_counter() - started) * 1000)
        os.waitpid(pid, 0)
    return milliseconds


def bench_scaling(report: Report, directory: Path, rounds: int) -> None:
    with ExitStack() as stack:
        stores: dict[str, Callable[[Path], Store]] = {"SQLite": lambda home: SqliteStore(home / "rota.db")}
        if postgres.is_available(directory):
            server = postgres.Server(directory / "server")
            server.initialize()
            stack.enter_context(server.running())
            numbers = itertools.count()
            stores["PostgreSQL"] = lambda _: PostgresStore(f"{server.url}&search_path=scale_{next(numbers)}")
        _bench_shapes(report, directory, rounds, stores)


def _bench_shapes(report: Report, directory: Path, rounds: int, stores: dict[str, Callable[[Path], Store]]) -> None:
    rows = []
    for store, open_store in stores.items():
        for shape, (build_jobs, sizes) in scale.SHAPES.items():
            small, large = _queue_lengths(store, shape)
            results: dict[int, list[float]] = {small: [], large: []}
            for n in range(rounds if store == "SQLite" else 3):
                for length, values in results.items():
                    home = directory / f"{store}-{shape.replace(' ', '-')}-{length}-{n}"
                    home.mkdir()
                    bench = scale.QueueBench(open_store(home), home, sizes)
                    bench.enqueue(build_jobs(length))
                    values.append(bench.measure_job(_measured_jobs(shape, length)))
            ratio = summarize([b / a for a, b in zip(results[small], results[large], strict=True)])
            microseconds = f"{format_number(summarize(results[small]).median)} µs"
            rows.append((store, shape, f"{large:,} / {small:,}", microseconds, str(ratio)))
            print(rows[-1], flush=True)
    columns = ("store", "shape", "queue lengths", "per job, shorter queue", "ratio, longer to shorter")
    report.add_table("Cost of a job as the queue grows (without processes)", columns, rows, _SCALING_TEXT)


def _queue_lengths(store: str, shape: str) -> tuple[int, int]:
    """Return a short and a long queue. They are shorter on PostgreSQL, where a turn takes ten times as long."""
    if store == "SQLite":
        return 1_000, 100_000 if shape == "flat queue" else 10_000
    return (1_000, 10_000) if shape == "flat queue" else (300, 3_000)


def _measured_jobs(shape: str, length: int) -> int:
    """Return how many jobs to measure: the whole queue for a fan, because its cost is in its ends, otherwise a part."""
    return length if shape.startswith("fan") else min(90 if "pool" in shape else 500, length // 2)


def bench_work_items(report: Report, directory: Path, rounds: int) -> None:
    results = interleave(work_items.make_cases(directory), rounds)
    rows = [(case, f"{summarize(milliseconds)} ms") for case, milliseconds in results.items()]
    report.add_table("Work items, with the ready rule for each", ("case", "time"), rows)


def bench_idle(report: Report, directory: Path, seconds: float) -> None:
    with running_rota(directory) as rota:
        rota.set_concurrency(0)
        rota.enqueue(100_000)
        rota.stop()
        start_seconds = rota.start()
        rota.client.request("GET", "/api/scheduler")
        pids = rota.process_ids()
        before = sum(map(_cpu_seconds, pids))
        time.sleep(seconds)
        cpu_percent = (sum(map(_cpu_seconds, pids)) - before) / seconds * 100
        memory = sum(map(_memory_mib, pids))
    rows = [
        ("start with 100,000 queued jobs, until the first response", f"{start_seconds:.2f} s"),
        (f"CPU of both processes, idle for {seconds:g} s", f"{cpu_percent:.2f} %"),
        ("memory of both processes", f"{memory:.0f} MiB"),
    ]
    report.add_table("Idle", ("measurement", "value"), rows)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mib(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def _describe_machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )


def write_page(path: Path, text: str) -> None:
    """Write the page and keep its manual section, if it has one."""
    old = path.read_text() if path.exists() else ""
    _, heading, manual = old.partition(_MANUAL_SECTION)
    path.write_text(f"{text}\n{heading}{manual}" if heading else text)


_COMMANDS_TEXT = """The *floor* of commands is the minimum of bookkeeping: one process that, for each command, spawns
it in its own session, creates a directory and two log files, and commits once. The *bare loop* has the two processes,
the journal, the rows and the commits of Rota and none of its features: no gates, pools, retries or clients. The floor
and the bare loop always use SQLite. *Bare spawns* are `posix_spawn` calls alone. A database server shares the cores
with everything else. Of the peers, only task-spooler keeps the output of a command, and its queue is in memory only;
huey and Celery keep no record of a success.
"""

_SCALING_TEXT = """Each job has its own turns here: concurrent starts and prefetching are left out.
"""

_SUBMITS_TEXT = """The *floor* of submits is one process that reads the request, stores it as one row, with one commit
for all requests that arrive together, and sends a response as long as Rota's. It validates nothing and uses SQLite.
Client processes need cores too, which the scheduler then lacks; one process with 32 busy connections, like a load
generator, needs little.
"""

_HEAD = """# Benchmarks

Generated by `make bench`, except for the last section. A figure is the median of {rounds} rounds with the range of
the middle half in parentheses. The rows of a table are interleaved within each round, and a ratio is computed round
by round, so that noise affects both sides. Percentiles are over all rounds. Queues on PostgreSQL are measured in
three rounds, and the idle scheduler once. All features are on: logs, sessions, run and event rows, `synchronous=FULL`
commits.

Measured on {machine}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="number of rounds (default: %(default)s)")
    parser.add_argument(
        "--only",
        action="append",
        help="run only this part; repeatable: commands, submits, latency, reads, listening, scaling, work-items, idle",
    )
    parser.add_argument("--write", type=Path, help="write the results to this page")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds to measure the idle scheduler")
    parser.add_argument("--where", type=Path, help="use a directory on the file system to measure")
    args = parser.parse_args()
    report = Report()
    parts: dict[str, Callable[[Path], None]] = {
        "commands": lambda directory: bench_commands(report, directory, args.rounds),
        "submits": lambda directory: bench_submits(report, directory, args.rounds),
        "latency": lambda directory: bench_latency(report, directory, args.rounds),
        "reads": lambda directory: bench_reads(report, directory, args.rounds),
        "listening": lambda directory: bench_listening(report, directory, args.rounds),
        "scaling": lambda directory: bench_scaling(report, directory, args.rounds),
        "work-items": lambda directory: bench_work_items(report, directory, args.rounds),
        "idle": lambda directory: bench_idle(report, directory, args.idle),
    }
    # Remove everything at the end: some file systems create files slowly for a while after many were removed.
    with tempfile.TemporaryDirectory(prefix="rota-bench-", dir=args.where, ignore_cleanup_errors=True) as root:
        Path(root).chmod(0o711)  # the user that PostgreSQL runs as has to pass through it
        for name in args.only or parts:
            (Path(root) / name).mkdir(mode=0o711)
            parts[name](Path(root) / name)
    if args.write:
        head = _HEAD.format(rounds=args.rounds, machine=_describe_machine())
        write_page(args.write, f"{head}\n{report.render()}")


if __name__ == "__main__":
    main()
