"""Rounds in which every case takes its turn, so that a noisy minute hits all of them alike."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

ROUNDS = 7


class Figure(NamedTuple):
    """The median of some rounds, with the middle half of them as its spread."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{shown(self.median)} ({shown(self.low)} to {shown(self.high)})"


def figure(values: list[float]) -> Figure:
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return Figure(statistics.median(values), low, high)


def shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def interleave(cases: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """What each case answered in each round."""
    results: dict[str, list[float]] = {name: [] for name in cases}
    for n in range(rounds):
        for name, case in cases.items():
            print(f"\rround {n + 1}/{rounds}: {name:<40}", end="", file=sys.stderr, flush=True)
            results[name].append(case())
    print("\r" + " " * 64 + "\r", end="", file=sys.stderr, flush=True)
    return results


def ratios(results: Mapping[str, list[float]], case: str, base: str) -> Figure:
    """Round by round, so that what slowed both down cancels out."""
    return figure([one / other for one, other in zip(results[case], results[base], strict=True)])
