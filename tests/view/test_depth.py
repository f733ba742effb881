"""The line that is logged while anything waits."""

from __future__ import annotations

from collections.abc import Callable

from harness import Scheduler
from rota.view.depth import depth_line


def line(scheduler: Scheduler) -> str | None:
    return depth_line(scheduler.reader, scheduler.sight)


def test_nothing_waits(scheduler: Scheduler) -> None:
    assert line(scheduler) is None
    scheduler.submit()
    assert line(scheduler) is None  # it runs


def test_what_waits_by_flow_and_by_what_for(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 1})
    first = scheduler.submit(locks=["repo"])
    for flow in ("review", "implement", "implement", None):
        scheduler.submit(flow=flow)
    scheduler.submit(after=[first])
    scheduler.submit(delay="1h")
    scheduler.submit(locks=["repo"])
    assert line(scheduler) == (
        "depth: 4 ready (flow implement 2, flow review 1), 1 waiting on dependencies, 1 waiting on locks, 1 delayed, "
        "1 running"
    )


def test_what_is_held_is_not_called_ready(scheduler: Scheduler) -> None:
    scheduler.pause("flow/a")
    for fields in ({"flow": "a"}, {"flow": "a", "locks": ["repo"]}):
        scheduler.submit(**fields)
    assert line(scheduler) == "depth: 0 ready, 2 paused (flow a 1), 0 running"


def test_many_flows_do_not_make_a_long_line(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 0})
    for number in range(12):
        scheduler.submit(flow=f"f{number:02}")
    said = line(scheduler)
    assert said is not None
    assert said.endswith("flow f09 1, 2 flows more), 0 running")
