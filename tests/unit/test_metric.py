"""The form of figures, read back by the parsers of the field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_text

from rota.metric import Counter, Gauge, Histogram, Info, Metric, Total, exposition

STRANGE = 'a\\b"c\nd{}ä'


def both(*metrics: Metric) -> list[dict[Any, float]]:
    """What each parser understands, by the name of the sample and its labels."""
    return [
        {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in read(exposition(metrics, is_open=is_open))
            for sample in family.samples
        }
        for is_open, read in ((False, _text), (True, _open))
    ]


def _text(text: str) -> Iterable[Any]:
    return read_text(text)


def _open(text: str) -> Iterable[Any]:
    return read_open(text)  # type: ignore[no-untyped-call, no-any-return]


def test_a_counter_starts_at_zero_and_grows() -> None:
    plain = Counter("x_things", "Things.")
    kinds = Counter("x_kinds", "Kinds.", ("kind",), [("known",)])
    assert both(plain, kinds)[0] == {("x_things_total",): 0, ("x_kinds_total", ("kind", "known")): 0}
    plain.add()
    plain.add(amount=2.5)
    kinds.add("other")
    for seen in both(plain, kinds):
        assert seen == {
            ("x_things_total",): 3.5,
            ("x_kinds_total", ("kind", "known")): 0,
            ("x_kinds_total", ("kind", "other")): 1,
        }


def test_what_is_in_labels_and_words_comes_out_as_it_was() -> None:
    gauge = Gauge("x_size_bytes", f"About {STRANGE}.", ("name", "other"), {(STRANGE, ""): -1.5, ("plain", STRANGE): 3})
    for seen in both(gauge):
        assert seen[("x_size_bytes", ("name", STRANGE), ("other", ""))] == -1.5
        assert seen[("x_size_bytes", ("name", "plain"), ("other", STRANGE))] == 3
    (family,) = _text(exposition([gauge]))
    assert (family.documentation, family.type) == (f"About {STRANGE}.", "gauge")
    (family,) = _open(exposition([gauge], is_open=True))
    assert (family.documentation, family.type) == (f"About {STRANGE}.", "gauge")


def test_a_histogram_counts_up_to_and_including_its_bounds() -> None:
    plain = Histogram("x_wait_seconds", "Waits.", (0.1, 1, 10))
    assert both(plain)[0][("x_wait_seconds_count",)] == 0
    for value in (0.0, 0.1, 0.10001, 1, 9.9, 10, 10.1, 86_400):
        plain.observe(value)
    for seen in both(plain):
        buckets = {dict(key[1:])["le"]: count for key, count in seen.items() if key[0].endswith("_bucket")}
        assert {float(bound): count for bound, count in buckets.items()} == {0.1: 2, 1: 4, 10: 6, float("inf"): 8}
        assert seen[("x_wait_seconds_count",)] == 8
        assert seen[("x_wait_seconds_sum",)] == pytest.approx(0.1 + 0.10001 + 1 + 9.9 + 10 + 10.1 + 86_400)


def test_a_histogram_by_label_is_there_from_its_first_value_on() -> None:
    kinds = Histogram("x_run_seconds", "Runs.", (1,), ("type",))
    assert both(kinds) == [{}, {}]
    kinds.observe(0.5, "build")
    for seen in both(kinds):
        assert seen[("x_run_seconds_count", ("type", "build"))] == 1


def test_what_runs_and_what_others_count() -> None:
    metrics = (
        Info("x_build_info", "Build.", ("version",), {("1.2",): 1}),
        Total("x_cpu_seconds", "CPU.", (), {(): 1.5}),
    )
    for seen in both(*metrics):
        assert seen == {("x_build_info", ("version", "1.2")): 1, ("x_cpu_seconds_total",): 1.5}
    assert [family.type for family in _open(exposition(metrics, is_open=True))] == ["info", "counter"]


def test_the_ends_of_both_forms() -> None:
    gauge = Gauge("x", "X.", (), {(): 1})
    assert exposition([gauge]) == "# HELP x X.\n# TYPE x gauge\nx 1\n"
    assert exposition([gauge], is_open=True) == "# HELP x X.\n# TYPE x gauge\nx 1\n# EOF\n"
