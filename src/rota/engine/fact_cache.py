"""The fact cache: observed values in memory, ordered by probe.

Probes take time, and a probe that began first may end last. Therefore probes are numbered when they begin. A value from
an older probe is dropped if a newer probe has observed the fact, or if the fact was invalidated since. So a probe that
ran before a producer ended never shows the producer's file as missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from rota.ids import JobId
from rota.kernel.facts import Fact, FactValue


class FactCache:
    """Written by the engine's thread; other threads read `observed` and begin probes."""

    def __init__(self) -> None:
        self.observed: dict[Fact, FactValue] = {}
        self.waiting_jobs: dict[JobId, int] = {}
        """Chosen jobs that wait for a confirming probe, each with the probe number at which they asked for it."""
        self.stale: dict[JobId, int] = {}
        """Jobs that wait for a confirming probe before they are blocked for a missing artifact, numbered likewise."""
        self.last_run_end = 0
        """Probe number at the last end of a run: earlier observations may be outdated."""
        self._probe_numbers: dict[Fact, int] = {}
        self._probes = itertools.count(1)

    def copy(self) -> FactCache:
        """Return a copy for a dry run."""
        other = FactCache()
        other.observed, other.waiting_jobs, other.last_run_end = (
            dict(self.observed),
            dict(self.waiting_jobs),
            self.last_run_end,
        )
        other.stale = dict(self.stale)
        other._probe_numbers, other._probes = dict(self._probe_numbers), self._probes
        return other

    def begin_probe(self) -> int:
        """Return the number of a new probe. Thread-safe."""
        return next(self._probes)

    def is_outdated(self, fact: Fact, probe_number: int) -> bool:
        return probe_number < self._probe_numbers.get(fact, 0)

    def probe_number(self, fact: Fact) -> int:
        """Return the number of the probe that observed the fact last; zero if its value is unknown."""
        return self._probe_numbers.get(fact, 0) if fact in self.observed else 0

    def record(self, fact: Fact, value: FactValue, probe_number: int) -> None:
        self.observed[fact] = value
        self._probe_numbers[fact] = probe_number

    def invalidate(self, fact: Fact) -> None:
        """Discard the observed value, and ignore probes that have already begun."""
        self.observed.pop(fact, None)
        self._probe_numbers[fact] = self.begin_probe()

    def drop(self, facts: Iterable[Fact]) -> None:
        """Remove facts that no waiting job needs."""
        for fact in facts:
            self.observed.pop(fact, None)
            self._probe_numbers.pop(fact, None)
