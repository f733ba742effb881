"""Edits: allowed only while a job waits and was never dispatched. Specs of earlier jobs stay unchanged (INV-001)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.errors import Conflict
from rota.ids import JobId
from rota.kernel.job import Job
from rota.kernel.retry import RetryPolicy
from rota.kernel.status import Status
from tests.db.harness import FAILED_RESULT, NOW, StoreHarness, claim_all
from tests.harness import SchemaRefused

CHANGES: dict[str, Any] = {
    "params": {"key": "new_value"},
    "name": "other",
    "timeout": timedelta(seconds=5),
    "idle_timeout": timedelta(seconds=1),
    "command": ("echo", "hi"),
}


def read_job(harness: StoreHarness, number: int) -> Job:
    record = harness.reader.jobs.find(JobId(number))
    assert record is not None
    return record


def edit_job(harness: StoreHarness, job: Job, **changes: Any) -> bool:
    with harness.transaction() as session:
        return session.jobs.edit(job, changes, now=NOW, actor="ann")


def test_edited_job_runs_with_its_new_spec(harness: StoreHarness) -> None:
    harness.add()
    assert edit_job(harness, read_job(harness, 1), **CHANGES)
    assert {name: getattr(read_job(harness, 1).spec, name) for name in CHANGES} == CHANGES
    (event,) = harness.events
    assert (event.kind, event.cause, event.actor, event.job) == ("job.edited", "edit", "ann", 1)
    assert event.data == {"fields": ["command", "idle_timeout", "name", "params", "timeout"]}
    with harness.transaction() as session:
        (dispatch,) = claim_all(session)
    assert (dispatch.command, dispatch.params) == ('["echo","hi"]', '{"key":"new_value"}')
    assert (dispatch.timeout, dispatch.idle_timeout) == (CHANGES["timeout"], CHANGES["idle_timeout"])


def test_edit_of_a_retry_detaches_its_spec(harness: StoreHarness) -> None:
    harness.add()
    harness.claim()
    harness.finish(JobId(1))
    with harness.transaction() as session:
        session.chains.retry(JobId(1), retries=0, not_before=None, now=NOW, cause="retry")
    first = read_job(harness, 1).spec
    for name in ("other", "another"):
        assert edit_job(harness, read_job(harness, 2), name=name, params={"for": name})
        assert (read_job(harness, 2).spec.name, read_job(harness, 2).spec.params) == (name, {"for": name})
    assert read_job(harness, 2).spec.command == first.command
    assert read_job(harness, 1).spec == first
    assert harness.run_sql("SELECT id, spec FROM job ORDER BY id") == [(1, 1), (2, 2)]


@pytest.mark.parametrize("is_confirmed", [True, False], ids=["running", "dispatched"])
def test_inv_001_edit_after_dispatch_is_refused(harness: StoreHarness, is_confirmed: bool) -> None:
    harness.add()
    harness.claim()
    if is_confirmed:
        harness.confirm(JobId(1))
    before, event_count = read_job(harness, 1), harness.run_sql("SELECT count(*) FROM event")
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit_job(harness, before, params={"key": "new_value"})
    with pytest.raises(Conflict, match="Cannot modify name after dispatch"):
        edit_job(harness, before, name="other")
    assert (read_job(harness, 1), harness.run_sql("SELECT count(*) FROM event")) == (before, event_count)


def test_inv_001_stale_edit_after_claim_changes_nothing(harness: StoreHarness) -> None:
    """Compare-and-set: a state that was read before the claim is stale."""
    harness.add()
    stale = read_job(harness, 1)
    harness.claim()
    assert not edit_job(harness, stale, params={"key": "new_value"})
    assert read_job(harness, 1).spec == stale.spec
    assert harness.events == []


def test_inv_001_requeued_job_can_be_edited(harness: StoreHarness) -> None:
    harness.add()
    harness.claim()
    with harness.transaction() as session:
        session.runs.requeue(
            harness.run_of(JobId(1)), dispatch_failures=1, error="no", not_before=None, now=NOW, cause="executor"
        )
    assert edit_job(harness, read_job(harness, 1), params={"key": "new_value"})


def test_edit_after_end_is_refused(harness: StoreHarness) -> None:
    harness.add()
    with harness.transaction() as session:
        session.jobs.end_waiting(
            JobId(1), Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None
        )
    with pytest.raises(Conflict, match="Cannot modify name after its end"):
        edit_job(harness, read_job(harness, 1), name="other")


def test_stale_edit_after_end_changes_nothing(harness: StoreHarness) -> None:
    harness.add()
    stale = read_job(harness, 1)
    with harness.transaction() as session:
        session.jobs.end_waiting(
            JobId(1), Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None
        )
    for change in ({"name": "other"}, {"priority": 3}, {"not_before": NOW}):
        assert not edit_job(harness, stale, **change)
    assert harness.events == []


def test_edit_event_has_only_changed_fields(harness: StoreHarness) -> None:
    harness.add()
    assert edit_job(harness, read_job(harness, 1), name="other", priority=0)
    assert [event.data for event in harness.events] == [{"fields": ["name"]}]
    assert edit_job(harness, read_job(harness, 1), name="other", priority=0)
    assert harness.events == []


def test_edit_of_delay_wakes_the_job_and_of_name_does_not(harness: StoreHarness) -> None:
    harness.add()
    edit_job(harness, read_job(harness, 1), name="other")
    assert harness.dirty_jobs() == []
    edit_job(harness, read_job(harness, 1), not_before=NOW + timedelta(hours=1))
    assert harness.dirty_jobs() == [1]
    harness.evaluate()
    assert harness.ready_jobs() == []
    edit_job(harness, read_job(harness, 1), not_before=None)
    harness.evaluate()
    assert harness.ready_jobs() == [1]


def test_inv_001_edit_of_rewound_retry_detaches_its_spec(harness: StoreHarness) -> None:
    """The specs of the earlier jobs stay unchanged, and so does the command of the edited job."""
    harness.add()
    harness.claim()
    harness.finish(JobId(1), FAILED_RESULT)
    with harness.transaction() as session:
        session.chains.retry(JobId(1), retries=0, not_before=None, now=NOW, cause="retry")
    harness.evaluate()
    harness.claim()
    harness.finish(JobId(2), FAILED_RESULT)
    with harness.transaction() as session:
        session.chains.rewind(session.chains.tails([JobId(1)]), now=NOW, actor="ann")
    first = read_job(harness, 1).spec
    for name in ("other", "another"):
        assert edit_job(
            harness, read_job(harness, 2), name=name, timeout=timedelta(seconds=9), retry=RetryPolicy(max_retries=2)
        )
        assert (read_job(harness, 2).spec.name, read_job(harness, 2).spec.command) == (name, first.command)
    assert read_job(harness, 1).spec == first
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edit_job(harness, read_job(harness, 2), params={"a": 1})
    with pytest.raises(SchemaRefused, match="Cannot modify params after dispatch"):
        harness.run_sql("UPDATE spec SET params = '{\"a\":1}' WHERE id = 2")
