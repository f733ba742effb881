"""Interleaved rounds: every case runs once per round, so that noise of the machine affects all cases alike."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

ROUNDS = 7


class Figure(NamedTuple):
    """The median of several rounds and the range of the middle half."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{format_number(self.median)} ({format_number(self.low)} to {format_number(self.high)})"


def summarize(values: list[float]) -> Figure:
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return Figure(statistics.median(values), low, high)


def format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def interleave(cases: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Run every case in every round and return the values of each case."""
    results: dict[str, list[float]] = {name: [] for name in cases}
    for n in range(rounds):
        for name, case in cases.items():
            print(f"\rround {n + 1}/{rounds}: {name:<40}", end="", file=sys.stderr, flush=True)
            results[name].append(case())
    print("\r" + " " * 64 + "\r", end="", file=sys.stderr, flush=True)
    return results


def summarize_ratios(results: Mapping[str, list[float]], case: str, base: str) -> Figure:
    """Divide round by round, so that noise in both values cancels out."""
    return summarize([value / reference for value, reference in zip(results[case], results[base], strict=True)])
