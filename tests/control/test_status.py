"""`status`: its fields, and the idle reason (LESSONS: idle for 4 h 27 m without a message)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from rota.control.queries import read_pools, show_status
from rota.errors import StorageFull
from rota.executor.port import ConnectionLoss, StartFailure
from rota.jobs.queries import render_jobs
from rota.kernel.backpressure import QueueLimit
from rota.kernel.status import Status
from tests.harness import Scheduler, SqlRunner


def read_status(scheduler: Scheduler) -> dict[str, Any]:
    status: dict[str, Any] = msgspec.to_builtins(
        show_status(scheduler.reader, scheduler.view_context), builtin_types=(datetime,)
    )
    return status


def test_status_of_empty_scheduler(scheduler: Scheduler) -> None:
    assert read_status(scheduler) == {
        "mode": "deferred",
        "paused": False,
        "paused_by": None,
        "paused_at": None,
        "pauses": [],
        "hold_reason": None,
        "depth": {"total": 0, "soft": None, "hard": None, "by_flow": {}},
        "queued": 0,
        "ready": 0,
        "waiting": {},
        "breakers": [],
        "running": 0,
        "reservations": {"waiting": 0, "running": 0},
        "webhooks": {"held": [], "disabled": [], "pending": 0},
        "finished": 0,
        "pools": {"global": {"size": 1, "used": 0}, "resource/ollama": {"size": 1, "used": 0}},
        "last_dispatch_at": None,
        "last_gc": None,
        "schedules": {"total": 0, "enabled": 0, "next": None, "missed": 0, "failed": 0},
        "idle_reason": None,
    }


def test_status_counts_jobs_and_pools(scheduler: Scheduler) -> None:
    done = scheduler.submit(flow="a")
    for fields in (
        {"flow": "a", "locks": ["k"]},
        {"flow": "a"},
        {"flow": "b", "type": "t"},
        {"locks": ["k"]},
        {"after": [2]},
        {"delay": "1h"},
    ):
        scheduler.submit(**fields)
    scheduler.end_run(done)
    shown = read_status(scheduler)
    assert {name: shown[name] for name in ("queued", "ready", "waiting", "running", "finished")} == {
        "queued": 3,
        "ready": 2,
        "waiting": {"locks": 1, "dependencies": 1, "delay": 1},
        "running": 1,
        "finished": 1,
    }
    assert shown["depth"] == {"total": 2, "soft": None, "hard": None, "by_flow": {"a": 1, "b": 1}}
    assert shown["pools"] == {
        "global": {"size": 1, "used": 1},
        "resource/ollama": {"size": 1, "used": 0},
        "flow/a": {"size": 1, "used": 1},
        "flow/b": {"size": 1, "used": 0},
        "type/t": {"size": -1, "used": 0},
    }
    assert shown["last_dispatch_at"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert shown["idle_reason"] is None  # a job is running


def test_depth_has_current_limits(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 3})
    scheduler.set_queue_limits(QueueLimit(soft="auto", hard=50), a=QueueLimit(hard=1))
    for flow in ("a", "a", "b", "b", "b"):
        scheduler.try_submit(flow=flow)
    shown = read_status(scheduler)["depth"]
    assert shown == {"total": 3, "soft": 12, "hard": 50, "by_flow": {"a": 1, "b": 2}}
    scheduler.set_pools(**{"global": -1})
    assert read_status(scheduler)["depth"]["soft"] is None


def test_mode_is_direct_without_a_global_limit(make_scheduler: Callable[..., Scheduler]) -> None:
    assert read_status(make_scheduler(**{"global": -1}))["mode"] == "direct"


def test_status_shows_actor_and_time_of_pause(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    run_sql("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('global', 'ada', 1000000)")
    scheduler.submit()
    shown = read_status(scheduler)
    assert (shown["paused"], shown["paused_by"]) == (True, "ada")
    assert shown["paused_at"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert shown["idle_reason"] == "job-1: paused by ada"


@pytest.mark.parametrize(("fields", "reason"), [({"delay": "1h"}, "job-1: not before 2026-01-01T01:00:00Z")])
def test_idle_reason_is_the_wait_of_the_job(scheduler: Scheduler, fields: dict[str, object], reason: str) -> None:
    scheduler.submit(**fields)  # type: ignore[arg-type]
    assert read_status(scheduler)["idle_reason"] == reason


def test_idle_reason_names_pool_of_size_zero(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 0})
    scheduler.submit()
    assert read_status(scheduler)["idle_reason"] == "job-1: waiting on pool global (0/0)"


def test_idle_reason_names_failed_start(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.receive(StartFailure(run=scheduler.find_run(job), error="no"))
    detail = "could not be started: no; next try at 2026-01-01T00:00:01Z"
    assert read_status(scheduler)["idle_reason"] == f"job-1: {detail}"


def test_idle_reason_is_missing_supervisor_before_pools(scheduler: Scheduler) -> None:
    scheduler.receive(ConnectionLoss(reason="killed"))
    scheduler.submit()
    assert read_status(scheduler)["idle_reason"] == "there is no supervisor; it is being started"


def test_idle_reason_is_shutdown(scheduler: Scheduler) -> None:
    scheduler.engine.is_draining = True
    scheduler.submit()
    assert read_status(scheduler)["idle_reason"] == "the scheduler is stopping"


def test_idle_reason_is_full_disk(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler.pause()
    scheduler.submit()
    monkeypatch.setattr(scheduler.session, "commit", lambda: _raise(StorageFull("the disk is full")))
    scheduler.engine.turn()
    assert read_status(scheduler)["idle_reason"] == "the disk is full"


def _raise(error: Exception) -> None:
    raise error


def test_idle_reason_is_hold_file(scheduler: Scheduler) -> None:
    """LESSONS Dispatch: idle for 4 h 27 m without a message."""
    scheduler.set_hold_text("disk swap until noon")
    scheduler.submit()
    shown = read_status(scheduler)
    assert (shown["idle_reason"], shown["hold_reason"]) == ("job-1: held: disk swap until noon", "disk swap until noon")
    assert (shown["paused"], shown["ready"], shown["waiting"]) == (False, 0, {"paused": 1})


def test_idle_reason_is_pause_of_scope_and_pauses_are_listed(scheduler: Scheduler) -> None:
    scheduler.pause("target/web", by="bob")
    scheduler.pause("flow/plan", by="ann")
    scheduler.submit(delay="1h")
    scheduler.submit(flow="plan", locks=["repo"])
    scheduler.submit(flow="plan", target="web")
    shown = read_status(scheduler)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert shown["idle_reason"] == "job-2: paused by ann"
    assert shown["pauses"] == [
        {"scope": "flow/plan", "by": "ann", "at": at},
        {"scope": "target/web", "by": "bob", "at": at},
    ]
    assert (shown["paused"], shown["paused_by"], shown["waiting"]) == (False, None, {"paused": 2, "delay": 1})
    assert shown["depth"]["by_flow"] == {"plan": 1}  # the other job has locks, so it is not in the lane


def test_idle_reason_is_earliest_delay(scheduler: Scheduler) -> None:
    scheduler.submit(delay="2h", priority=9)
    scheduler.submit(delay="1h")
    scheduler.submit(after=["job-1"], priority=99)
    assert read_status(scheduler)["idle_reason"] == "job-2: not before 2026-01-01T01:00:00Z"


def test_idle_reason_comes_from_root_of_dependencies(scheduler: Scheduler) -> None:
    """All jobs wait for dependencies: the job at their root gives the reason."""
    root = scheduler.submit(needs=["custom:approval:x"], missing_producer="wait")
    middle = scheduler.submit(after=[root], priority=5)
    scheduler.submit(after=[middle], priority=9)
    assert read_status(scheduler)["idle_reason"] == f"job-{root}: awaiting producer for custom:approval:x"


def test_idle_reason_is_open_breaker(scheduler: Scheduler) -> None:
    scheduler.set_breaker_policy(failures=1)
    scheduler.end_run(scheduler.submit(type="x"), code=1)
    scheduler.submit(type="x")
    assert read_status(scheduler)["idle_reason"] == "job-2: breaker open for type/x until 2026-01-01T00:10:00Z"


def test_depth_counts_jobs_by_their_own_flow(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 0})
    for flow in ("b", "a", "b", None):
        scheduler.submit(flow=flow, pools={"flow/other": 1})
    assert read_status(scheduler)["depth"]["by_flow"] == {"a": 1, "b": 2}


def test_idle_reason_is_none_without_waiting_jobs(scheduler: Scheduler) -> None:
    scheduler.end_run(scheduler.submit())
    assert read_status(scheduler)["idle_reason"] is None


def test_pools_are_listed_if_configured_used_or_awaited(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "resource__gpu": 4})
    scheduler.submit(pools={"resource/gpu": 3}, flow="x")
    assert msgspec.to_builtins(read_pools(scheduler.reader, scheduler.settings.pool_sizes)) == {
        "global": {"size": -1, "used": 1},
        "resource/ollama": {"size": 1, "used": 0},
        "resource/gpu": {"size": 4, "used": 3},
        "flow/x": {"size": 1, "used": 1},
    }


def test_list_shows_waits_in_queue_order(scheduler: Scheduler) -> None:
    ended = scheduler.submit()
    running = scheduler.submit()
    late = scheduler.submit(delay="1h")
    urgent = scheduler.submit(priority=9)
    scheduler.end_run(ended)
    ids = scheduler.reader.jobs.list_ids(Status, limit=100)
    shown = render_jobs(scheduler.reader, scheduler.reader.jobs.find_all(ids), scheduler.view_context)
    details = [(view.id, view.status, view.wait and view.wait.detail) for view in shown]
    assert details == [
        (f"job-{urgent}", "RUNNING", None),
        (f"job-{running}", "QUEUED", "waiting on pool global (1/1)"),
        (f"job-{late}", "QUEUED", "not before 2026-01-01T01:00:00Z"),
        (f"job-{ended}", "COMPLETED", None),
    ]
