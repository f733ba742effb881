"""Edits: only while the job waits and has never been dispatched, and what its chain ran stays what it was (INV-001)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.core.job import Job
from rota.core.status import Status
from rota.errors import Conflict
from rota.ids import JobId
from store.desk import NOW, Desk, claim_all

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
    before = job(desk, 1)
    with pytest.raises(Conflict, match="Cannot modify params after dispatch"):
        edited(desk, before, params={"key": "new_value"})
    assert not edited(desk, before, name="other")
    assert (job(desk, 1), desk.events) == (before, [])


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
    assert not edited(desk, job(desk, 1), name="other")
