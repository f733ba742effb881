"""Figures in the form that Prometheus reads: counters and histograms that are counted up, gauges that are set.

Each figure is changed by one thread only and read by any, so nothing here takes a lock: a change is one addition, and
who reads meanwhile sees it or does not. The count of a histogram is the sum of its buckets, so that the two agree
whatever happens between two reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels = tuple[str, ...]


class Sample(NamedTuple):
    suffix: str
    labels: Mapping[str, str]
    value: float


class Metric:
    """A figure, or one for each set of values of its labels. `name` is without `_total`."""

    kind = ""

    def __init__(self, name: str, about: str, labels: Labels = ()) -> None:
        self.name = name
        self.about = about
        self.labels = labels

    @property
    def full_name(self) -> str:
        """As people and queries know it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def samples(self) -> Iterator[Sample]:
        raise NotImplementedError

    def _named(self, values: Labels) -> dict[str, str]:
        return dict(zip(self.labels, values, strict=True))


class Counter(Metric):
    """Only grows, from zero at each start of the scheduler."""

    kind = "counter"

    def __init__(self, name: str, about: str, labels: Labels = (), known: Iterable[Labels] = ()) -> None:
        """`known` are values of the labels that are shown before anything was counted."""
        super().__init__(name, about, labels)
        self._counts: dict[Labels, float] = dict.fromkeys(known if labels else [()], 0.0)

    def add(self, *values: str, amount: float = 1.0) -> None:
        counts = self._counts
        counts[values] = counts.get(values, 0.0) + amount

    def samples(self) -> Iterator[Sample]:
        for values, count in list(self._counts.items()):
            yield Sample("_total", self._named(values), count)


class Gauge(Metric):
    """What is so at the moment of the look."""

    kind = "gauge"

    def __init__(self, name: str, about: str, labels: Labels = (), values: Mapping[Labels, float] = {}) -> None:
        super().__init__(name, about, labels)
        self._values = values

    def samples(self) -> Iterator[Sample]:
        for values, value in self._values.items():
            yield Sample("", self._named(values), value)


class Info(Gauge):
    """What does not change while the process lives, in its labels."""

    kind = "info"


class Total(Gauge):
    """A counter that somebody else counts."""

    kind = "counter"

    def samples(self) -> Iterator[Sample]:
        for sample in super().samples():
            yield sample._replace(suffix="_total")


class Histogram(Metric):
    kind = "histogram"

    def __init__(self, name: str, about: str, bounds: Sequence[float], labels: Labels = ()) -> None:
        """`bounds` are the upper ends of the buckets; the one for all the rest goes without saying."""
        super().__init__(name, about, labels)
        self._bounds = tuple(bounds)
        self._shown = (*map(_number, bounds), "+Inf")
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        if not labels:
            self._begin(())

    def _begin(self, values: Labels) -> list[int]:
        self._sums[values] = 0.0
        counts = self._counts[values] = [0] * len(self._shown)
        return counts

    def observe(self, value: float, *values: str) -> None:
        counts = self._counts.get(values) or self._begin(values)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[values] += value

    def samples(self) -> Iterator[Sample]:
        for values, counts in list(self._counts.items()):
            named, total = self._named(values), 0
            for bound, count in zip(self._shown, tuple(counts), strict=True):
                total += count
                yield Sample("_bucket", {**named, "le": bound}, total)
            yield Sample("_sum", named, self._sums[values])
            yield Sample("_count", named, total)


def exposition(metrics: Iterable[Metric], *, is_open: bool = False) -> str:
    """All of them as text; `is_open` in the form of OpenMetrics."""
    lines: list[str] = []
    for metric in metrics:
        name, kind = metric.full_name, metric.kind
        if is_open:
            name = metric.name.removesuffix("_info") if kind == "info" else metric.name
        elif kind == "info":
            kind = "gauge"
        about = metric.about.replace("\\", "\\\\").replace("\n", "\\n")
        lines += [f"# HELP {name} {about.replace(chr(34), _QUOTE) if is_open else about}", f"# TYPE {name} {kind}"]
        lines += [
            f"{metric.name}{suffix}{_shown(labels)} {_number(value)}" for suffix, labels, value in metric.samples()
        ]
    return "\n".join([*lines, "# EOF", ""] if is_open else [*lines, ""])


_QUOTE = '\\"'


def _shown(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', _QUOTE).replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
