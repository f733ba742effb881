"""A job with an unreadable record does not stop others, and can be cancelled and removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.control.metrics import read_gauges
from rota.control.queries import list_unreadable
from rota.control.queries import show_status as view_status
from rota.direct.commands import withdraw
from rota.errors import Conflict
from rota.executor.port import ExitReport, RunReport
from rota.graph import queries
from rota.jobs.edit import edit, parse_edit
from rota.jobs.move import MoveRequest, move
from rota.jobs.queries import list_runs, render_jobs, show_run
from rota.kernel.artifacts import Observations
from rota.kernel.reservations import ReservationState, lock_owner
from rota.kernel.status import ACTIVE, Status
from tests.harness import Damage, Scheduler

pytestmark = pytest.mark.both_databases


def statuses(scheduler: Scheduler) -> dict[int, str]:
    ids = scheduler.reader.jobs.list_ids(list(Status), limit=100)
    return {
        int(shown.id[4:]): shown.status
        for shown in render_jobs(scheduler.reader, scheduler.reader.jobs.find_all(ids), scheduler.view_context)
    }


def test_ready_job_of_unknown_status_is_skipped(scheduler: Scheduler, damage: Damage) -> None:
    running, bad, good = (scheduler.submit() for _ in range(3))
    damage(f"UPDATE job SET status = 'PARKED' WHERE id = {bad}")
    later = scheduler.submit()
    scheduler.end_run(running)
    assert scheduler.started_jobs() == [running, good]
    scheduler.end_run(good)
    scheduler.end_run(later)
    assert scheduler.engine.errors == []
    assert statuses(scheduler) == {running: "COMPLETED", bad: "UNREADABLE", good: "COMPLETED", later: "COMPLETED"}
    assert scheduler.reader.jobs.count_by_status()[Status.UNREADABLE] == 1
    assert bad in scheduler.reader.jobs.list_ids(list(ACTIVE), limit=9)
    message = "its status 'PARKED' is unknown"
    assert scheduler.show_job(bad).unreadable == message
    assert scheduler.explain_wait(bad)["text"] == f"job-{bad} is UNREADABLE: {message}; `rota cancel job-{bad}` ends it"
    assert list_unreadable(scheduler.reader) == [f"job-{bad} is unreadable: {message}; `rota cancel job-{bad}` ends it"]
    assert view_status(scheduler.reader, scheduler.view_context).queued == 0


def test_last_ready_jobs_of_a_lane_are_claimed_without_the_one_of_unknown_status(
    make_scheduler: Callable[..., Scheduler], damage: Damage
) -> None:
    scheduler = make_scheduler(**{"global": 2})
    running = [scheduler.submit() for _ in range(2)]
    good, bad = (scheduler.submit() for _ in range(2))
    damage(f"UPDATE job SET status = 'PARKED' WHERE id = {bad}")
    assert scheduler.session.prefetch.standalone_jobs([good, bad]) == {good}, "it is not prefetched either"
    now = scheduler.clock.moment.timestamp()
    scheduler.receive(*(ExitReport(run=scheduler.find_run(job), at=now, code=0) for job in running))
    assert scheduler.started_jobs() == [*running, good]
    assert scheduler.engine.errors == []


def test_wait_for_job_of_unknown_status_is_explained(unlimited_scheduler: Scheduler, damage: Damage) -> None:
    bad = unlimited_scheduler.submit(delay="1h")
    waiting = unlimited_scheduler.submit(after=[bad], priority=5)
    damage(f"UPDATE job SET status = 'PARKED' WHERE id = {bad}")
    shown = unlimited_scheduler.show_job(waiting)
    assert shown.status == Status.WAITING_ON_DEPS
    detail = f"waiting on job job-{bad}, whose record cannot be read: unknown status 'PARKED'"
    assert shown.wait is not None
    assert shown.wait.detail == detail
    assert unlimited_scheduler.explain_wait(waiting)["text"].splitlines() == [
        f"job-{waiting} is WAITING_ON_DEPS: {detail}",
        f"  job-{bad} is UNREADABLE: its status 'PARKED' is unknown; `rota cancel job-{bad}` ends it",
    ]
    status = view_status(unlimited_scheduler.reader, unlimited_scheduler.view_context)
    assert status.idle_reason == f"job-{waiting}: {detail}"


@pytest.mark.parametrize("field", ["wait_kind", "waited_on"])
def test_wait_of_job_with_unreadable_wait_is_explained(
    unlimited_scheduler: Scheduler, damage: Damage, field: str
) -> None:
    job = unlimited_scheduler.submit(after=[unlimited_scheduler.submit(delay="1h")])
    damage(f"UPDATE job SET {field} = 'moon' WHERE id = {job}")
    assert unlimited_scheduler.explain_wait(job)["text"] == (
        f"job-{job} is WAITING_ON_DEPS: its record cannot be read: its {field} 'moon' is unknown;"
        f" it fails when it is evaluated, and `rota cancel job-{job}` ends it now"
    )


@pytest.mark.parametrize("is_restarted", [False, True])
def test_dependent_of_job_of_unknown_status_is_blocked(
    unlimited_scheduler: Scheduler, damage: Damage, *, is_restarted: bool
) -> None:
    bad = unlimited_scheduler.submit(delay="1h")
    waiting = unlimited_scheduler.submit(after=[bad])
    damage(f"UPDATE job SET status = 'PARKED', dirty = 1 WHERE id = {bad}")
    if is_restarted:
        unlimited_scheduler.crash()
    other = unlimited_scheduler.submit()
    assert other in unlimited_scheduler.started_jobs()
    assert unlimited_scheduler.status(waiting) is Status.BLOCKED_BY_DEPENDENCY
    assert unlimited_scheduler.job(waiting).reason == (
        f"scheduler data error for job dependency job-{bad}: unknown status 'PARKED'"
    )
    late = unlimited_scheduler.submit(after=[bad])
    assert unlimited_scheduler.status(late) is Status.BLOCKED_BY_DEPENDENCY


@pytest.mark.parametrize("state", ["ready", "delayed", "locked", "ended"])
def test_job_of_unknown_status_can_be_cancelled(scheduler: Scheduler, damage: Damage, state: str) -> None:
    holder = scheduler.submit(locks=["k"])
    bad = scheduler.submit(delay="1h" if state == "delayed" else None, locks=["k"] if state == "locked" else [])
    behind = scheduler.submit(locks=["k"] if state == "locked" else [])
    if state == "ended":
        scheduler.cancel(bad)
    damage(f"UPDATE job SET status = 'PARKED' WHERE id = {bad}")
    scheduler.cancel(bad)
    record = scheduler.show_job(bad)
    assert (record.status, record.exit_code, record.unreadable) == ("CANCELLED", 143, None)
    assert record.finished_at is not None
    scheduler.end_run(holder)
    assert scheduler.started_jobs() == [holder, behind]
    assert scheduler.reader.jobs.count_by_status() == {Status.COMPLETED: 1, Status.CANCELLED: 1, Status.DISPATCHED: 1}


def test_end_of_run_replaces_unknown_status_of_its_job(unlimited_scheduler: Scheduler, damage: Damage) -> None:
    bad, cancelled, lost = (unlimited_scheduler.submit() for _ in range(3))
    runs = [unlimited_scheduler.find_run(job) for job in (bad, cancelled, lost)]
    for job in (bad, cancelled, lost):
        unlimited_scheduler.confirm_start(job)
    damage("UPDATE job SET status = 'PARKED'")
    unlimited_scheduler.cancel(cancelled)
    assert unlimited_scheduler.executor.stops == [runs[1]]
    unlimited_scheduler.crash([RunReport(run=runs[0], pid=1), RunReport(run=runs[1], pid=2)])
    assert unlimited_scheduler.status(lost) is Status.FAILED
    assert unlimited_scheduler.job(lost).exit_code is None
    assert unlimited_scheduler.status(bad) is Status.UNREADABLE
    unlimited_scheduler.receive(
        ExitReport(run=runs[0], at=unlimited_scheduler.clock.moment.timestamp(), code=0),
        ExitReport(run=runs[1], at=unlimited_scheduler.clock.moment.timestamp(), signal=15, ended_by="stop"),
    )
    assert (unlimited_scheduler.status(bad), unlimited_scheduler.status(cancelled)) == (
        Status.COMPLETED,
        Status.CANCELLED,
    )


@pytest.mark.parametrize("is_restarted", [False, True])
def test_end_of_open_run_replaces_its_unknown_status(
    unlimited_scheduler: Scheduler, damage: Damage, *, is_restarted: bool
) -> None:
    jobs = done, cancelled, lost = [unlimited_scheduler.submit() for _ in range(3)]
    runs = [unlimited_scheduler.find_run(job) for job in jobs]
    for job in jobs:
        unlimited_scheduler.confirm_start(job)
    damage("UPDATE run SET status = 'HUH2'")
    if is_restarted:
        unlimited_scheduler.crash([RunReport(run=runs[0], pid=1), RunReport(run=runs[1], pid=2)])
        assert unlimited_scheduler.status(lost) is Status.FAILED
        unlimited_scheduler.executor.starts.clear()
    assert unlimited_scheduler.show_job(done).status == "RUNNING"
    assert [
        run.status
        for run in list_runs(unlimited_scheduler.reader, unlimited_scheduler.view_context, limit=9, job=done)[0]
    ] == [None]
    unlimited_scheduler.cancel(cancelled)
    assert unlimited_scheduler.executor.stops == [runs[1]]
    unlimited_scheduler.receive(
        ExitReport(run=runs[0], at=unlimited_scheduler.clock.moment.timestamp(), code=0),
        ExitReport(run=runs[1], at=unlimited_scheduler.clock.moment.timestamp(), signal=15, ended_by="stop"),
    )
    assert (unlimited_scheduler.status(done), unlimited_scheduler.status(cancelled)) == (
        Status.COMPLETED,
        Status.CANCELLED,
    )
    assert unlimited_scheduler.engine.errors == []
    if not is_restarted:
        unlimited_scheduler.receive(ExitReport(run=runs[2], at=unlimited_scheduler.clock.moment.timestamp(), code=3))
    shown = list_runs(unlimited_scheduler.reader, unlimited_scheduler.view_context, limit=9)[0]
    assert [run.status for run in shown] == ["FAILED", "CANCELLED", "COMPLETED"]


def test_ended_run_of_unknown_status_is_shown_as_unreadable(scheduler: Scheduler, damage: Damage) -> None:
    job = scheduler.submit()
    run = scheduler.find_run(job)
    scheduler.end_run(job)
    damage(f"DELETE FROM run WHERE id = {run}")  # the schema refuses a change of its status
    damage(
        "INSERT INTO run (id, job, worker, status, started_at, finished_at)"
        f" VALUES ({run}, {job}, 'local/1', 'HUH2', 1, 2)"
    )
    shown, context = scheduler.show_job(job).run, scheduler.view_context
    assert shown is not None
    assert (shown.status, show_run(scheduler.reader, run, context).status) == ("UNREADABLE", "UNREADABLE")
    for filter_job in (None, job):
        runs, _ = list_runs(scheduler.reader, context, limit=9, job=filter_job)
        assert [ended.status for ended in runs] == ["UNREADABLE"]
    assert list_runs(scheduler.reader, context, limit=9, job=job, statuses=[Status.RUNNING])[0] == []


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("UPDATE spec SET params = '{' WHERE id = {bad}", "its params cannot be read"),
        ("UPDATE spec SET pools = '[]' WHERE id = {bad}", "its pools cannot be read"),
        ("UPDATE spec SET retry = 'x' WHERE id = {bad}", "its retry policy cannot be read"),
        ("UPDATE spec SET workspace = 'x' WHERE id = {bad}", "its workspace cannot be read"),
        ("UPDATE job SET wait_kind = 'moon' WHERE id = {bad}", "its wait_kind 'moon' is unknown"),
        ("UPDATE job SET waited_on = 'moon' WHERE id = {bad}", "its waited_on 'moon' is unknown"),
        ("UPDATE lock SET mode = 'odd' WHERE job = {bad}", "the mode 'odd' of one of its locks is unknown"),
        ("UPDATE edge SET policy = 'odd' WHERE job = {bad}", "the policy 'odd' of one of its dependencies is unknown"),
        ("DELETE FROM spec WHERE id = {bad}", "its command is missing"),
    ],
)
def test_damaged_field_hides_no_job_and_stops_no_other(
    unlimited_scheduler: Scheduler, damage: Damage, sql: str, message: str
) -> None:
    done, before = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    unlimited_scheduler.end_run(done)
    bad = unlimited_scheduler.submit(after=[before], locks=["k"])
    damage(sql.replace("{bad}", str(bad)))
    good = unlimited_scheduler.submit(after=[before], locks=["j"])
    assert set(statuses(unlimited_scheduler)) == {done, before, bad, good}
    assert message in str(unlimited_scheduler.show_job(bad).unreadable)
    assert message in unlimited_scheduler.explain_wait(bad)["text"]
    read_gauges(unlimited_scheduler.reader, unlimited_scheduler.view_context)
    view_status(unlimited_scheduler.reader, unlimited_scheduler.view_context)
    request = queries.GraphOptions(with_ended=True)
    queries.draft_drawing(unlimited_scheduler.reader, request, unlimited_scheduler.view_context)
    queries.draft_graph(unlimited_scheduler.reader, request, unlimited_scheduler.view_context)
    unlimited_scheduler.end_run(before)
    assert good in unlimited_scheduler.started_jobs()
    unlimited_scheduler.crash([RunReport(run=unlimited_scheduler.find_run(good), pid=1)])
    last = unlimited_scheduler.submit()
    assert last in unlimited_scheduler.started_jobs()
    if unlimited_scheduler.status(bad) in ACTIVE:
        unlimited_scheduler.cancel(bad)
    assert unlimited_scheduler.engine.errors == []


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    ("policy", "code", "status"),
    [
        ("finished", 1, Status.DISPATCHED),
        ("success", 0, Status.DISPATCHED),
        ("success", 1, Status.BLOCKED_BY_DEPENDENCY),
        ("failed", 0, Status.SKIPPED),
    ],
)
def test_edge_of_unknown_state_follows_its_predecessor(
    unlimited_scheduler: Scheduler, damage: Damage, policy: str, code: int, status: Status, *, is_restarted: bool
) -> None:
    first, other = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    bad = unlimited_scheduler.submit(after=[f"job-{other}:finished", f"job-{first}:{policy}"])
    good = unlimited_scheduler.submit(after=[f"job-{first}:finished"])
    unlimited_scheduler.end_run(other)
    damage(f"UPDATE edge SET state = 'odd' WHERE job = {bad}")
    run = unlimited_scheduler.find_run(first)
    if is_restarted:
        unlimited_scheduler.crash([RunReport(run=run, pid=1)])
    assert unlimited_scheduler.explain_wait(bad)["text"].startswith(
        f"job-{bad} is WAITING_ON_DEPS: waiting on job job-{first}"
    )
    unlimited_scheduler.receive(ExitReport(run=run, at=unlimited_scheduler.clock.moment.timestamp(), code=code))
    assert (unlimited_scheduler.status(bad), unlimited_scheduler.status(good)) == (status, Status.DISPATCHED)
    assert unlimited_scheduler.engine.errors == []


def test_edge_of_unknown_state_waits_for_the_other_edges(unlimited_scheduler: Scheduler, damage: Damage) -> None:
    done, running = unlimited_scheduler.submit(), unlimited_scheduler.submit()
    job = unlimited_scheduler.submit(after=[done, running])
    unlimited_scheduler.end_run(done)
    damage(f"UPDATE edge SET state = 'odd' WHERE job = {job} AND predecessor = {done}")
    unlimited_scheduler.run_request(lambda tx: edit(tx, job, parse_edit(b'{"priority": 5}'), actor="tester"))
    damage(f"UPDATE job SET dirty = 1 WHERE id = {job}")
    unlimited_scheduler.run_turns()
    assert unlimited_scheduler.wait_detail(job) == f"waiting on job job-{running}"
    unlimited_scheduler.end_run(running)
    assert unlimited_scheduler.status(job) is Status.DISPATCHED


def test_edge_of_unknown_state_follows_predecessor_dropped_by_its_group(
    unlimited_scheduler: Scheduler, damage: Damage
) -> None:
    _, (failing, dropped) = unlimited_scheduler.submit_group({}, {}, mode="sequential")
    job = unlimited_scheduler.submit(after=[dropped])
    damage(f"UPDATE edge SET state = 'odd' WHERE job = {job}")
    unlimited_scheduler.end_run(failing, 1)
    assert unlimited_scheduler.status(dropped) is Status.CANCELLED
    assert unlimited_scheduler.status(job) is Status.BLOCKED_BY_DEPENDENCY


@pytest.mark.parametrize("owner", ["holder", "waiting"])
def test_lock_of_unknown_state_is_recomputed_at_startup(
    unlimited_scheduler: Scheduler, damage: Damage, owner: str
) -> None:
    holder, waiting = (unlimited_scheduler.submit(locks=["k"]) for _ in range(2))
    run = unlimited_scheduler.find_run(holder)
    damage(f"UPDATE lock SET state = 'odd' WHERE job = {holder if owner == 'holder' else waiting}")
    unlimited_scheduler.crash([RunReport(run=run, pid=1)])
    last = unlimited_scheduler.submit(locks=["k"])
    assert unlimited_scheduler.explain_wait(waiting)["text"].endswith(f"waiting on locks: k (held by job-{holder})")
    assert unlimited_scheduler.started_jobs() == []
    unlimited_scheduler.receive(ExitReport(run=run, at=unlimited_scheduler.clock.moment.timestamp(), code=0))
    assert unlimited_scheduler.started_jobs() == [waiting]
    unlimited_scheduler.end_run(waiting)
    assert unlimited_scheduler.started_jobs() == [waiting, last]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("params", "{bad", "its params cannot be read"), ("pools", "[]", "its pools cannot be read")],
)
def test_damaged_job_is_named_by_status_and_graph(
    scheduler: Scheduler, damage: Damage, column: str, value: str, message: str
) -> None:
    running = scheduler.submit()
    bad = [scheduler.submit() for _ in range(12)]
    damage(f"UPDATE spec SET {column} = '{value}' WHERE id <> {running}")
    lines = list_unreadable(scheduler.reader)
    assert lines[0].startswith(f"job-{bad[0]} is unreadable: {message}")
    assert lines[-1] == "2 more jobs are unreadable"
    assert len(lines) == 11
    request = queries.GraphOptions()
    observations = Observations(paths=scheduler.settings.artifact_paths, observed={})
    text = queries.draft_drawing(scheduler.reader, request, scheduler.view_context).render(observations).text
    assert text.count(f"[unreadable: {message}") == 12
    nodes = queries.draft_graph(scheduler.reader, request, scheduler.view_context).render(observations).nodes
    assert [str(node.unreadable or "").startswith(message) for node in nodes] == [False] + [True] * 12


def test_job_with_damaged_params_fails_without_running(scheduler: Scheduler, damage: Damage) -> None:
    running, bad, good = (scheduler.submit() for _ in range(3))
    damage(f"UPDATE spec SET params = '{{bad' WHERE id = {bad}")
    scheduler.end_run(running)
    assert scheduler.started_jobs() == [running, good]
    record = scheduler.job(bad)
    assert (record.status, record.exit_code) == (Status.FAILED, 1)
    assert (record.reason or "").startswith("scheduler data error: its params cannot be read: ")


def test_unreadable_job_cannot_be_edited_or_moved(scheduler: Scheduler, damage: Damage) -> None:
    scheduler.submit()
    unknown, damaged = scheduler.submit(), scheduler.submit()
    damage(f"UPDATE job SET status = 'PARKED' WHERE id = {unknown}")
    damage(f"UPDATE spec SET pools = '[]' WHERE id = {damaged}")
    for job in (unknown, damaged):
        with pytest.raises(Conflict, match=f"job-{job} is unreadable: .*; `rota cancel job-{job}` ends it"):
            scheduler.run_request(lambda tx, job=job: edit(tx, job, parse_edit(b'{"name": "x"}'), actor="tester"))
    with pytest.raises(Conflict, match=f"job-{unknown} is unreadable: .*; `rota cancel job-{unknown}` ends it"):
        scheduler.run_request(lambda tx: move(tx, unknown, MoveRequest(first=True), actor="tester"))


def test_unreadable_group_is_shown_and_ends(unlimited_scheduler: Scheduler, damage: Damage) -> None:
    bad, (job,) = unlimited_scheduler.submit_group({})
    good, _ = unlimited_scheduler.submit_group({})
    damage(f"UPDATE job_group SET mode = 'odd' WHERE id = {bad}")
    assert unlimited_scheduler.show_group(bad).unreadable == "its mode 'odd' is unknown"
    assert unlimited_scheduler.show_group(good).unreadable is None
    unlimited_scheduler.end_run(job)
    assert unlimited_scheduler.show_group(bad).is_finished


def test_reservation_of_unknown_state_hides_no_other_and_can_be_cancelled(scheduler: Scheduler, damage: Damage) -> None:
    running, bad, good = scheduler.reserve("x"), scheduler.reserve("y"), scheduler.reserve("z")
    damage(f"UPDATE reservation SET state = 'odd' WHERE id = {bad}")
    shown = {reservation.id: reservation for reservation in scheduler.reader.reservations.list_open()}
    assert set(shown) == {running, bad, good}
    assert (shown[bad].state, shown[bad].reason) == (ReservationState.WAITING, "its state 'odd' is unknown")
    run = scheduler.find_run(lock_owner(running))
    scheduler.crash([RunReport(run=run, pid=1)])
    scheduler.receive(ExitReport(run=run, at=scheduler.clock.moment.timestamp(), code=0))
    assert scheduler.show_reservation(good).status == "RUNNING"
    scheduler.run_request(lambda tx: withdraw(tx, bad, reason="cancelled"))
    assert scheduler.show_reservation(bad).status == "CANCELLED"


def test_job_of_unknown_status_is_not_rewound_or_retried(unlimited_scheduler: Scheduler, damage: Damage) -> None:
    bad = unlimited_scheduler.submit()
    unlimited_scheduler.end_run(bad, 1)
    damage(f"UPDATE job SET status = 'PARKED' WHERE id = {bad}")
    with pytest.raises(
        Conflict, match=f"cannot rewind jobs with an unknown status: job-{bad}; run `rota cancel job-{bad}` first"
    ):
        unlimited_scheduler.rewind(bad)
    unlimited_scheduler.cancel(bad)
    unlimited_scheduler.rewind(bad)
    assert unlimited_scheduler.started_jobs() == [bad, bad]


def test_group_with_a_member_of_unknown_status_ends_after_its_cancel(
    unlimited_scheduler: Scheduler, damage: Damage
) -> None:
    group, (bad, good) = unlimited_scheduler.submit_group({}, {}, on_failure="stop")
    damage(f"UPDATE job SET status = 'PARKED' WHERE id = {bad}")
    unlimited_scheduler.end_run(good)
    assert unlimited_scheduler.show_group(group).counts == {"COMPLETED": 1, "UNREADABLE": 1}
    assert not unlimited_scheduler.show_group(group).is_finished
    unlimited_scheduler.cancel(bad)
    unlimited_scheduler.end_run(bad, None, signal=15, ended_by="stop")
    assert unlimited_scheduler.show_group(group).is_finished


def test_unreadable_lane_fails_its_jobs_at_the_next_start(scheduler: Scheduler, damage: Damage) -> None:
    running, bad = scheduler.submit(), scheduler.submit(flow="f")
    damage(f"UPDATE lane SET demand = 'x' WHERE id = (SELECT lane FROM job WHERE id = {bad})")
    good = scheduler.submit()
    scheduler.crash([RunReport(run=scheduler.find_run(running), pid=1)])
    assert scheduler.status(bad) is Status.FAILED
    assert (scheduler.job(bad).reason or "").startswith("scheduler data error: its pool demand cannot be read")
    assert scheduler.status(good) is Status.QUEUED
