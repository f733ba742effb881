"""Edits: only while the job waits and has never been dispatched, and what its chain ran stays what it was (INV-001)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from harness import SchemaRefused
from rota.core.job import Job
from rota.core.retry import RetryPolicy
from rota.core.status import Status
from rota.errors import Conflict
from rota.ids import JobId
from store.desk import BROKEN, NOW, Desk, claim_all

CHANGES: dict[str, Any] = {
    "params": {"key": "new_value"}, "name": "other", "timeout": timedelta(seconds=5),
    "idle_timeout": timedelta(seconds=1), "command": ("echo", "hi"),
}  # fmt: skip


def job(desk: Desk, number: int) -> Job:
    found = desk.reader.job(JobId(number))
    assert found is not None
    return found


def edited(desk: Desk, was: Job, **changes: Any) -> bool:
    with desk.writing() as session:
        return session.edit(was, changes, now=NOW, actor="ann")


def test_a_waiting_job_is_edited_and_runs_what_it_was_asked_last(desk: Desk) -> None:
    desk.add()
    assert edited(desk, job(desk, 1), **CHANGES)
    assert {name: getattr(job(desk, 1).spec, name) for name in CHANGES} == CHANGES
    (event,) = desk.events
    assert (event.kind, event.cause, event.actor, event.job) == ("job.edited", "edit", "ann", 1)
    assert event.data == {"fields": ["command", "idle_timeout", "name", "params", "timeout"]}
    with desk.writing() as session:
        (dispatch,) = claim_all(session)
    assert (dispatch.command, dispatch.params) == ('["echo","hi"]', '{"key":"new_value"}')
    assert (dispatch.timeout, dispatch.idle_timeout) == (CHANGES["timeout"], CHANGES["idle_timeout"])


def test_a_job_of_a_chain_gets_a_spec_of_its_own_and_the_others_keep_theirs(desk: Desk) -> None:
    desk.add()
    desk.claim()
    desk.finish(JobId(1))
    with desk.writing() as session:
        session.add_retry(JobId(1), retries=0, not_before=None, now=NOW, cause="retry")
    first = job(desk, 1).spec
    for name in ("other", "another"):
        assert edited(desk, job(desk, 2), name=name, params={"for": name})
        assert (job(desk, 2).spec.name, job(desk, 2).spec.params) == (name, {"for": name})
    assert job(desk, 2).spec.command == first.command
    assert job(desk, 1).spec == first
    assert desk.raw("SELECT id, spec FROM job ORDER BY id") == [(1, 1), (2, 2)]


@pytest.mark.parametrize("is_confirmed", [True, False], ids=["running", "dispatched"])
def test_inv_001_an_edit_after_dispatch_is_refused_and_changes_nothing(desk: Desk, is_confirmed: bool) -> None:
    desk.add()
    desk.claim()
    if is_confirmed:
        desk.confirm(JobId(1))
    before, told = job(desk, 1), desk.raw("SELECT count(*) FROM event")
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edited(desk, before, params={"key": "new_value"})
    with pytest.raises(Conflict, match="Cannot modify name after dispatch"):
        edited(desk, before, name="other")
    assert (job(desk, 1), desk.raw("SELECT count(*) FROM event")) == (before, told)


def test_inv_001_an_edit_that_comes_behind_the_claim_loses(desk: Desk) -> None:
    """Compare-and-set: what was read before the claim says nothing after it."""
    desk.add()
    seen = job(desk, 1)
    desk.claim()
    assert not edited(desk, seen, params={"key": "new_value"})
    assert job(desk, 1).spec == seen.spec
    assert desk.events == []


def test_inv_001_a_claim_that_came_to_nothing_can_be_edited_again(desk: Desk) -> None:
    desk.add()
    desk.claim()
    with desk.writing() as session:
        session.requeue(desk.run_of(JobId(1)), failures=1, error="no", not_before=None, now=NOW, cause="executor")
    assert edited(desk, job(desk, 1), params={"key": "new_value"})


def test_what_has_ended_is_not_edited(desk: Desk) -> None:
    desk.add()
    with desk.writing() as session:
        session.end_waiting(JobId(1), Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None)
    with pytest.raises(Conflict, match="Cannot modify name after its end"):
        edited(desk, job(desk, 1), name="other")


def test_an_edit_that_comes_behind_the_end_loses(desk: Desk) -> None:
    desk.add()
    seen = job(desk, 1)
    with desk.writing() as session:
        session.end_waiting(JobId(1), Status.CANCELLED, exit_code=143, reason="no", now=NOW, cause="cancel", actor=None)
    for change in ({"name": "other"}, {"priority": 3}, {"not_before": NOW}):
        assert not edited(desk, seen, **change)
    assert desk.events == []


def test_only_what_is_another_is_told(desk: Desk) -> None:
    desk.add()
    assert edited(desk, job(desk, 1), name="other", priority=0)
    assert [event.data for event in desk.events] == [{"fields": ["name"]}]
    assert edited(desk, job(desk, 1), name="other", priority=0)
    assert desk.events == []


def test_a_delay_is_looked_at_and_a_name_is_not(desk: Desk) -> None:
    desk.add()
    edited(desk, job(desk, 1), name="other")
    assert desk.stirred() == []
    edited(desk, job(desk, 1), not_before=NOW + timedelta(hours=1))
    assert desk.stirred() == [1]
    desk.look()
    assert desk.ready() == []
    edited(desk, job(desk, 1), not_before=None)
    desk.look()
    assert desk.ready() == [1]


def test_inv_001_a_rewound_job_of_a_chain_gets_its_own_spec_with_what_it_ran(desk: Desk) -> None:
    """What its chain was asked before stays as it was, and so does what it is asked to do."""
    desk.add()
    desk.claim()
    desk.finish(JobId(1), BROKEN)
    with desk.writing() as session:
        session.add_retry(JobId(1), retries=0, not_before=None, now=NOW, cause="retry")
    desk.look()
    desk.claim()
    desk.finish(JobId(2), BROKEN)
    with desk.writing() as session:
        session.rewind(session.last_jobs([JobId(1)]), now=NOW, actor="ann")
    first = job(desk, 1).spec
    for name in ("other", "another"):
        assert edited(desk, job(desk, 2), name=name, timeout=timedelta(seconds=9), retry=RetryPolicy(max_retries=2))
        assert (job(desk, 2).spec.name, job(desk, 2).spec.command) == (name, first.command)
    assert job(desk, 1).spec == first
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edited(desk, job(desk, 2), params={"a": 1})
    with pytest.raises(SchemaRefused, match="Cannot modify params after dispatch"):
        desk.raw("UPDATE spec SET params = '{\"a\":1}' WHERE id = 2")
