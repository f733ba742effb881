"""`status`: the fields of DESIGN §12, and why nothing runs while something waits (LESSONS: 4 h 27 m in silence)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from harness import Raw, Scheduler
from rota.core.backpressure import QueueLimit
from rota.core.status import Status
from rota.errors import StorageFull
from rota.executor.port import FailedToStart, Lost
from rota.view.job import forms
from rota.view.status import pools, status


def look(scheduler: Scheduler) -> dict[str, Any]:
    said: dict[str, Any] = msgspec.to_builtins(status(scheduler.reader, scheduler.sight), builtin_types=(datetime,))
    return said


def test_an_empty_scheduler(scheduler: Scheduler) -> None:
    assert look(scheduler) == {
        "mode": "deferred",
        "paused": False,
        "paused_by": None,
        "paused_at": None,
        "pauses": [],
        "held": None,
        "depth": {"total": 0, "soft": None, "hard": None, "by_flow": {}},
        "queued": 0,
        "ready": 0,
        "waiting": {},
        "breakers": [],
        "running": 0,
        "slots": {"waiting": 0, "running": 0},
        "webhooks": {"held": [], "disabled": [], "pending": 0},
        "finished": 0,
        "pools": {"global": {"size": 1, "used": 0}, "resource/ollama": {"size": 1, "used": 0}},
        "last_dispatch_at": None,
        "last_gc": None,
        "schedules": {"total": 0, "enabled": 0, "next": None, "missed": 0, "failed": 0},
        "idle_because": None,
    }


def test_a_busy_one(scheduler: Scheduler) -> None:
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
    scheduler.end(done)
    shown = look(scheduler)
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
    assert shown["idle_because"] is None  # something runs


def test_the_depth_is_shown_with_its_limits_as_they_stand_now(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 3})
    scheduler.set_queue(QueueLimit(soft="auto", hard=50), a=QueueLimit(hard=1))
    for flow in ("a", "a", "b", "b", "b"):
        scheduler.answer(flow=flow)
    shown = look(scheduler)["depth"]
    assert shown == {"total": 3, "soft": 12, "hard": 50, "by_flow": {"a": 1, "b": 2}}
    scheduler.set_pools(**{"global": -1})
    assert look(scheduler)["depth"]["soft"] is None


def test_mode_is_direct_without_a_global_limit(make_scheduler: Callable[..., Scheduler]) -> None:
    assert look(make_scheduler(**{"global": -1}))["mode"] == "direct"


def test_paused_by_whom_and_when(scheduler: Scheduler, raw: Raw) -> None:
    raw("INSERT INTO pause (scope, paused_by, paused_at) VALUES ('global', 'ada', 1000000)")
    scheduler.submit()
    shown = look(scheduler)
    assert (shown["paused"], shown["paused_by"]) == (True, "ada")
    assert shown["paused_at"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert shown["idle_because"] == "job-1: paused by ada"


@pytest.mark.parametrize(
    ("fields", "because"),
    [
        ({"delay": "1h"}, "job-1: not before 2026-01-01T01:00:00Z"),
        (
            {"pools": {"resource/ollama": 2}},
            "job-1: waiting on pool resource/ollama (0/1); it draws 2, and cannot start until the pool grows",
        ),
    ],
)
def test_nothing_runs_because(scheduler: Scheduler, fields: dict[str, object], because: str) -> None:
    scheduler.submit(**fields)  # type: ignore[arg-type]
    assert look(scheduler)["idle_because"] == because


def test_nothing_runs_because_the_limit_is_nought(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 0})
    scheduler.submit()
    assert look(scheduler)["idle_because"] == "job-1: waiting on pool global (0/0)"


def test_nothing_runs_because_of_a_failed_start(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.say(FailedToStart(run=scheduler.run_of(job), error="no"))
    assert look(scheduler)["idle_because"] == "job-1: not before 2026-01-01T00:00:01Z"


def test_nothing_runs_while_the_supervisor_is_away_and_no_pool_is_blamed(scheduler: Scheduler) -> None:
    scheduler.say(Lost(reason="killed"))
    scheduler.submit()
    assert look(scheduler)["idle_because"] == "there is no supervisor; it is being started"


def test_nothing_runs_because_the_scheduler_stops(scheduler: Scheduler) -> None:
    scheduler.engine.is_draining = True
    scheduler.submit()
    assert look(scheduler)["idle_because"] == "the scheduler is stopping"


def test_nothing_runs_because_the_store_cannot_be_written(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.pause()
    scheduler.submit()
    monkeypatch.setattr(scheduler.session, "commit", lambda: _raise(StorageFull("the disk is full")))
    scheduler.engine.turn()
    assert look(scheduler)["idle_because"] == "the disk is full"


def _raise(error: Exception) -> None:
    raise error


def test_nothing_runs_because_of_a_file(scheduler: Scheduler) -> None:
    """LESSONS Dispatch: nothing ran for 4 h 27 m and nothing was logged."""
    scheduler.hold("disk swap until noon")
    scheduler.submit()
    shown = look(scheduler)
    assert (shown["idle_because"], shown["held"]) == ("job-1: held: disk swap until noon", "disk swap until noon")
    assert (shown["paused"], shown["ready"], shown["waiting"]) == (False, 0, {"paused": 1})


def test_nothing_runs_because_a_scope_is_paused_and_every_pause_is_listed(scheduler: Scheduler) -> None:
    scheduler.pause("target/web", by="bob")
    scheduler.pause("flow/plan", by="ann")
    scheduler.submit(delay="1h")
    scheduler.submit(flow="plan", locks=["repo"])
    scheduler.submit(flow="plan", target="web")
    shown = look(scheduler)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert shown["idle_because"] == "job-2: paused by ann"
    assert shown["pauses"] == [
        {"scope": "flow/plan", "by": "ann", "at": at},
        {"scope": "target/web", "by": "bob", "at": at},
    ]
    assert (shown["paused"], shown["paused_by"], shown["waiting"]) == (False, None, {"paused": 2, "delay": 1})
    assert shown["depth"]["by_flow"] == {"plan": 1}  # the other is not in its lane: it has locks


def test_nothing_runs_because_everything_is_delayed_and_the_next_time_is_named(scheduler: Scheduler) -> None:
    scheduler.submit(delay="2h", priority=9)
    scheduler.submit(delay="1h")
    scheduler.submit(after=["job-1"], priority=99)
    assert look(scheduler)["idle_because"] == "job-2: not before 2026-01-01T01:00:00Z"


def test_nothing_runs_because_of_what_the_first_one_hangs_on(scheduler: Scheduler) -> None:
    """All wait on dependencies: who is at their root says why."""
    root = scheduler.submit(needs=["custom:approval:x"], missing_producer="wait")
    middle = scheduler.submit(after=[root], priority=5)
    scheduler.submit(after=[middle], priority=9)
    assert look(scheduler)["idle_because"] == f"job-{root}: awaiting producer for custom:approval:x"


def test_nothing_runs_because_a_breaker_is_open(scheduler: Scheduler) -> None:
    scheduler.set_breaker(failures=1)
    scheduler.end(scheduler.submit(type="x"), code=1)
    scheduler.submit(type="x")
    assert look(scheduler)["idle_because"] == "job-2: breaker open for type/x until 2026-01-01T00:10:00Z"


def test_depths_are_by_the_jobs_own_flow(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 0})
    for flow in ("b", "a", "b", None):
        scheduler.submit(flow=flow, pools={"flow/other": 1})
    assert look(scheduler)["depth"]["by_flow"] == {"a": 1, "b": 2}


def test_nothing_to_do_is_no_reason(scheduler: Scheduler) -> None:
    scheduler.end(scheduler.submit())
    assert look(scheduler)["idle_because"] is None


def test_pools_show_what_is_configured_in_use_or_waited_for(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "resource__gpu": 4})
    scheduler.submit(pools={"resource/gpu": 3}, flow="x")
    assert msgspec.to_builtins(pools(scheduler.reader, scheduler.settings.limits)) == {
        "global": {"size": -1, "used": 1},
        "resource/ollama": {"size": 1, "used": 0},
        "resource/gpu": {"size": 4, "used": 3},
        "flow/x": {"size": 1, "used": 1},
    }


def test_a_list_has_each_job_with_its_reason_in_order(scheduler: Scheduler) -> None:
    ended = scheduler.submit()
    running = scheduler.submit()
    late = scheduler.submit(delay="1h")
    urgent = scheduler.submit(priority=9)
    scheduler.end(ended)
    ids = scheduler.reader.list_jobs(Status, limit=100)
    shown = forms(scheduler.reader, scheduler.reader.jobs(ids), scheduler.sight)
    details = [(form.id, form.status, form.wait and form.wait.detail) for form in shown]
    assert details == [
        (f"job-{urgent}", "RUNNING", None),
        (f"job-{running}", "QUEUED", "waiting on pool global (1/1)"),
        (f"job-{late}", "QUEUED", "not before 2026-01-01T01:00:00Z"),
        (f"job-{ended}", "COMPLETED", None),
    ]
