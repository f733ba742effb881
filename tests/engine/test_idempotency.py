"""Requests with an idempotency key: carried out once, always with the same response, each key for one request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from rota.engine.idempotency import IdempotentRequest, StoredResponse
from rota.engine.requests import run_once
from rota.engine.transaction import Transaction, TurnRequest
from rota.errors import Conflict, IdempotencyKeyReused
from rota.ids import JobId
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import AcceptedSubmit, submit
from tests.harness import Scheduler, SqlRunner

pytestmark = pytest.mark.both_databases

ENVIRONMENT = DefaultEnvironment(cwd="/", variables={})


def submit_one(tx: Transaction) -> JobId:
    result = submit(tx, [Submission(command=["true"])], ENVIRONMENT, actor="me")
    assert isinstance(result, AcceptedSubmit)
    return result.jobs[0]


def count(run_sql: SqlRunner, table: str) -> int:
    return int(run_sql(f"SELECT count(*) FROM {table}")[0][0])


def test_repeated_request_gets_the_same_response_and_runs_once(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    assert scheduler.run_once("k", "a", submit_one) == 1
    assert scheduler.run_once("k", "a", submit_one) == StoredResponse(status=201, body=b"1")
    scheduler.end_run(JobId(1))
    scheduler.crash()
    assert scheduler.run_once("k", "a", submit_one) == StoredResponse(status=201, body=b"1"), (
        "the next scheduler gives the same response"
    )
    assert count(run_sql, "job") == 1
    assert scheduler.run_once("other", "a", submit_one) == 2


def test_different_request_with_the_same_key_is_refused(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    scheduler.run_once("k", "a", submit_one)
    with pytest.raises(IdempotencyKeyReused, match="was used for a different request; use a new key"):
        scheduler.run_once("k", "b", submit_one)
    assert count(run_sql, "job") == 1


def test_refused_request_does_not_use_its_key(scheduler: Scheduler) -> None:
    def refused(tx: Transaction) -> JobId:
        submit_one(tx)
        raise Conflict("no")

    with pytest.raises(Conflict, match="no"):
        scheduler.run_once("k", "a", refused)
    assert scheduler.run_once("k", "b", submit_one) == 1


def test_request_without_response_may_be_repeated(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    assert scheduler.run_once("k", "a", lambda _: "full", render_response=lambda _: None) == "full"
    assert count(run_sql, "idempotency") == 0
    assert scheduler.run_once("k", "a", submit_one) == 1


def test_response_is_rendered_at_the_end_of_the_turn(scheduler: Scheduler) -> None:
    def render(tx: Transaction, jobs: Sequence[JobId]) -> list[str]:
        return [str(tx.jobs.find_all([job])[0].status) for job in jobs]

    assert scheduler.run_once("k", "a", submit_one, render) == "DISPATCHED"
    scheduler.end_run(JobId(1))
    assert scheduler.run_once("k", "a", submit_one, render) == StoredResponse(status=201, body=b"DISPATCHED"), (
        "the response of the first request"
    )


def test_request_whose_response_cannot_be_encoded_runs_once(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    def encode(_: object) -> StoredResponse:
        raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")

    with pytest.raises(UnicodeEncodeError):
        scheduler.run_once("k", "a", submit_one, render_response=encode)
    result = scheduler.run_once("k", "a", submit_one)
    assert (result.status, b"the request was carried out, but its response" in result.body) == (500, True)
    assert count(run_sql, "job") == 1
    assert scheduler.submit() == 2, "other requests are not affected"


def test_request_whose_response_cannot_be_rendered_runs_once(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    def render(_: Transaction, jobs: Sequence[JobId]) -> list[str]:
        raise ValueError(f"{jobs} cannot be shown")

    with pytest.raises(ValueError, match="cannot be shown"):
        scheduler.run_once("k", "a", submit_one, render)
    result = scheduler.run_once("k", "a", submit_one)
    assert (result.status, b"the request was carried out, but its response" in result.body) == (500, True)
    assert count(run_sql, "job") == 1


def test_requests_of_a_turn_with_an_unrenderable_one_are_rendered(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    def render(_: Transaction, jobs: Sequence[JobId]) -> list[str]:
        if JobId(2) in jobs:
            raise ValueError("job 2 cannot be shown")
        return [f"shown {job}" for job in jobs]

    responses: list[object] = []
    keyed_requests = [IdempotentRequest(key=key, digest="a", render=_render_plain) for key in "xyz"]
    scheduler.engine.turn(
        [
            TurnRequest(
                partial(run_once, idempotency=keyed, operation=submit_one), responses.append, render, idempotency=keyed
            )
            for keyed in keyed_requests
        ]
    )
    assert [responses[0], type(responses[1]), responses[2]] == ["shown 1", ValueError, "shown 3"]
    assert scheduler.run_once("y", "a", submit_one).status == 500
    assert scheduler.run_once("z", "a", submit_one) == StoredResponse(status=201, body=b"shown 3")
    assert count(run_sql, "job") == 3


def _render_plain(result: object) -> StoredResponse:
    return StoredResponse(status=201, body=str(result).encode())
