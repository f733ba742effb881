"""Prefetching of many short jobs: each runs once and in order, through kills, pauses and cancels."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from tests.e2e.rig import ChildControl, Rota, eventually, kill

COUNT = 200
MIN_MIDDLE, MAX_MIDDLE = 30, 150
"""In the middle of a row, at least and at most this many jobs have run. The gates prevent more."""
APPEND_ID = 'echo "$ROTA_JOB" >> "$0"'
WAIT_AND_APPEND_ID = 'read -r code < "$1"; echo "$ROTA_JOB" >> "$0"'
UNKNOWN = {"exit status unknown", "Scheduler crash recovery"}


class JobRow:
    """A row of short jobs, each of which appends its id to a file.

    In the middle, as many jobs as run at a time wait at gates, so an action there precedes the start of the last jobs.
    """

    def __init__(self, rota: Rota, children: ChildControl, width: int) -> None:
        self.rota = rota
        self._children = children
        self._ran = children.path / "ran"
        self._ran.touch()
        self._gates = [f"gate{number}" for number in range(width)]
        rota.set_global_size(0)
        commands = [["/bin/sh", "-c", APPEND_ID, str(self._ran)] for _ in range(COUNT)]
        for index, gate in enumerate(self._gates, MAX_MIDDLE):
            commands[index] = ["/bin/sh", "-c", WAIT_AND_APPEND_ID, str(self._ran), str(children.make_gate(gate))]
        response = rota.api("POST", "/api/jobs/batch", {"jobs": [{"command": command} for command in commands]})
        assert response.status == 201, response
        self.jobs: list[str] = response.json()["jobs"]
        rota.set_global_size(width)

    @property
    def ran(self) -> list[str]:
        """Ids of the jobs that ran, in that order."""
        return self._ran.read_text().splitlines()

    def wait_for_middle(self) -> None:
        eventually(lambda: len(self.ran) >= MIN_MIDDLE, description=f"{MIN_MIDDLE} jobs that ran")
        assert len(self.ran) <= MAX_MIDDLE

    def open_gates(self) -> None:
        for gate in self._gates:
            self._children.release(gate)

    def finish(self) -> list[dict[str, Any]]:
        """Release the gates and return the records of all jobs when they have ended."""
        self.open_gates()
        for job in self.jobs:
            self.rota.wait_for_end(job)
        return self.records()

    def records(self) -> list[dict[str, Any]]:
        return [job for job in self.rota.jobs() if job["id"] in set(self.jobs)]

    def by_status(self) -> dict[str, set[str]]:
        by_status: dict[str, set[str]] = {}
        for record in self.records():
            by_status.setdefault(record["status"], set()).add(record["id"])
        return by_status


def causes(rota: Rota) -> Counter[str]:
    """Count the dispatched jobs by cause."""
    counts: Counter[str] = Counter()
    last = 0
    while events := rota.api("GET", f"/api/events?format=json&limit=1000&since={last}").json()["events"]:
        counts.update(event["cause"] for event in events if event["kind"] == "job.dispatched")
        last = events[-1]["seq"]
    return counts


def assert_times_in_order(records: list[dict[str, Any]]) -> None:
    for record in records:
        started, ended = (datetime.fromisoformat(record[name]) for name in ("started_at", "finished_at"))
        assert started <= ended, record


@pytest.mark.parametrize("width", [1, 3])
def test_short_jobs_run_once_and_in_order(rota_on_each_store: Rota, children: ChildControl, width: int) -> None:
    row = JobRow(rota_on_each_store, children, width)
    records = row.finish()
    assert Counter(row.ran) == Counter(row.jobs)
    assert {record["status"] for record in records} == {"COMPLETED"}
    assert_times_in_order(records)
    assert [record["id"] for record in sorted(records, key=lambda record: record["run"]["id"][4:].zfill(9))] == row.jobs
    if width == 1:
        assert row.ran == row.jobs
    started = causes(rota_on_each_store)
    assert started.total() == COUNT
    assert started["prefetch"] > COUNT // 2, started


def test_scheduler_crash_loses_and_repeats_no_job(rota_on_each_store: Rota, children: ChildControl) -> None:
    row = JobRow(rota_on_each_store, children, 3)
    scheduler, supervisor = rota_on_each_store.scheduler_pid, rota_on_each_store.supervisor_pid
    row.wait_for_middle()
    kill(scheduler)
    rota_on_each_store.start()
    assert rota_on_each_store.supervisor_pid == supervisor
    records = row.finish()
    assert Counter(row.ran) == Counter(row.jobs)
    assert {record["status"] for record in records} == {"COMPLETED"}
    assert_times_in_order(records)
    assert causes(rota_on_each_store)["prefetch"]


@pytest.mark.parametrize("victims", [("supervisor",), ("scheduler", "supervisor"), ("supervisor", "scheduler")])
def test_supervisor_crash_repeats_no_job(
    rota_on_each_store: Rota, children: ChildControl, victims: tuple[str, ...]
) -> None:
    """The exit status of the jobs that ran is unknown. No job runs a second time."""
    row = JobRow(rota_on_each_store, children, 3)
    pids = {"scheduler": rota_on_each_store.scheduler_pid, "supervisor": rota_on_each_store.supervisor_pid}
    row.wait_for_middle()
    for victim in victims:
        kill(pids[victim])
    rota_on_each_store.start()
    records = row.finish()
    assert max(Counter(row.ran).values()) == 1
    failed = [record for record in records if record["status"] != "COMPLETED"]
    assert len(failed) <= 3 * len(victims)
    assert {(record["status"], record["reason"]) for record in failed} <= {("FAILED", reason) for reason in UNKNOWN}
    assert {*row.ran} >= {*row.jobs} - {record["id"] for record in failed}
    assert_times_in_order(records)
    assert causes(rota_on_each_store)["prefetch"]


def test_no_job_starts_after_the_response_to_a_pause(rota_on_each_store: Rota, children: ChildControl) -> None:
    row = JobRow(rota_on_each_store, children, 3)
    row.wait_for_middle()
    assert rota_on_each_store.api("POST", "/api/scheduler/pause", {"scope": "global"}).status == 200
    waiting = row.by_status()["QUEUED"]
    started = causes(rota_on_each_store)
    assert started["prefetch"]
    assert not waiting & {*row.ran}
    gated = {*row.jobs[MAX_MIDDLE : MAX_MIDDLE + 3]}

    def only_gated_jobs_run() -> bool:
        return row.by_status().get("RUNNING", set()) <= gated

    eventually(only_gated_jobs_run, description="the end of all started jobs")
    assert row.by_status()["QUEUED"] == waiting
    assert causes(rota_on_each_store) == started
    assert not waiting & {*row.ran}
    assert rota_on_each_store.api("POST", "/api/scheduler/resume", {"scope": "global"}).status == 200
    assert {record["status"] for record in row.finish()} == {"COMPLETED"}
    assert Counter(row.ran) == Counter(row.jobs)


def test_cancelled_job_never_runs(rota_on_each_store: Rota, children: ChildControl) -> None:
    row = JobRow(rota_on_each_store, children, 3)
    row.wait_for_middle()
    last = row.jobs[-1]
    rota_on_each_store.run("cancel", last)
    records = row.finish()
    assert {record["id"]: record["status"] for record in records} == dict.fromkeys(row.jobs, "COMPLETED") | {
        last: "CANCELLED"
    }
    assert Counter(row.ran) == Counter(row.jobs[:-1])
    assert causes(rota_on_each_store)["prefetch"]


def test_no_prefetched_job_starts_after_down(rota: Rota, children: ChildControl) -> None:
    """Also if the supervisor holds a prefetched job and the scheduler is idle."""
    rota.start()
    rota.post_job(children.gated("first"))
    assert children.read_lines() == ["first begins"]
    rota.post_job(["true"])
    for command in (children.gated("last"), children.immediate("queued"), children.immediate("third")):
        rota.post_job(command)
    children.release("first", 0)
    assert children.read_lines(2) == ["first ends", "last begins"]
    stopping = rota.spawn("down", "--grace", "60s")
    eventually(lambda: rota.status()["stopping"], description="stopping")
    children.release("last", 0)
    rota.finish(stopping)
    assert children.read_available() == ["last ends"]
