"""The database schema accepts exactly the values and combinations that the code uses. Runs on a real database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from typing import Any

import pytest

from rota.db.sqlite.database import translate_statement
from rota.db.statements import load_migrations
from rota.kernel.edges import DependencyPolicy, EdgeState
from rota.kernel.locks import LockMode
from rota.kernel.status import STARTED, STORED, TERMINAL, TRANSITIONS, WAITING, Status
from rota.kernel.verdict import WaitKind

STORED_KINDS = {WaitKind.DEPENDENCIES, WaitKind.PINNED_HEAD, WaitKind.LOCKS}
RUN_STATUSES = {Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED}
UNKNOWN_WORDS = ["", "queued", "SUCCEEDED", "CANCELED", "PENDING", "wait", "always", "SHARED", "None"]
WORDS = [
    word.value for words in (Status, WaitKind, DependencyPolicy, EdgeState, LockMode) for word in words
] + UNKNOWN_WORDS

JOB = {"id": 1, "spec": 1, "chain": 1, "status": "QUEUED", "precedence": 0, "position": 100, "created_at": 1, "lane": 1}
RUN = {"id": 1, "job": 1, "worker": "local/1", "started_at": 1}
EDGE = {"job": 1, "sequence": 0, "predecessor": 1, "chain": 1, "policy": "success", "state": "open"}
LOCK = {"job": 1, "key": "repo", "mode": "shared", "state": "idle", "precedence": 0, "position": 100, "created_at": 1}


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for script in load_migrations(translate_statement):
            connection.executescript(script)
        yield connection


@pytest.fixture
def schema(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    database.execute("BEGIN")
    yield database
    database.execute("ROLLBACK")


def _insert(schema: sqlite3.Connection, table: str, row: dict[str, Any]) -> bool:
    """Insert the row and return whether the table accepted it."""
    placeholders = ", ".join(f":{column}" for column in row)
    try:
        schema.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({placeholders})", row)
    except sqlite3.IntegrityError:
        return False
    return True


def _accepts(schema: sqlite3.Connection, table: str, row: dict[str, Any], **columns: Any) -> bool:
    """Return whether the table would accept the row."""
    schema.execute("SAVEPOINT probe")
    accepted = _insert(schema, table, {**row, **columns})
    schema.execute("ROLLBACK TO probe")
    return accepted


def _job_columns() -> Iterator[dict[str, Any]]:
    """Yield every combination of the columns that must agree with a job's status."""
    for finished_at, started_at, ready, dirty, kind in product(
        (None, 3), (None, 2), (0, 1), (0, 1), (None, "dependencies")
    ):
        yield {"finished_at": finished_at, "started_at": started_at, "ready": ready, "dirty": dirty, "wait_kind": kind}


@pytest.mark.parametrize("word", WORDS)
def test_dec_006_schema_accepts_only_stored_job_statuses(schema: sqlite3.Connection, word: str) -> None:
    accepted = any(_accepts(schema, "job", JOB, status=word, **columns) for columns in _job_columns())
    assert accepted is (word in STORED)


@pytest.mark.parametrize("word", WORDS)
def test_dec_006_schema_accepts_only_run_statuses(schema: sqlite3.Connection, word: str) -> None:
    assert _accepts(schema, "run", RUN, status=word, finished_at=2, exit_code=0) is (word in RUN_STATUSES)
    assert {to for status in STARTED for to in TRANSITIONS[status] if to in TERMINAL} == RUN_STATUSES


@pytest.mark.parametrize("status", sorted(RUN_STATUSES))
def test_only_failed_run_may_lack_an_exit_code(schema: sqlite3.Connection, status: Status) -> None:
    is_accepted = _accepts(schema, "run", RUN, status=status.value, finished_at=2, exit_code=None)
    assert is_accepted is (status is Status.FAILED)


def test_run_without_status_is_open(schema: sqlite3.Connection) -> None:
    assert _accepts(schema, "run", RUN, status=None, finished_at=None)
    assert not _accepts(schema, "run", RUN, status=None, finished_at=2)
    assert not _accepts(schema, "run", RUN, status=None, finished_at=None, exit_code=1)
    assert not _accepts(schema, "run", RUN, status="COMPLETED", finished_at=None)


@pytest.mark.parametrize("word", WORDS)
def test_schema_accepts_only_stored_wait_kinds(schema: sqlite3.Connection, word: str) -> None:
    assert _accepts(schema, "job", JOB, status="WAITING_ON_DEPS", wait_kind=word) is (word in STORED_KINDS)


@pytest.mark.parametrize("word", WORDS)
def test_schema_accepts_only_enum_values_for_edges_and_locks(schema: sqlite3.Connection, word: str) -> None:
    assert _accepts(schema, "edge", EDGE, policy=word) is (word in set(DependencyPolicy))
    assert _accepts(schema, "edge", EDGE, state=word) is (word in set(EdgeState))
    assert _accepts(schema, "lock", LOCK, mode=word) is (word in set(LockMode))


@pytest.mark.parametrize("status", sorted(STORED))
def test_job_columns_agree_with_status(schema: sqlite3.Connection, status: Status) -> None:
    """A job has an end time exactly when it is terminal. Otherwise it has a start time exactly when it is claimed or
    running. It has a wait kind exactly in the two waiting statuses that need one. Only a queued job is ready, and only
    a waiting job is dirty."""
    for columns in _job_columns():
        is_dirty_allowed = not columns["dirty"] or (
            columns["finished_at"] is None and columns["started_at"] is None and status in WAITING
        )
        expected = (
            (columns["finished_at"] is not None) is (status in TERMINAL)
            and (status in TERMINAL or (columns["started_at"] is not None) is (status in STARTED))
            and (columns["wait_kind"] is not None) is (status in {Status.WAITING_ON_DEPS, Status.WAITING_ON_LOCKS})
            and (not columns["ready"] or status is Status.QUEUED)
            and is_dirty_allowed
        )
        assert _accepts(schema, "job", JOB, status=status.value, **columns) is expected, columns


def _job(job: int, status: Status) -> dict[str, Any]:
    """Make a complete row with this status, in the chain of job 1."""
    return {
        **JOB,
        "id": job,
        "status": status.value,
        "started_at": None if status in WAITING else 2,
        "finished_at": 3 if status in TERMINAL else None,
        "wait_kind": {Status.WAITING_ON_DEPS: "dependencies", Status.WAITING_ON_LOCKS: "locks"}.get(status),
    }


@pytest.mark.parametrize("first", sorted(STORED))
@pytest.mark.parametrize("second", sorted(STORED))
def test_dec_001_chain_has_at_most_one_active_job(schema: sqlite3.Connection, first: Status, second: Status) -> None:
    assert _insert(schema, "job", _job(1, first))
    assert _insert(schema, "job", _job(2, second)) is (first in TERMINAL or second in TERMINAL)


@pytest.mark.parametrize("first", sorted(STORED))
@pytest.mark.parametrize("second", sorted(STORED))
def test_unique_key_has_at_most_one_active_job(schema: sqlite3.Connection, first: Status, second: Status) -> None:
    assert _insert(schema, "job", {**_job(1, first), "unique_key": "k"})
    assert _insert(schema, "job", {**_job(2, second), "chain": 2, "unique_key": "other"})
    is_free = first in TERMINAL or second in TERMINAL
    assert _insert(schema, "job", {**_job(3, second), "chain": 3, "unique_key": "k"}) is is_free


def test_inv_003_worker_runs_one_job_at_a_time(schema: sqlite3.Connection) -> None:
    assert _insert(schema, "run", RUN)
    assert not _accepts(schema, "run", RUN, id=2, job=2)
    assert _accepts(schema, "run", RUN, id=2, job=2, worker="local/2")
    assert _accepts(schema, "run", RUN, id=2, job=2, status="FAILED", finished_at=2)


def test_dec_001_job_has_at_most_one_open_run(schema: sqlite3.Connection) -> None:
    assert _insert(schema, "run", RUN)
    assert not _accepts(schema, "run", RUN, id=2, worker="local/2")


def test_lock_key_has_at_most_one_exclusive_holder(schema: sqlite3.Connection) -> None:
    assert _insert(schema, "lock", {**LOCK, "mode": "exclusive", "state": "held"})
    assert not _accepts(schema, "lock", LOCK, job=2, mode="exclusive", state="held")
    assert _accepts(schema, "lock", LOCK, job=2, mode="exclusive", state="contending")
    assert _accepts(schema, "lock", LOCK, job=2, key="other", mode="exclusive", state="held")
