"""The schema itself holds the invariants: whoever writes past the verbs is refused."""

from __future__ import annotations

import pytest

from harness import Raw, SchemaRefused
from rota.core.status import STARTED, TERMINAL, Status
from store.desk import Desk

ACTIVE_JOB = (
    "INSERT INTO job (id, spec, chain, status, precedence, position, created_at, lane{more}) "
    "SELECT {id}, 1, {chain}, '{status}', 0, 0, 0, 1{values}"
)


def insert_job(raw: Raw, *, id: int, chain: int, status: str, more: str = "", values: str = "") -> None:  # noqa: A002
    raw(ACTIVE_JOB.format(id=id, chain=chain, status=status, more=more, values=values))


@pytest.fixture
def running(desk: Desk) -> Desk:
    """Job 1 runs as run 1 on local/1 and holds `k`; job 2 waits for it."""
    desk.add(locks=["k"])
    desk.add(locks=["k"])
    desk.look()
    desk.claim()
    return desk


def test_a_job_has_one_open_run(running: Desk) -> None:
    with pytest.raises(SchemaRefused):
        running.raw("INSERT INTO run (id, job, worker, started_at) VALUES (9, 1, 'local/9', 0)")


def test_inv_003_a_worker_has_one_open_run(running: Desk) -> None:
    with pytest.raises(SchemaRefused):
        running.raw("INSERT INTO run (id, job, worker, started_at) VALUES (9, 2, 'local/1', 0)")


def test_a_worker_and_a_job_may_have_any_number_of_ended_runs(running: Desk) -> None:
    for run in (8, 9):
        running.raw(
            f"INSERT INTO run (id, job, worker, started_at, status, finished_at) "
            f"VALUES ({run}, 1, 'local/1', 0, 'FAILED', 0)"
        )


def test_a_chain_has_one_active_job(running: Desk) -> None:
    with pytest.raises(SchemaRefused):
        insert_job(running.raw, id=9, chain=1, status="QUEUED")
    insert_job(running.raw, id=9, chain=1, status="FAILED", more=", finished_at", values=", 0")


def test_a_lock_has_one_exclusive_holder(running: Desk) -> None:
    with pytest.raises(SchemaRefused):
        running.raw("UPDATE lock SET state = 'held' WHERE job = 2")


def test_a_lane_never_counts_below_nothing(running: Desk) -> None:
    with pytest.raises(SchemaRefused):
        running.raw("UPDATE lane SET ready = -1")


@pytest.mark.parametrize(
    "change",
    [
        "status = 'DONE'",
        "status = 'queued'",
        "ready = 1",
        "stirred = 1",
        "wait_kind = 'dependencies'",
        "finished_at = 0",
        "status = 'COMPLETED'",
        "status = 'WAITING_ON_DEPS'",
        "unmet = -1",
        "status = NULL",
    ],
)
def test_a_running_job_cannot_be_made_into_nonsense(running: Desk, change: str) -> None:
    with pytest.raises(SchemaRefused):
        running.raw(f"UPDATE job SET {change} WHERE id = 1")


@pytest.mark.parametrize("change", ["status = 'RUNNING'", "status = 'COMPLETED'", "finished_at = 0"])
def test_nor_its_run(running: Desk, change: str) -> None:
    with pytest.raises(SchemaRefused):
        running.raw(f"UPDATE run SET {change} WHERE id = 1")


def test_what_a_record_refers_to_is_not_removed(running: Desk) -> None:
    with pytest.raises(SchemaRefused):
        running.raw("DELETE FROM job WHERE id = 1")


def test_the_schema_knows_exactly_the_statuses_of_the_table(desk: Desk) -> None:
    desk.add()
    for n, status in enumerate(Status, 10):
        columns = {
            **({"finished_at": "0"} if status in TERMINAL else {}),
            **({"started_at": "0"} if status in STARTED else {}),
            **({"wait_kind": "'locks'"} if status.startswith("WAITING") else {}),
        }
        insert_job(
            desk.raw,
            id=n,
            chain=n,
            status=status,
            more="".join(f", {name}" for name in columns),
            values="".join(f", {value}" for value in columns.values()),
        )
