"""Metrics in the exposition format of Prometheus: counters, histograms and gauges.

One thread writes each metric and any thread reads it, without locks: a write is one addition, and a concurrent read
sees the value before or after it. The count of a histogram is computed from its buckets, so that the two agree in
every read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_FORMAT = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels = tuple[str, ...]


class Sample(NamedTuple):
    suffix: str
    labels: Mapping[str, str]
    value: float


class Metric:
    """Metric with one series per combination of label values. `name` excludes the suffix `_total`."""

    kind = ""

    def __init__(self, name: str, description: str, labels: Labels = ()) -> None:
        self.name = name
        self.description = description
        self.labels = labels

    @property
    def full_name(self) -> str:
        """Name as queries use it, with the suffix `_total` of a counter."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def samples(self) -> Iterator[Sample]:
        raise NotImplementedError

    def _label_values(self, values: Labels) -> dict[str, str]:
        return dict(zip(self.labels, values, strict=True))


class Counter(Metric):
    """Value that only grows, from zero at each start of the scheduler."""

    kind = "counter"

    def __init__(self, name: str, description: str, labels: Labels = (), initial: Iterable[Labels] = ()) -> None:
        """Create the counter. The series with the label values in `initial` exist from the start, with value zero."""
        super().__init__(name, description, labels)
        self._counts: dict[Labels, float] = dict.fromkeys(initial if labels else [()], 0.0)

    def add(self, *values: str, amount: float = 1.0) -> None:
        counts = self._counts
        counts[values] = counts.get(values, 0.0) + amount

    def samples(self) -> Iterator[Sample]:
        for values, count in list(self._counts.items()):
            yield Sample("_total", self._label_values(values), count)


class Gauge(Metric):
    """Value at the time of the read."""

    kind = "gauge"

    def __init__(self, name: str, description: str, labels: Labels = (), values: Mapping[Labels, float] = {}) -> None:
        super().__init__(name, description, labels)
        self._values = values

    def samples(self) -> Iterator[Sample]:
        for values, value in self._values.items():
            yield Sample("", self._label_values(values), value)


class Info(Gauge):
    """Constants of the process, in labels."""

    kind = "info"


class ExternalCounter(Gauge):
    """Counter with values that are counted outside this module."""

    kind = "counter"

    def samples(self) -> Iterator[Sample]:
        for sample in super().samples():
            yield sample._replace(suffix="_total")


class Histogram(Metric):
    kind = "histogram"

    def __init__(self, name: str, description: str, bounds: Sequence[float], labels: Labels = ()) -> None:
        """Create the histogram. `bounds` are the upper bounds of the buckets, without the implied `+Inf`."""
        super().__init__(name, description, labels)
        self._bounds = tuple(bounds)
        self._bound_labels = (*map(_format_number, bounds), "+Inf")
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        if not labels:
            self._start_series(())

    def _start_series(self, values: Labels) -> list[int]:
        self._sums[values] = 0.0
        counts = self._counts[values] = [0] * len(self._bound_labels)
        return counts

    def observe(self, value: float, *values: str) -> None:
        counts = self._counts.get(values) or self._start_series(values)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[values] += value

    def samples(self) -> Iterator[Sample]:
        for values, counts in list(self._counts.items()):
            labels, total = self._label_values(values), 0
            for bound, count in zip(self._bound_labels, tuple(counts), strict=True):
                total += count
                yield Sample("_bucket", {**labels, "le": bound}, total)
            yield Sample("_sum", labels, self._sums[values])
            yield Sample("_count", labels, total)


def render_metrics(metrics: Iterable[Metric], *, is_open_metrics: bool = False) -> str:
    """Render the metrics as text, in the Prometheus or the OpenMetrics format."""
    lines: list[str] = []
    for metric in metrics:
        name, kind = metric.full_name, metric.kind
        if is_open_metrics:
            name = metric.name.removesuffix("_info") if kind == "info" else metric.name
        elif kind == "info":
            kind = "gauge"
        help_text = metric.description.replace("\\", "\\\\").replace("\n", "\\n")
        lines += [
            f"# HELP {name} {help_text.replace(chr(34), _ESCAPED_QUOTE) if is_open_metrics else help_text}",
            f"# TYPE {name} {kind}",
        ]
        lines += [
            f"{metric.name}{suffix}{_format_labels(labels)} {_format_number(value)}"
            for suffix, labels, value in metric.samples()
        ]
    return "\n".join([*lines, "# EOF", ""] if is_open_metrics else [*lines, ""])


_ESCAPED_QUOTE = '\\"'


def _format_labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', _ESCAPED_QUOTE).replace("\n", "\\n")


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
