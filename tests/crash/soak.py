"""Many rounds, each in its own home, and the table of kills and faults."""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec

from tests.crash.judge import KINDS, Judge
from tests.crash.point import POINTS, Load
from tests.crash.rig import LOADS, CrashRig
from tests.crash.server import restart_repeatedly
from tests.postgres_server import Server, own_server

RANDOM_KILLS = 25
"""Kills at random moments in one round."""
DATABASES = ("sqlite", "postgres")
KILL_MODES: Mapping[Load | None, str] = {
    None: "at the named points",  # each point has its own load
    "mixed": "at random moments, mixed load",
    "short": "at random moments, short-job load",
}
ROUND_TYPES: Sequence[tuple[str, Load | None]] = (
    ("sqlite", None),
    ("postgres", None),
    ("sqlite", "mixed"),
    ("postgres", "mixed"),
    ("sqlite", None),
    ("postgres", None),
    ("sqlite", "short"),
    ("postgres", "short"),
)
"""Type of a round, selected by its seed."""


class Row(msgspec.Struct):
    """Totals of the rounds of one type."""

    rounds: int = 0
    kills: Counter[str] = msgspec.field(default_factory=Counter)
    restarts: int = 0
    jobs: int = 0
    runs: int = 0
    prefetched: int = 0
    direct: int = 0
    unknown: int = 0
    faults: Counter[str] = msgspec.field(default_factory=Counter)


class Soak:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.rows = {(database, load): Row() for database in DATABASES for load in KILL_MODES}
        self.hits: Counter[tuple[str, str, str]] = Counter()
        """By point, victim and database."""

    def run_round(self, seed: int) -> bool:
        database, load = ROUND_TYPES[seed % len(ROUND_TYPES)]
        row = self.rows[database, load]
        row.rounds += 1
        directory = tempfile.mkdtemp(prefix="rota-crash-")
        rig = CrashRig(Path(directory), url=self._server.url() if database == "postgres" else None, seed=seed)
        is_good = False
        try:
            with closing(rig):  # which checks the logs for defects
                is_good = self._run_round(rig, database, load, row)
        except AssertionError as error:
            is_good = False
            row.faults["lost"] += 1
            print(f"round {seed}: {str(error)[-4000:]}", flush=True)
        if is_good:
            shutil.rmtree(directory)
        else:
            print(f"round {seed} failed; its home is in {directory}", flush=True)
        return is_good

    def _run_round(self, rig: CrashRig, database: str, load: Load | None, row: Row) -> bool:
        rig.start()
        with ExitStack() as stack:
            restarter = stack.enter_context(restart_repeatedly(self._server)) if database == "postgres" else None
            if load is None:
                self._kill_at_all_points(rig, database)
            else:
                rig.start_load(load)
                rig.kill_at_random(RANDOM_KILLS)
        row.restarts += 0 if restarter is None else restarter.count
        row.kills.update(rig.kills)
        rig.drain()
        verdict = Judge(rig).verdict()
        row.jobs += verdict.jobs
        row.runs += verdict.runs
        row.prefetched += verdict.prefetched
        row.direct += verdict.direct
        row.unknown += verdict.unknown
        for kind, faults in verdict.faults.items():
            row.faults[kind] += len(faults)
            for fault in faults:
                print(f"{kind}: {fault}", flush=True)
        if load == "short" and not verdict.prefetched:
            print("no run was prefetched: this load does not serve its purpose", flush=True)
            return False
        return verdict.is_good

    def _kill_at_all_points(self, rig: CrashRig, database: str) -> None:
        """Kill at each point under its load, in random order, at a random pass, one process or both."""
        for load in rig.random.sample(list(LOADS), len(LOADS)):
            rig.start_load(load)
            points = [point for point in POINTS if point.load == load]
            for point in rig.random.sample(points, len(points)):
                both = rig.random.random() < 0.3
                rig.kill_at(point, both=both, passes=0 if point.is_start else rig.random.choice((0, 1, 4)))
                self.hits[point.name, "both" if both else point.process, database] += 1


_COLUMNS = (
    "database",
    "killed",
    "rounds",
    "scheduler",
    "supervisor",
    "both",
    "server restarts",
    "jobs",
    "runs",
    "prefetched",
    "direct",
    "exit unknown",
    *KINDS,
)


def render_table(soak: Soak) -> str:
    lines = [_render_row(_COLUMNS), "|---|---|" + "---:|" * (len(_COLUMNS) - 2)]
    for (database, load), row in soak.rows.items():
        kills = [row.kills[victims] for victims in ("scheduler", "supervisor", "both")]
        totals = [row.jobs, row.runs, row.prefetched, row.direct, row.unknown, *(row.faults[kind] for kind in KINDS)]
        counts = (f"{count:,}" for count in (row.rounds, *kills, row.restarts, *totals))
        lines.append(_render_row((database, KILL_MODES[load], *counts)))
    return "\n".join(lines)


def render_points(soak: Soak) -> str:
    header = ("point", "state at the point", "its run", "SQLite: one, both", "PostgreSQL: one, both")
    lines = [_render_row(header), "|---|---|---|---:|---:|"]
    for point in POINTS:
        counts = [
            f"{soak.hits[point.name, point.process, database]}, {soak.hits[point.name, 'both', database]}"
            for database in DATABASES
        ]
        lines.append(_render_row((f"`{point.name}`", point.state, point.outcome, *counts)))
    return "\n".join(lines)


def _render_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash")
    parser.add_argument("--rounds", type=int, default=len(ROUND_TYPES))
    parser.add_argument("--seed", type=int, default=None, help="seed of the first round")
    options = parser.parse_args(arguments)
    first = random.randrange(1_000_000) * len(ROUND_TYPES) if options.seed is None else options.seed
    started, failed = time.monotonic(), list[int]()
    with own_server() as server:
        soak = Soak(server)
        for seed in range(first, first + options.rounds):
            if not soak.run_round(seed):
                failed.append(seed)
            print(f"round {seed}: {time.monotonic() - started:.0f} s, {len(failed)} failed", flush=True)
    print(f"\n{options.rounds} rounds in {time.monotonic() - started:.0f} s, failed: {failed or 'none'}")
    print(f"\n{render_points(soak)}\n\n{render_table(soak)}")
    return 1 if failed else 0
