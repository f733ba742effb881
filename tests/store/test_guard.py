"""INV-001 and INV-002 in the schema: whoever writes past the verbs is refused, in the same words."""

from __future__ import annotations

import re

import pytest

from harness import Raw, SchemaRefused
from rota.core.run import MUTABLE, Run
from rota.ids import JobId
from rota.store.guard import REFUSAL
from rota.store.statement import load, migrations
from store.desk import BROKEN, NOW, Desk
from store.test_schema import insert_job

PARAMS = "UPDATE spec SET params = '{\"key\":1}' WHERE id = 1"
COMMAND = "UPDATE spec SET command = '[\"rm\"]' WHERE id = 1"


def refuses(raw: Raw, sql: str, text: str) -> None:
    before = raw("SELECT * FROM spec ORDER BY id"), raw("SELECT * FROM run ORDER BY id")
    with pytest.raises(SchemaRefused, match=f"^{text}"):
        raw(sql)
    assert (raw("SELECT * FROM spec ORDER BY id"), raw("SELECT * FROM run ORDER BY id")) == before


@pytest.fixture
def job(desk: Desk) -> Desk:
    """One job that waits."""
    desk.add()
    return desk


def test_inv_001_before_dispatch_params_and_command_are_free(job: Desk) -> None:
    job.raw(PARAMS)
    job.raw(COMMAND)
    assert job.raw("SELECT params, command FROM spec") == [('{"key":1}', '["rm"]')]


@pytest.mark.parametrize("stage", ["dispatched", "running", "ended", "rewound"])
def test_inv_001_after_dispatch_they_are_frozen(job: Desk, stage: str) -> None:
    job.claim()
    if stage != "dispatched":
        job.confirm(JobId(1))
    if stage in ("ended", "rewound"):
        job.finish(JobId(1), BROKEN)
    if stage == "rewound":
        job.raw("UPDATE job SET status = 'QUEUED', started_at = NULL, finished_at = NULL WHERE id = 1")
    refuses(job.raw, PARAMS, "Cannot modify params after dispatch")
    refuses(job.raw, COMMAND, "Cannot modify command after dispatch")
    refuses(job.raw, "UPDATE job SET spec = 99 WHERE id = 1", "Cannot modify params after dispatch")


def test_inv_001_what_a_chain_ran_is_frozen_while_its_next_job_waits(job: Desk) -> None:
    job.claim()
    job.finish(JobId(1), BROKEN)
    insert_job(job.raw, id=2, chain=1, status="QUEUED")
    refuses(job.raw, PARAMS, "Cannot modify params after dispatch")
    job.raw("UPDATE job SET spec = 2 WHERE id = 2")  # it has not run: it may be asked something else


def test_inv_001_a_claim_that_came_to_nothing_froze_nothing(job: Desk) -> None:
    job.claim()
    with job.writing() as session:
        session.requeue(job.run_of(JobId(1)), failures=1, error="no", not_before=None, now=NOW, cause="executor")
    job.raw(PARAMS)


@pytest.mark.parametrize("is_ended", [True, False])
@pytest.mark.parametrize(("field", "value"), [("id", "9"), ("job", "2"), ("worker", "'local/9'"), ("started_at", "1")])
def test_inv_002_a_run_keeps_what_it_was_made_with(job: Desk, field: str, value: str, is_ended: bool) -> None:
    job.add()
    job.claim(**{"global": 1})
    if is_ended:
        job.finish(JobId(1), BROKEN)
    refuses(job.raw, f"UPDATE run SET {field} = {value} WHERE id = 1", f"Cannot modify immutable fields: {field}")
    refuses(
        job.raw,
        f"UPDATE run SET error = 'other', {field} = {value} WHERE id = 1",
        f"Cannot modify immutable fields: {field}",
    )


GUARDED = [
    tuple(found["event"].removeprefix("UPDATE OF ").split(" ON ")) for found in REFUSAL.finditer(migrations(str)[0])
]
"""Columns and their tables."""


def test_inv_002_the_schema_guards_every_field_that_the_code_does_not_let_through() -> None:
    """A field that joins the record later is guarded too, or is said to be mutable."""
    assert [column for column, table in GUARDED if table == "run"] == [
        "status",  # until it is set
        *(field for field in Run.__struct_fields__ if field not in MUTABLE),
    ]


@pytest.mark.parametrize("value", ["'FAILED'", "NULL, finished_at = NULL"])
def test_a_run_that_has_ended_stays_what_it_came_to(job: Desk, value: str) -> None:
    """LESSONS: a COMPLETED run was overwritten to FAILED."""
    job.claim()
    job.finish(JobId(1))
    refuses(job.raw, f"UPDATE run SET status = {value} WHERE id = 1", "Cannot modify immutable fields: status")
    job.raw("UPDATE run SET status = 'COMPLETED' WHERE id = 1")  # which says nothing new


def test_a_job_stays_in_its_chain(job: Desk) -> None:
    job.add()
    refuses(job.raw, "UPDATE job SET chain = 1 WHERE id = 2", "Cannot modify immutable fields: chain")


def test_only_an_edit_and_an_end_set_a_guarded_column() -> None:
    """A trigger on columns that a statement does not set costs it nothing: so a plain job pays for its end alone."""
    setting = set()
    for name, text in load(str).items():
        for table, clause in re.findall(r"UPDATE (\w+) SET (.+?)(?: WHERE |$)", text.replace("\n", " ")):
            columns = re.findall(r"(?:^|, )\s*(\w+) = ", clause)
            setting |= {name for column in columns if (column, table) in GUARDED}
    assert setting == {"own_spec", "edit_spec", "finish_run", "finish_group", "reopen_group"}


def test_inv_006_no_group_is_finished_before_its_members(job: Desk) -> None:
    columns, values = "id, mode, on_failure, created_at, closed_at", "1, 'parallel', 'stop', 0, 0"
    job.raw(f"INSERT INTO job_group ({columns}) VALUES ({values})")
    job.raw("UPDATE job SET job_group = 1, sequence = 1")
    with pytest.raises(SchemaRefused, match="Cannot finish a group while a member is active"):
        job.raw("UPDATE job_group SET finished_at = 1")
    job.raw("UPDATE job SET status = 'CANCELLED', finished_at = 1, ready = 0, stirred = 0")
    job.raw("UPDATE job_group SET finished_at = 1")
    with pytest.raises(SchemaRefused):
        job.raw("UPDATE job_group SET closed_at = NULL")
    with pytest.raises(SchemaRefused):
        job.raw("UPDATE job SET status = 'COMPLETED', dropped = 1")
