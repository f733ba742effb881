"""Many rounds, each in a home of its own, and the table of what was killed and what came of it."""

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

from crash.ground import LOADS, Ground
from crash.judge import KINDS, Judge
from crash.point import POINTS, Load
from crash.server import restarted
from postgres_server import Server, own_server

KILLS = 25
"""At any moment, in one round."""
DATABASES = ("sqlite", "postgres")
WAYS: Mapping[Load | None, str] = {
    None: "at the named points",  # each of which has its own
    "mixed": "at any moment, mixed load",
    "brief": "at any moment, brief load",
}
TURNS: Sequence[tuple[str, Load | None]] = (
    ("sqlite", None), ("postgres", None), ("sqlite", "mixed"), ("postgres", "mixed"),
    ("sqlite", None), ("postgres", None), ("sqlite", "brief"), ("postgres", "brief"),
)  # fmt: skip
"""Which kind of round a seed is."""


class Row(msgspec.Struct):
    """What the rounds of one kind came to."""

    rounds: int = 0
    kills: Counter[str] = msgspec.field(default_factory=Counter)
    restarts: int = 0
    jobs: int = 0
    runs: int = 0
    ahead: int = 0
    direct: int = 0
    unknown: int = 0
    faults: Counter[str] = msgspec.field(default_factory=Counter)


class Soak:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.rows = {(database, load): Row() for database in DATABASES for load in WAYS}
        self.struck: Counter[tuple[str, str, str]] = Counter()
        """Point, who was killed, database."""

    def round(self, seed: int) -> bool:
        database, load = TURNS[seed % len(TURNS)]
        row = self.rows[database, load]
        row.rounds += 1
        place = tempfile.mkdtemp(prefix="rota-crash-")
        ground = Ground(Path(place), url=self._server.url() if database == "postgres" else None, seed=seed)
        is_good = False
        try:
            with closing(ground):  # which finds what is in the logs and should not be
                is_good = self._round(ground, database, load, row)
        except AssertionError as error:
            is_good = False
            row.faults["lost"] += 1
            print(f"round {seed}: {str(error)[-4000:]}", flush=True)
        if is_good:
            shutil.rmtree(place)
        else:
            print(f"round {seed} failed; what is left of it is in {place}", flush=True)
        return is_good

    def _round(self, ground: Ground, database: str, load: Load | None, row: Row) -> bool:
        ground.begin()
        with ExitStack() as stack:
            restarts = stack.enter_context(restarted(self._server)) if database == "postgres" else None
            if load is None:
                self._strike_all(ground, database)
            else:
                ground.put_under(load)
                ground.roam(KILLS)
        row.restarts += 0 if restarts is None else restarts.count
        row.kills.update(ground.kills)
        ground.drain()
        verdict = Judge(ground).verdict()
        row.jobs += verdict.jobs
        row.runs += verdict.runs
        row.ahead += verdict.ahead
        row.direct += verdict.direct
        row.unknown += verdict.unknown
        for kind, faults in verdict.faults.items():
            row.faults[kind] += len(faults)
            for fault in faults:
                print(f"{kind}: {fault}", flush=True)
        if load == "brief" and not verdict.ahead:
            print("nothing was started ahead: this load is not what it is for", flush=True)
            return False
        return verdict.is_good

    def _strike_all(self, ground: Ground, database: str) -> None:
        """Each under its load, in any order, at any pass, the one or both."""
        for load in ground.random.sample(list(LOADS), len(LOADS)):
            ground.put_under(load)
            points = [point for point in POINTS if point.load == load]
            for point in ground.random.sample(points, len(points)):
                both = ground.random.random() < 0.3
                ground.strike(point, both=both, passes=0 if point.is_start else ground.random.choice((0, 1, 4)))
                self.struck[point.name, "both" if both else point.process, database] += 1


_COLUMNS = (
    "database", "killed", "rounds", "scheduler", "supervisor", "both", "server restarted", "jobs", "runs", "ahead",
    "direct", "exit unknown", *KINDS,
)  # fmt: skip


def table(soak: Soak) -> str:
    lines = [_line(_COLUMNS), "|---|---|" + "---:|" * (len(_COLUMNS) - 2)]
    for (database, load), row in soak.rows.items():
        killed = [row.kills[each] for each in ("scheduler", "supervisor", "both")]
        done = [row.jobs, row.runs, row.ahead, row.direct, row.unknown, *(row.faults[kind] for kind in KINDS)]
        lines.append(
            _line((database, WAYS[load], *(f"{each:,}" for each in (row.rounds, *killed, row.restarts, *done))))
        )
    return "\n".join(lines)


def points(soak: Soak) -> str:
    head = ("point", "what is true there", "its run", "SQLite: it, both", "PostgreSQL: it, both")
    lines = [_line(head), "|---|---|---|---:|---:|"]
    for point in POINTS:
        counts = [
            f"{soak.struck[point.name, point.process, database]}, {soak.struck[point.name, 'both', database]}"
            for database in DATABASES
        ]
        lines.append(_line((f"`{point.name}`", point.text, point.becomes, *counts)))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m crash")
    parser.add_argument("--rounds", type=int, default=len(TURNS))
    parser.add_argument("--seed", type=int, default=None, help="of the first round")
    options = parser.parse_args(words)
    first = random.randrange(1_000_000) * len(TURNS) if options.seed is None else options.seed
    began, failed = time.monotonic(), list[int]()
    with own_server() as server:
        soak = Soak(server)
        for seed in range(first, first + options.rounds):
            if not soak.round(seed):
                failed.append(seed)
            print(f"round {seed}: {time.monotonic() - began:.0f} s, {len(failed)} failed", flush=True)
    print(f"\n{options.rounds} rounds in {time.monotonic() - began:.0f} s, failed: {failed or 'none'}")
    print(f"\n{points(soak)}\n\n{table(soak)}")
    return 1 if failed else 0
