"""The schema knows the same words as the code, and holds the same rules about them: asked of a real database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from typing import Any

import pytest

from rota.core.after import AfterPolicy, EdgeState
from rota.core.lock import LockMode
from rota.core.status import STARTED, TERMINAL, TRANSITIONS, WAITING, Status
from rota.core.wait import WaitKind
from rota.store.sqlite.database import translate
from rota.store.statement import migrations

STORED_KINDS = {WaitKind.DEPENDENCIES, WaitKind.PINNED_HEAD, WaitKind.LOCKS}
RUN_STATUSES = {Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED}
STRANGERS = ["", "queued", "SUCCEEDED", "CANCELED", "PENDING", "wait", "always", "SHARED", "None"]
WORDS = [word.value for words in (Status, WaitKind, AfterPolicy, EdgeState, LockMode) for word in words] + STRANGERS

JOB = {"id": 1, "spec": 1, "chain": 1, "status": "QUEUED", "precedence": 0, "position": 100, "created_at": 1, "lane": 1}
RUN = {"id": 1, "job": 1, "worker": "local/1", "started_at": 1}
EDGE = {"job": 1, "sequence": 0, "predecessor": 1, "chain": 1, "policy": "success", "state": "open"}
LOCK = {"job": 1, "key": "repo", "mode": "shared", "state": "idle", "precedence": 0, "position": 100, "created_at": 1}


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for script in migrations(translate):
            connection.executescript(script)
        yield connection


@pytest.fixture
def schema(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    database.execute("BEGIN")
    yield database
    database.execute("ROLLBACK")


def _add(schema: sqlite3.Connection, table: str, row: dict[str, Any]) -> bool:
    """Whether the table accepts the row, and then has it."""
    places = ", ".join(f":{column}" for column in row)
    try:
        schema.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", row)
    except sqlite3.IntegrityError:
        return False
    return True


def _takes(schema: sqlite3.Connection, table: str, row: dict[str, Any], **columns: Any) -> bool:
    """Whether the table would accept the row."""
    schema.execute("SAVEPOINT question")
    accepted = _add(schema, table, {**row, **columns})
    schema.execute("ROLLBACK TO question")
    return accepted


def _job_columns() -> Iterator[dict[str, Any]]:
    """Every combination of the columns that a job's status has to agree with."""
    for finished_at, started_at, ready, stirred, kind in product(
        (None, 3), (None, 2), (0, 1), (0, 1), (None, "dependencies")
    ):
        yield {
            "finished_at": finished_at, "started_at": started_at, "ready": ready, "stirred": stirred, "wait_kind": kind,
        }  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_dec_006_a_jobs_status_is_one_of_the_statuses(schema: sqlite3.Connection, word: str) -> None:
    accepted = any(_takes(schema, "job", JOB, status=word, **columns) for columns in _job_columns())
    assert accepted is (word in set(Status))


@pytest.mark.parametrize("word", WORDS)
def test_dec_006_a_runs_status_is_what_a_started_job_can_end_as(schema: sqlite3.Connection, word: str) -> None:
    assert _takes(schema, "run", RUN, status=word, finished_at=2) is (word in RUN_STATUSES)
    assert {to for status in STARTED for to in TRANSITIONS[status] if to in TERMINAL} == RUN_STATUSES


def test_a_run_without_a_status_has_not_ended(schema: sqlite3.Connection) -> None:
    assert _takes(schema, "run", RUN, status=None, finished_at=None)
    assert not _takes(schema, "run", RUN, status=None, finished_at=2)
    assert not _takes(schema, "run", RUN, status="COMPLETED", finished_at=None)


@pytest.mark.parametrize("word", WORDS)
def test_only_the_kinds_of_the_gates_up_to_locks_are_stored(schema: sqlite3.Connection, word: str) -> None:
    assert _takes(schema, "job", JOB, status="WAITING_ON_DEPS", wait_kind=word) is (word in STORED_KINDS)


@pytest.mark.parametrize("word", WORDS)
def test_edges_and_locks_use_the_words_of_their_enums(schema: sqlite3.Connection, word: str) -> None:
    assert _takes(schema, "edge", EDGE, policy=word) is (word in set(AfterPolicy))
    assert _takes(schema, "edge", EDGE, state=word) is (word in set(EdgeState))
    assert _takes(schema, "lock", LOCK, mode=word) is (word in set(LockMode))


@pytest.mark.parametrize("status", Status)
def test_the_columns_agree_with_the_status(schema: sqlite3.Connection, status: Status) -> None:
    """Finished exactly when terminal; of the rest, started exactly when claimed or running; a stored kind exactly in
    the two statuses that name one; ready only in the queue; marked for a look only while it waits."""
    for columns in _job_columns():
        is_marked_rightly = not columns["stirred"] or (
            columns["finished_at"] is None and columns["started_at"] is None and status in WAITING
        )
        expected = (
            (columns["finished_at"] is not None) is (status in TERMINAL)
            and (status in TERMINAL or (columns["started_at"] is not None) is (status in STARTED))
            and (columns["wait_kind"] is not None) is (status in {Status.WAITING_ON_DEPS, Status.WAITING_ON_LOCKS})
            and (not columns["ready"] or status is Status.QUEUED)
            and is_marked_rightly
        )
        assert _takes(schema, "job", JOB, status=status.value, **columns) is expected, columns


def _job(job: int, status: Status) -> dict[str, Any]:
    """A whole row of this status, in the chain of job 1."""
    return {
        **JOB,
        "id": job,
        "status": status.value,
        "started_at": None if status in WAITING else 2,
        "finished_at": 3 if status in TERMINAL else None,
        "wait_kind": {Status.WAITING_ON_DEPS: "dependencies", Status.WAITING_ON_LOCKS: "locks"}.get(status),
    }


@pytest.mark.parametrize("first", Status)
@pytest.mark.parametrize("second", Status)
def test_dec_001_a_chain_has_one_active_job_at_most(schema: sqlite3.Connection, first: Status, second: Status) -> None:
    assert _add(schema, "job", _job(1, first))
    assert _add(schema, "job", _job(2, second)) is (first in TERMINAL or second in TERMINAL)


@pytest.mark.parametrize("first", Status)
@pytest.mark.parametrize("second", Status)
def test_a_unique_key_is_one_active_jobs_at_most(schema: sqlite3.Connection, first: Status, second: Status) -> None:
    assert _add(schema, "job", {**_job(1, first), "unique_key": "k"})
    assert _add(schema, "job", {**_job(2, second), "chain": 2, "unique_key": "other"})
    is_free = first in TERMINAL or second in TERMINAL
    assert _add(schema, "job", {**_job(3, second), "chain": 3, "unique_key": "k"}) is is_free


def test_inv_003_a_worker_runs_one_job_at_a_time(schema: sqlite3.Connection) -> None:
    assert _add(schema, "run", RUN)
    assert not _takes(schema, "run", RUN, id=2, job=2)
    assert _takes(schema, "run", RUN, id=2, job=2, worker="local/2")
    assert _takes(schema, "run", RUN, id=2, job=2, status="FAILED", finished_at=2)


def test_dec_001_a_job_has_one_open_run_at_most(schema: sqlite3.Connection) -> None:
    assert _add(schema, "run", RUN)
    assert not _takes(schema, "run", RUN, id=2, worker="local/2")


def test_a_key_has_one_exclusive_holder_at_most(schema: sqlite3.Connection) -> None:
    assert _add(schema, "lock", {**LOCK, "mode": "exclusive", "state": "held"})
    assert not _takes(schema, "lock", LOCK, job=2, mode="exclusive", state="held")
    assert _takes(schema, "lock", LOCK, job=2, mode="exclusive", state="contending")
    assert _takes(schema, "lock", LOCK, job=2, key="other", mode="exclusive", state="held")
