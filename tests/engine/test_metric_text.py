"""Rendered metrics, parsed by the reference parsers of Prometheus and OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_text

from rota.engine.metrics import Counter, ExternalCounter, Gauge, Histogram, Info, Metric, render_metrics

SPECIAL_CHARACTERS = 'a\\b"c\nd{}ä'


def parse_both_formats(*metrics: Metric) -> list[dict[Any, float]]:
    """Return the values by sample name and labels, as parsed from each format."""
    return [
        {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in read(render_metrics(metrics, is_open_metrics=is_open))
            for sample in family.samples
        }
        for is_open, read in ((False, _parse_text), (True, _parse_open_metrics))
    ]


def _parse_text(text: str) -> Iterable[Any]:
    return read_text(text)


def _parse_open_metrics(text: str) -> Iterable[Any]:
    return read_open(text)  # type: ignore[no-untyped-call, no-any-return]


def test_counter_starts_at_zero_and_grows() -> None:
    plain = Counter("x_things", "Things.")
    kinds = Counter("x_kinds", "Kinds.", ("kind",), [("known",)])
    assert parse_both_formats(plain, kinds)[0] == {("x_things_total",): 0, ("x_kinds_total", ("kind", "known")): 0}
    plain.add()
    plain.add(amount=2.5)
    kinds.add("other")
    for values in parse_both_formats(plain, kinds):
        assert values == {
            ("x_things_total",): 3.5,
            ("x_kinds_total", ("kind", "known")): 0,
            ("x_kinds_total", ("kind", "other")): 1,
        }


def test_special_characters_are_escaped() -> None:
    gauge = Gauge(
        "x_size_bytes",
        f"About {SPECIAL_CHARACTERS}.",
        ("name", "other"),
        {(SPECIAL_CHARACTERS, ""): -1.5, ("plain", SPECIAL_CHARACTERS): 3},
    )
    for values in parse_both_formats(gauge):
        assert values[("x_size_bytes", ("name", SPECIAL_CHARACTERS), ("other", ""))] == -1.5
        assert values[("x_size_bytes", ("name", "plain"), ("other", SPECIAL_CHARACTERS))] == 3
    (family,) = _parse_text(render_metrics([gauge]))
    assert (family.documentation, family.type) == (f"About {SPECIAL_CHARACTERS}.", "gauge")
    (family,) = _parse_open_metrics(render_metrics([gauge], is_open_metrics=True))
    assert (family.documentation, family.type) == (f"About {SPECIAL_CHARACTERS}.", "gauge")


def test_histogram_bounds_are_inclusive() -> None:
    plain = Histogram("x_wait_seconds", "Waits.", (0.1, 1, 10))
    assert parse_both_formats(plain)[0][("x_wait_seconds_count",)] == 0
    for value in (0.0, 0.1, 0.10001, 1, 9.9, 10, 10.1, 86_400):
        plain.observe(value)
    for values in parse_both_formats(plain):
        buckets = {dict(key[1:])["le"]: count for key, count in values.items() if key[0].endswith("_bucket")}
        assert {float(bound): count for bound, count in buckets.items()} == {0.1: 2, 1: 4, 10: 6, float("inf"): 8}
        assert values[("x_wait_seconds_count",)] == 8
        assert values[("x_wait_seconds_sum",)] == pytest.approx(0.1 + 0.10001 + 1 + 9.9 + 10 + 10.1 + 86_400)


def test_labeled_histogram_exists_from_its_first_value() -> None:
    kinds = Histogram("x_run_seconds", "Runs.", (1,), ("type",))
    assert parse_both_formats(kinds) == [{}, {}]
    kinds.observe(0.5, "build")
    for values in parse_both_formats(kinds):
        assert values[("x_run_seconds_count", ("type", "build"))] == 1


def test_info_and_external_counter() -> None:
    metrics = (
        Info("x_build_info", "Build.", ("version",), {("1.2",): 1}),
        ExternalCounter("x_cpu_seconds", "CPU.", (), {(): 1.5}),
    )
    for values in parse_both_formats(*metrics):
        assert values == {("x_build_info", ("version", "1.2")): 1, ("x_cpu_seconds_total",): 1.5}
    assert [family.type for family in _parse_open_metrics(render_metrics(metrics, is_open_metrics=True))] == [
        "info",
        "counter",
    ]


def test_open_metrics_format_ends_with_eof() -> None:
    gauge = Gauge("x", "X.", (), {(): 1})
    assert render_metrics([gauge]) == "# HELP x X.\n# TYPE x gauge\nx 1\n"
    assert render_metrics([gauge], is_open_metrics=True) == "# HELP x X.\n# TYPE x gauge\nx 1\n# EOF\n"
