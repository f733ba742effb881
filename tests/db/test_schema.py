"""Invariants in the schema: raw SQL that violates them is refused."""

from __future__ import annotations

import pytest

from rota.kernel.status import STARTED, STORED, TERMINAL
from tests.db.harness import StoreHarness
from tests.harness import SchemaRefused, SqlRunner

ACTIVE_JOB = (
    "INSERT INTO job (id, spec, chain, status, precedence, position, created_at, lane{more}) "
    "SELECT {id}, 1, {chain}, '{status}', 0, 0, 0, 1{values}"
)


def insert_job(run_sql: SqlRunner, *, id: int, chain: int, status: str, more: str = "", values: str = "") -> None:  # noqa: A002
    run_sql(ACTIVE_JOB.format(id=id, chain=chain, status=status, more=more, values=values))


@pytest.fixture
def running(harness: StoreHarness) -> StoreHarness:
    """Harness where job 1 runs as run 1 on local/1 and holds `k`, and job 2 waits for `k`."""
    harness.add(locks=["k"])
    harness.add(locks=["k"])
    harness.evaluate()
    harness.claim()
    return harness


def test_job_has_at_most_one_open_run(running: StoreHarness) -> None:
    with pytest.raises(SchemaRefused):
        running.run_sql("INSERT INTO run (id, job, worker, started_at) VALUES (9, 1, 'local/9', 0)")


def test_inv_003_worker_has_at_most_one_open_run(running: StoreHarness) -> None:
    with pytest.raises(SchemaRefused):
        running.run_sql("INSERT INTO run (id, job, worker, started_at) VALUES (9, 2, 'local/1', 0)")


def test_worker_and_job_can_have_many_ended_runs(running: StoreHarness) -> None:
    for run in (8, 9):
        running.run_sql(
            f"INSERT INTO run (id, job, worker, started_at, status, finished_at) "
            f"VALUES ({run}, 1, 'local/1', 0, 'FAILED', 0)"
        )


def test_chain_has_at_most_one_active_job(running: StoreHarness) -> None:
    with pytest.raises(SchemaRefused):
        insert_job(running.run_sql, id=9, chain=1, status="QUEUED")
    insert_job(running.run_sql, id=9, chain=1, status="FAILED", more=", finished_at", values=", 0")


def test_lock_has_at_most_one_exclusive_holder(running: StoreHarness) -> None:
    with pytest.raises(SchemaRefused):
        running.run_sql("UPDATE lock SET state = 'held' WHERE job = 2")


def test_ready_count_cannot_be_negative(running: StoreHarness) -> None:
    with pytest.raises(SchemaRefused):
        running.run_sql("UPDATE lane SET ready_count = -1")


@pytest.mark.parametrize(
    "change",
    [
        "status = 'COMPLETED_RESULT'",
        "status = 'queued'",
        "ready = 1",
        "dirty = 1",
        "wait_kind = 'dependencies'",
        "finished_at = 0",
        "status = 'COMPLETED'",
        "status = 'WAITING_ON_DEPS'",
        "unmet_edges = -1",
        "status = NULL",
    ],
)
def test_inconsistent_job_row_is_refused(running: StoreHarness, change: str) -> None:
    with pytest.raises(SchemaRefused):
        running.run_sql(f"UPDATE job SET {change} WHERE id = 1")


@pytest.mark.parametrize("change", ["status = 'RUNNING'", "status = 'COMPLETED'", "finished_at = 0"])
def test_inconsistent_run_row_is_refused(running: StoreHarness, change: str) -> None:
    with pytest.raises(SchemaRefused):
        running.run_sql(f"UPDATE run SET {change} WHERE id = 1")


def test_referenced_job_cannot_be_deleted(running: StoreHarness) -> None:
    with pytest.raises(SchemaRefused):
        running.run_sql("DELETE FROM job WHERE id = 1")


def test_schema_accepts_exactly_the_known_statuses(harness: StoreHarness) -> None:
    harness.add()
    for n, status in enumerate(sorted(STORED), 10):
        columns = {
            **({"finished_at": "0"} if status in TERMINAL else {}),
            **({"started_at": "0"} if status in STARTED else {}),
            **({"wait_kind": "'locks'"} if status.startswith("WAITING") else {}),
        }
        insert_job(
            harness.run_sql,
            id=n,
            chain=n,
            status=status,
            more="".join(f", {name}" for name in columns),
            values="".join(f", {value}" for value in columns.values()),
        )
