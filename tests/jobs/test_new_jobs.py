"""Responses of submits, which are rendered without a read, match a read after them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from rota.engine.transaction import Transaction, TurnRequest
from rota.ids import JobId
from rota.jobs.queries import render_stored_jobs
from rota.jobs.schemas import JobView
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import AcceptedSubmit, SubmitOutcome, submit
from tests.harness import Scheduler

pytestmark = pytest.mark.both_databases

ENVIRONMENT = DefaultEnvironment(cwd="/", variables={"PATH": "/usr/bin:/bin"})


def submit_in_one_turn(scheduler: Scheduler, *bodies: dict[str, Any]) -> list[JobView]:
    """Submit jobs in one turn, and return their responses."""
    responses: list[JobView] = []

    def render(tx: Transaction, outcomes: Sequence[SubmitOutcome]) -> list[JobView]:
        accepted = [outcome for outcome in outcomes if isinstance(outcome, AcceptedSubmit)]
        new = {job.id: job for outcome in accepted for job in outcome.new_jobs}
        views = render_stored_jobs(tx, [outcome.jobs[0] for outcome in accepted], new, scheduler.view_context)
        return [views[outcome.jobs[0]] for outcome in accepted]

    def make_request(body: dict[str, Any]) -> TurnRequest[SubmitOutcome]:
        submissions = [msgspec.convert({"command": ["true"], **body}, Submission)]
        return TurnRequest(
            partial(submit, submissions=submissions, default_environment=ENVIRONMENT, actor="me"),
            responses.append,
            render,
        )

    scheduler.engine.turn([make_request(body) for body in bodies])
    return responses


BODIES: list[dict[str, Any]] = [
    {},
    {"name": "build", "type": "t", "params": {"a": [1]}, "priority": 3, "timeout": "5m", "cwd": "/tmp"},
    {"flow": "f", "pools": {"resource/ollama": 1}},
    {"locks": [{"key": "repo"}]},
    {"delay": "1h"},
    {"after": [{"job": "job-1"}]},
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("size", [0, 1, 5])
def test_submit_response_matches_a_later_read(
    make_scheduler: Callable[..., Scheduler], body: dict[str, Any], size: int
) -> None:
    scheduler = make_scheduler(**{"global": size})
    first = scheduler.submit(flow="f")
    (view,) = submit_in_one_turn(scheduler, body)
    assert view == scheduler.show_job(JobId(first + 1))


def test_submit_response_names_open_breaker(scheduler: Scheduler) -> None:
    scheduler.set_breaker_policy(failures=1)
    scheduler.engine.settings = scheduler.settings
    failed = scheduler.submit(type="t")
    scheduler.confirm_start(failed)
    scheduler.end_run(failed, 1)
    (view,) = submit_in_one_turn(scheduler, {"type": "t"})
    assert view == scheduler.show_job(JobId(failed + 1))
    assert view.wait is not None
    assert view.wait.detail.startswith("breaker open for type/t until")


def test_submits_of_one_turn_get_their_own_responses(scheduler: Scheduler) -> None:
    views = submit_in_one_turn(scheduler, *BODIES)
    assert [view.id for view in views] == [f"job-{n}" for n in range(1, len(BODIES) + 1)]
    for n, view in enumerate(views, 1):
        assert view == scheduler.show_job(JobId(n))
