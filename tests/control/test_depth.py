"""Line in the log with the depth of the queue."""

from __future__ import annotations

from collections.abc import Callable

from rota.control.depth import depth_line
from tests.harness import Scheduler


def read_depth_line(scheduler: Scheduler) -> str | None:
    return depth_line(scheduler.reader, scheduler.view_context)


def test_depth_line_is_none_without_waiting_jobs(scheduler: Scheduler) -> None:
    assert read_depth_line(scheduler) is None
    scheduler.submit()
    assert read_depth_line(scheduler) is None  # the job is running


def test_depth_line_counts_jobs_by_flow_and_reason(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 1})
    first = scheduler.submit(locks=["repo"])
    for flow in ("review", "implement", "implement", None):
        scheduler.submit(flow=flow)
    scheduler.submit(after=[first])
    scheduler.submit(delay="1h")
    scheduler.submit(locks=["repo"])
    assert read_depth_line(scheduler) == (
        "depth: 4 ready (flow implement 2, flow review 1), 1 waiting on dependencies, 1 waiting on locks, 1 delayed, "
        "1 running"
    )


def test_paused_jobs_do_not_count_as_ready(scheduler: Scheduler) -> None:
    scheduler.pause("flow/a")
    for fields in ({"flow": "a"}, {"flow": "a", "locks": ["repo"]}):
        scheduler.submit(**fields)
    assert read_depth_line(scheduler) == "depth: 0 ready, 2 paused (flow a 1), 0 running"


def test_depth_line_limits_the_number_of_flows(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 0})
    for number in range(12):
        scheduler.submit(flow=f"f{number:02}")
    line = read_depth_line(scheduler)
    assert line is not None
    assert line.endswith("flow f09 1, 2 more flows), 0 running")
