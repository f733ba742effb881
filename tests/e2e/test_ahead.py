"""Many short commands in a row: each runs once and in its turn, whoever is killed and whatever is asked meanwhile."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from e2e.rig import Rota, Stage, eventually, kill

COUNT = 200
SOME, MOST = 30, 150
"""It is in the middle when so many have run; no more do before the gates are opened."""
NOTE = 'echo "$ROTA_JOB" >> "$0"'
HELD = 'read -r code < "$1"; echo "$ROTA_JOB" >> "$0"'
UNKNOWN = {"exit status unknown", "Scheduler crash recovery"}


class Row:
    """Brief commands behind one another, of which each notes that it ran. In the middle some wait at gates, as many as
    run at a time: whatever happens there happens before the last have begun."""

    def __init__(self, rota: Rota, stage: Stage, width: int) -> None:
        self.rota = rota
        self._stage = stage
        self._ran = stage.path / "ran"
        self._ran.touch()
        self._gates = [f"gate{number}" for number in range(width)]
        rota.set_global(0)
        commands = [["/bin/sh", "-c", NOTE, str(self._ran)] for _ in range(COUNT)]
        for place, gate in enumerate(self._gates, MOST):
            commands[place] = ["/bin/sh", "-c", HELD, str(self._ran), str(stage.gate(gate))]
        answer = rota.api("POST", "/api/jobs/batch", {"jobs": [{"command": command} for command in commands]})
        assert answer.status == 201, answer
        self.jobs: list[str] = answer.json()["jobs"]
        rota.set_global(width)

    @property
    def ran(self) -> list[str]:
        """Who did, in that order."""
        return self._ran.read_text().splitlines()

    def reach_the_middle(self) -> None:
        eventually(lambda: len(self.ran) >= SOME, what=f"{SOME} that ran")
        assert len(self.ran) <= MOST

    def open_the_gates(self) -> None:
        for gate in self._gates:
            self._stage.release(gate)

    def finish(self) -> list[dict[str, Any]]:
        """The records of all, when all have ended."""
        self.open_the_gates()
        for job in self.jobs:
            self.rota.ended(job)
        return self.records()

    def records(self) -> list[dict[str, Any]]:
        return [job for job in self.rota.jobs() if job["id"] in set(self.jobs)]

    def by_status(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for record in self.records():
            found.setdefault(record["status"], set()).add(record["id"])
        return found


def causes(rota: Rota) -> Counter[str]:
    """Why jobs were begun."""
    found: Counter[str] = Counter()
    last = 0
    while events := rota.api("GET", f"/api/events?format=json&limit=1000&since={last}").json()["events"]:
        found.update(event["cause"] for event in events if event["kind"] == "job.dispatched")
        last = events[-1]["seq"]
    return found


def check_times(records: list[dict[str, Any]]) -> None:
    for record in records:
        begun, ended = (datetime.fromisoformat(record[name]) for name in ("started_at", "finished_at"))
        assert begun <= ended, record


@pytest.mark.parametrize("width", [1, 3])
def test_each_runs_once_and_in_its_turn(keeper: Rota, stage: Stage, width: int) -> None:
    row = Row(keeper, stage, width)
    records = row.finish()
    assert Counter(row.ran) == Counter(row.jobs)
    assert {record["status"] for record in records} == {"COMPLETED"}
    check_times(records)
    assert [record["id"] for record in sorted(records, key=lambda record: record["run"]["id"][4:].zfill(9))] == row.jobs
    if width == 1:
        assert row.ran == row.jobs
    begun = causes(keeper)
    assert begun.total() == COUNT
    assert begun["ahead"] > COUNT // 2, begun


def test_the_scheduler_is_killed_in_the_middle(keeper: Rota, stage: Stage) -> None:
    row = Row(keeper, stage, 3)
    scheduler, supervisor = keeper.scheduler, keeper.supervisor
    row.reach_the_middle()
    kill(scheduler)
    keeper.start()
    assert keeper.supervisor == supervisor
    records = row.finish()
    assert Counter(row.ran) == Counter(row.jobs)
    assert {record["status"] for record in records} == {"COMPLETED"}
    check_times(records)
    assert causes(keeper)["ahead"]


@pytest.mark.parametrize("victims", [("supervisor",), ("scheduler", "supervisor"), ("supervisor", "scheduler")])
def test_the_supervisor_is_killed_in_the_middle(keeper: Rota, stage: Stage, victims: tuple[str, ...]) -> None:
    """Of who ran then nobody can say how he ended; nobody runs a second time."""
    row = Row(keeper, stage, 3)
    found = {"scheduler": keeper.scheduler, "supervisor": keeper.supervisor}
    row.reach_the_middle()
    for victim in victims:
        kill(found[victim])
    keeper.start()
    records = row.finish()
    assert max(Counter(row.ran).values()) == 1
    failed = [record for record in records if record["status"] != "COMPLETED"]
    assert len(failed) <= 3 * len(victims)
    assert {(record["status"], record["reason"]) for record in failed} <= {("FAILED", reason) for reason in UNKNOWN}
    assert {*row.ran} >= {*row.jobs} - {record["id"] for record in failed}
    check_times(records)
    assert causes(keeper)["ahead"]


def test_after_the_answer_of_a_pause_nothing_starts(keeper: Rota, stage: Stage) -> None:
    row = Row(keeper, stage, 3)
    row.reach_the_middle()
    assert keeper.api("POST", "/api/scheduler/pause", {"scope": "global"}).status == 200
    waiting = row.by_status()["QUEUED"]
    begun = causes(keeper)
    assert begun["ahead"]
    assert not waiting & {*row.ran}
    held = {*row.jobs[MOST : MOST + 3]}

    def nothing_but_the_held_runs() -> bool:
        return row.by_status().get("RUNNING", set()) <= held

    eventually(nothing_but_the_held_runs, what="an end of all that had begun")
    assert row.by_status()["QUEUED"] == waiting
    assert causes(keeper) == begun
    assert not waiting & {*row.ran}
    assert keeper.api("POST", "/api/scheduler/resume", {"scope": "global"}).status == 200
    assert {record["status"] for record in row.finish()} == {"COMPLETED"}
    assert Counter(row.ran) == Counter(row.jobs)


def test_one_that_is_cancelled_in_the_middle_never_runs(keeper: Rota, stage: Stage) -> None:
    row = Row(keeper, stage, 3)
    row.reach_the_middle()
    last = row.jobs[-1]
    keeper.ask("cancel", last)
    records = row.finish()
    assert {record["id"]: record["status"] for record in records} == dict.fromkeys(row.jobs, "COMPLETED") | {
        last: "CANCELLED"
    }
    assert Counter(row.ran) == Counter(row.jobs[:-1])
    assert causes(keeper)["ahead"]


def test_after_a_down_nothing_starts(rota: Rota, stage: Stage) -> None:
    """Though the supervisor was given what comes next, and the scheduler has nothing else to do."""
    rota.start()
    rota.post(stage.actor("first"))
    assert stage.hear() == ["first begins"]
    rota.post(["true"])
    for line in (stage.actor("last"), stage.walk_on("queued"), stage.walk_on("third")):
        rota.post(line)
    stage.release("first", 0)
    assert stage.hear(2) == ["first ends", "last begins"]
    stopping = rota.begin("down", "--grace", "60s")
    eventually(lambda: rota.status()["stopping"], what="that it is stopping")
    stage.release("last", 0)
    rota.end(stopping)
    assert stage.heard() == ["last ends"]
