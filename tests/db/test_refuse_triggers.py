"""INV-001 and INV-002 in the schema: raw SQL that violates them is refused with the same messages."""

from __future__ import annotations

import re

import pytest

from rota.db.statements import REFUSE_DIRECTIVE, load_migrations, load_statements
from rota.ids import JobId
from rota.kernel.run import MUTABLE_FIELDS, Run
from tests.db.harness import FAILED_RESULT, NOW, StoreHarness
from tests.db.test_schema import insert_job
from tests.harness import SchemaRefused, SqlRunner

PARAMS = "UPDATE spec SET params = '{\"key\":1}' WHERE id = 1"
COMMAND = "UPDATE spec SET command = '[\"rm\"]' WHERE id = 1"


def assert_refused(run_sql: SqlRunner, sql: str, text: str) -> None:
    before = run_sql("SELECT * FROM spec ORDER BY id"), run_sql("SELECT * FROM run ORDER BY id")
    with pytest.raises(SchemaRefused, match=f"^{text}"):
        run_sql(sql)
    assert (run_sql("SELECT * FROM spec ORDER BY id"), run_sql("SELECT * FROM run ORDER BY id")) == before


@pytest.fixture
def waiting(harness: StoreHarness) -> StoreHarness:
    """Harness with one waiting job."""
    harness.add()
    return harness


def test_inv_001_params_and_command_can_change_before_dispatch(waiting: StoreHarness) -> None:
    waiting.run_sql(PARAMS)
    waiting.run_sql(COMMAND)
    assert waiting.run_sql("SELECT params, command FROM spec") == [('{"key":1}', '["rm"]')]


@pytest.mark.parametrize("stage", ["dispatched", "running", "ended", "rewound"])
def test_inv_001_params_and_command_are_frozen_after_dispatch(waiting: StoreHarness, stage: str) -> None:
    waiting.claim()
    if stage != "dispatched":
        waiting.confirm(JobId(1))
    if stage in ("ended", "rewound"):
        waiting.finish(JobId(1), FAILED_RESULT)
    if stage == "rewound":
        waiting.run_sql("UPDATE job SET status = 'QUEUED', started_at = NULL, finished_at = NULL WHERE id = 1")
    assert_refused(waiting.run_sql, PARAMS, "Cannot modify params after dispatch")
    assert_refused(waiting.run_sql, COMMAND, "Cannot modify command after dispatch")
    assert_refused(waiting.run_sql, "UPDATE job SET spec = 99 WHERE id = 1", "Cannot modify params after dispatch")


def test_inv_001_spec_is_frozen_while_a_retry_waits(waiting: StoreHarness) -> None:
    waiting.claim()
    waiting.finish(JobId(1), FAILED_RESULT)
    insert_job(waiting.run_sql, id=2, chain=1, status="QUEUED")
    assert_refused(waiting.run_sql, PARAMS, "Cannot modify params after dispatch")
    waiting.run_sql("UPDATE job SET spec = 2 WHERE id = 2")  # the retry has not run, so its spec can change


def test_inv_001_requeued_claim_does_not_freeze_the_spec(waiting: StoreHarness) -> None:
    waiting.claim()
    with waiting.transaction() as session:
        session.runs.requeue(
            waiting.run_of(JobId(1)), dispatch_failures=1, error="no", not_before=None, now=NOW, cause="executor"
        )
    waiting.run_sql(PARAMS)


@pytest.mark.parametrize("is_ended", [True, False])
@pytest.mark.parametrize(("field", "value"), [("id", "9"), ("job", "2"), ("worker", "'local/9'"), ("started_at", "1")])
def test_inv_002_run_identity_is_immutable(waiting: StoreHarness, field: str, value: str, is_ended: bool) -> None:
    waiting.add()
    waiting.claim(**{"global": 1})
    if is_ended:
        waiting.finish(JobId(1), FAILED_RESULT)
    assert_refused(
        waiting.run_sql, f"UPDATE run SET {field} = {value} WHERE id = 1", f"Cannot modify immutable fields: {field}"
    )
    assert_refused(
        waiting.run_sql,
        f"UPDATE run SET error = 'other', {field} = {value} WHERE id = 1",
        f"Cannot modify immutable fields: {field}",
    )


GUARDED = [
    tuple(match["event"].removeprefix("UPDATE OF ").split(" ON "))
    for match in REFUSE_DIRECTIVE.finditer(load_migrations(str)[0])
]
"""Guarded columns and their tables."""


def test_inv_002_schema_guards_every_immutable_field() -> None:
    """A new field of a run must be guarded too or be declared mutable."""
    assert [column for column, table in GUARDED if table == "run"] == [
        "status",  # until it is set
        *(field for field in Run.__struct_fields__ if field not in MUTABLE_FIELDS),
    ]


@pytest.mark.parametrize("value", ["'FAILED'", "NULL, finished_at = NULL"])
def test_ended_run_keeps_its_status(waiting: StoreHarness, value: str) -> None:
    """LESSONS: a COMPLETED run was overwritten to FAILED."""
    waiting.claim()
    waiting.finish(JobId(1))
    assert_refused(
        waiting.run_sql, f"UPDATE run SET status = {value} WHERE id = 1", "Cannot modify immutable fields: status"
    )
    waiting.run_sql("UPDATE run SET status = 'COMPLETED' WHERE id = 1")  # sets the same value


def test_job_cannot_change_its_chain(waiting: StoreHarness) -> None:
    waiting.add()
    assert_refused(waiting.run_sql, "UPDATE job SET chain = 1 WHERE id = 2", "Cannot modify immutable fields: chain")


def test_only_edits_and_ends_set_guarded_columns() -> None:
    """A trigger on columns costs nothing for statements that do not set them, so a plain job pays only for its end."""
    statements = set()
    for name, text in load_statements(str).items():
        for table, clause in re.findall(r"UPDATE (\w+) SET (.+?)(?: WHERE |$)", text.replace("\n", " ")):
            columns = re.findall(r"(?:^|, )\s*(\w+) = ", clause)
            statements |= {name for column in columns if (column, table) in GUARDED}
    assert statements == {"detach_spec", "edit_spec", "finish_run", "finish_group", "reopen_group"}


def test_inv_006_group_cannot_finish_before_its_members(waiting: StoreHarness) -> None:
    columns, values = "id, mode, on_failure, created_at, closed_at", "1, 'parallel', 'stop', 0, 0"
    waiting.run_sql(f"INSERT INTO job_group ({columns}) VALUES ({values})")
    waiting.run_sql("UPDATE job SET job_group = 1, sequence = 1")
    with pytest.raises(SchemaRefused, match="Cannot finish a group while a member is active"):
        waiting.run_sql("UPDATE job_group SET finished_at = 1")
    waiting.run_sql("UPDATE job SET status = 'CANCELLED', finished_at = 1, ready = 0, dirty = 0")
    waiting.run_sql("UPDATE job_group SET finished_at = 1")
    with pytest.raises(SchemaRefused):
        waiting.run_sql("UPDATE job_group SET closed_at = NULL")
    with pytest.raises(SchemaRefused):
        waiting.run_sql("UPDATE job SET status = 'COMPLETED', dropped = 1")
