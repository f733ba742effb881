"""Metrics of the engine (docs/reference/metrics.md), and the kinds of metrics with their text in Prometheus's format.

    turn ── samples, events ──▶ COMMIT ──▶ EngineMetrics.record      (the engine's thread only)

Metrics are recorded after the commit from the samples and events of the turn. Recording runs no statement. A rollback
discards the samples and events, so nothing that was rolled back is counted. Gauges, such as the number of waiting jobs,
are queried instead (`control/metrics.py`).

One thread writes each metric and any thread reads it, without locks: a write is one addition, and a concurrent read
sees the value before or after it. The count of a histogram is computed from its buckets, so that the two agree in
every read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rota.kernel.events import Event
from rota.kernel.status import TERMINAL, Status
from rota.schedules.model import FireState

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_FORMAT = "application/openmetrics-text; version=1.0.0; charset=utf-8"
MAX_TYPES = 30
"""Job types with their own label value; later types share `OTHER_LABEL`."""
OTHER_LABEL = "other"

_WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400)
_RUN_BUCKETS = (0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 14_400, 86_400)
_LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
_TURN_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_REQUEST_BUCKETS = (0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)
_LATENESS_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 3600, 86_400)
_ESCAPED_QUOTE = '\\"'

Labels = tuple[str, ...]


class ClaimSample(NamedTuple):
    """A job was chosen to start."""

    type: str | None
    seconds: float
    """Seconds since the job entered the queue."""


class StartSample(NamedTuple):
    """The child process of a run exists."""

    since_ready: float | None
    since_claimed: float


class EndSample(NamedTuple):
    """A run ended."""

    type: str | None
    status: Status
    seconds: float


class AttemptSample(NamedTuple):
    """A webhook message was sent."""

    is_success: bool
    is_last: bool


EngineSample = ClaimSample | StartSample | EndSample | AttemptSample


class EngineMetrics:
    """Metrics that the engine writes, and the counter of HTTP responses."""

    def __init__(self) -> None:
        self._types: set[str] = {""}
        self._submitted = Counter("rota_jobs_submitted", "Jobs submitted, excluding retries.")
        self._ended = Counter(
            "rota_jobs_ended",
            "Jobs that ended, by status; a rewound job can end again.",
            ("status",),
            sorted((status.value,) for status in TERMINAL),
        )
        self._runs = Counter("rota_runs", "Runs that ended, by status and type of their job.", ("status", "type"))
        self._retries = Counter(
            "rota_retries", "Retries, by the retry policy or by hand.", ("by",), [("policy",), ("hand",)]
        )
        self._dispatches = Counter("rota_dispatches", "Jobs dispatched.")
        self._failures = Counter("rota_dispatch_failures", "Failed starts.")
        self._opened = Counter("rota_breakers_opened", "Breakers that opened.")
        self._waits = Histogram(
            "rota_job_wait_seconds", "Time from entering the queue to dispatch, by type.", _WAIT_BUCKETS, ("type",)
        )
        self._latency = Histogram(
            "rota_dispatch_latency_seconds",
            "Time from ready (dependencies, delay and locks passed) to the start of the process, including pauses.",
            _LATENCY_BUCKETS,
        )
        self._starts = Histogram(
            "rota_start_duration_seconds", "Time from dispatch to the start of the process.", _LATENCY_BUCKETS
        )
        self._durations = Histogram(
            "rota_run_duration_seconds", "Time from dispatch to end, by type.", _RUN_BUCKETS, ("type",)
        )
        self._deliveries = Counter(
            "rota_webhook_deliveries",
            "Webhook messages delivered or failed.",
            ("outcome",),
            [("delivered",), ("failed",)],
        )
        self._attempts = Counter(
            "rota_webhook_attempts", "Attempts to send a webhook message.", ("outcome",), [("success",), ("failure",)]
        )
        self._fires = Counter(
            "rota_schedule_fires",
            "Fires of schedules, by state; a trigger counts as fired.",
            ("state",),
            [(state.value,) for state in FireState],
        )
        self._lateness = Histogram(
            "rota_schedule_lateness_seconds",
            "Time from the scheduled time to the fire, excluding missed ones.",
            _LATENESS_BUCKETS,
        )
        self._turns = Histogram(
            "rota_turn_duration_seconds", "Duration of the turns of the engine, one transaction each.", _TURN_BUCKETS
        )
        self._commits = Histogram("rota_commit_duration_seconds", "Duration of the commits of turns.", _TURN_BUCKETS)
        self._requests = Histogram("rota_turn_requests", "Requests per turn, which share a commit.", _REQUEST_BUCKETS)
        self._failed_turns = Counter("rota_turn_failures", "Turns that failed and were rolled back.")
        self._events = Counter("rota_events", "Events, by kind.", ("kind",))
        self._http = Counter(
            "rota_http_requests", "HTTP responses, by endpoint and status class.", ("method", "route", "code")
        )

    @property
    def metrics(self) -> list[Metric]:
        return [value for value in vars(self).values() if isinstance(value, Metric)]

    def record(
        self,
        samples: Sequence[EngineSample],
        events: Sequence[Event],
        *,
        requests: int,
        seconds: float,
        commit_seconds: float,
    ) -> None:
        """Record a committed turn."""
        self._turns.observe(seconds)
        self._commits.observe(commit_seconds)
        self._requests.observe(requests)
        for sample in samples:
            self._record_sample(sample)
        for event in events:
            self._events.add(event.kind)
            recorder = _EVENT_RECORDERS.get(event.kind)
            if recorder is not None:
                recorder(self, event)

    def record_failed_turn(self) -> None:
        """Record a turn that was rolled back."""
        self._failed_turns.add()

    def record_response(self, method: str, route: str, status: int) -> None:
        """Record an HTTP response. Called on the event loop only."""
        self._http.add(method, route, f"{status // 100}xx")

    def _record_sample(self, sample: EngineSample) -> None:
        match sample:
            case ClaimSample():
                self._dispatches.add()
                self._waits.observe(sample.seconds, self._type_label(sample.type))
            case StartSample():
                self._starts.observe(sample.since_claimed)
                if sample.since_ready is not None:
                    self._latency.observe(sample.since_ready)
            case EndSample():
                self._runs.add(sample.status.value, self._type_label(sample.type))
                self._durations.observe(sample.seconds, self._type_label(sample.type))
            case AttemptSample():
                self._attempts.add("success" if sample.is_success else "failure")
                if sample.is_last:
                    self._deliveries.add("delivered" if sample.is_success else "failed")

    def _type_label(self, name: str | None) -> str:
        """Return the label value of a type: empty for no type, `OTHER_LABEL` beyond `MAX_TYPES`."""
        name = name or ""
        if name not in self._types:
            if len(self._types) > MAX_TYPES:
                return OTHER_LABEL
            self._types.add(name)
        return name

    def _record_submit(self, event: Event) -> None:
        if event.cause == "submit":
            self._submitted.add()

    def _record_retry(self, event: Event) -> None:
        self._retries.add("policy" if event.actor is None else "hand")

    def _record_requeue(self, event: Event) -> None:
        if "error" in event.data:
            self._failures.add()

    def _record_end(self, event: Event) -> None:
        self._ended.add(event.kind.removeprefix("job.").upper())
        if event.run is None and "error" in event.data:
            self._failures.add()

    def _record_opened_breaker(self, _event: Event) -> None:
        self._opened.add()

    def _record_abandoned(self, event: Event) -> None:
        self._deliveries.add("failed", amount=event.data.get("failed", 0))

    def _record_fire(self, event: Event) -> None:
        state = event.kind.removeprefix("schedule.")
        self._fires.add(state, amount=event.data.get("count", 1))
        if state != FireState.MISSED and "trigger" not in event.data:
            self._lateness.observe(event.data.get("delay_seconds", 0.0))


_EVENT_RECORDERS = {
    "job.submitted": EngineMetrics._record_submit,
    "job.retried": EngineMetrics._record_retry,
    "job.queued": EngineMetrics._record_requeue,
    "breaker.opened": EngineMetrics._record_opened_breaker,
    "webhook.disabled": EngineMetrics._record_abandoned,
    "webhook.removed": EngineMetrics._record_abandoned,
    "webhook.abandoned": EngineMetrics._record_abandoned,
    **{f"job.{status.lower()}": EngineMetrics._record_end for status in TERMINAL},
    **{f"schedule.{state.value}": EngineMetrics._record_fire for state in FireState},
}


class MetricSample(NamedTuple):
    """Value of a series at the time of the read. `suffix` follows the name of the metric."""

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

    def samples(self) -> Iterator[MetricSample]:
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

    def samples(self) -> Iterator[MetricSample]:
        for values, count in list(self._counts.items()):
            yield MetricSample("_total", self._label_values(values), count)


class Gauge(Metric):
    """Value at the time of the read."""

    kind = "gauge"

    def __init__(self, name: str, description: str, labels: Labels = (), values: Mapping[Labels, float] = {}) -> None:
        super().__init__(name, description, labels)
        self._values = values

    def samples(self) -> Iterator[MetricSample]:
        for values, value in self._values.items():
            yield MetricSample("", self._label_values(values), value)


class Info(Gauge):
    """Constants of the process, in labels."""

    kind = "info"


class ExternalCounter(Gauge):
    """Counter with values that are counted outside this module."""

    kind = "counter"

    def samples(self) -> Iterator[MetricSample]:
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

    def samples(self) -> Iterator[MetricSample]:
        for values, counts in list(self._counts.items()):
            labels, total = self._label_values(values), 0
            for bound, count in zip(self._bound_labels, tuple(counts), strict=True):
                total += count
                yield MetricSample("_bucket", {**labels, "le": bound}, total)
            yield MetricSample("_sum", labels, self._sums[values])
            yield MetricSample("_count", labels, total)


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


def _format_labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels.items()) + "}"


def _escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', _ESCAPED_QUOTE).replace("\n", "\\n")


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
