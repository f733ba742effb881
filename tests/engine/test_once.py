"""A request with a key: carried out once, answered the same for ever, and only for itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from harness import Raw, Scheduler
from rota.command.submission import Submission, Surroundings
from rota.command.submit import Submitted, submit
from rota.engine.act import unless_told
from rota.engine.once import Once, Told
from rota.engine.work import Request, Work
from rota.errors import Conflict, KeyReused
from rota.ids import JobId

AROUND = Surroundings(cwd="/", variables={})


def stored(work: Work) -> JobId:
    told = submit(work, [Submission(command=["true"])], AROUND, actor="me")
    assert isinstance(told, Submitted)
    return told.jobs[0]


def count(raw: Raw, table: str) -> int:
    return int(raw(f"SELECT count(*) FROM {table}")[0][0])


def test_what_comes_again_is_told_the_same_and_not_done_again(scheduler: Scheduler, raw: Raw) -> None:
    assert scheduler.once("k", "a", stored) == 1
    assert scheduler.once("k", "a", stored) == Told(status=201, body=b"1")
    scheduler.end(JobId(1))
    scheduler.crash()
    assert scheduler.once("k", "a", stored) == Told(status=201, body=b"1"), "also by the next scheduler"
    assert count(raw, "job") == 1
    assert scheduler.once("other", "a", stored) == 2


def test_another_request_with_the_same_key_is_refused(scheduler: Scheduler, raw: Raw) -> None:
    scheduler.once("k", "a", stored)
    with pytest.raises(KeyReused, match="came with another request before; use a new key for a new request"):
        scheduler.once("k", "b", stored)
    assert count(raw, "job") == 1


def test_what_is_refused_does_not_use_up_its_key(scheduler: Scheduler) -> None:
    def refused(work: Work) -> JobId:
        stored(work)
        raise Conflict("no")

    with pytest.raises(Conflict, match="no"):
        scheduler.once("k", "a", refused)
    assert scheduler.once("k", "b", stored) == 1


def test_what_came_to_nothing_may_come_again(scheduler: Scheduler, raw: Raw) -> None:
    assert scheduler.once("k", "a", lambda _: "full", tell=lambda _: None) == "full"
    assert count(raw, "idempotency") == 0
    assert scheduler.once("k", "a", stored) == 1


def test_the_answer_is_what_was_seen_at_the_end_of_the_turn(scheduler: Scheduler) -> None:
    def see(work: Work, jobs: Sequence[JobId]) -> list[str]:
        return [str(work.session.jobs([job])[0].status) for job in jobs]

    assert scheduler.once("k", "a", stored, see) == "DISPATCHED"
    scheduler.end(JobId(1))
    assert scheduler.once("k", "a", stored, see) == Told(status=201, body=b"DISPATCHED"), "the answer of then"


def test_what_cannot_be_told_is_done_once_all_the_same(scheduler: Scheduler, raw: Raw) -> None:
    def tell(_: object) -> Told:
        raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")

    with pytest.raises(UnicodeEncodeError):
        scheduler.once("k", "a", stored, tell=tell)
    told = scheduler.once("k", "a", stored)
    assert (told.status, b"it was done, but a defect" in told.body) == (500, True)
    assert count(raw, "job") == 1
    assert scheduler.submit() == 2, "and the others are not disturbed"


def test_what_cannot_be_shown_is_done_once_all_the_same(scheduler: Scheduler, raw: Raw) -> None:
    def see(_: Work, jobs: Sequence[JobId]) -> list[str]:
        raise ValueError(f"{jobs} cannot be shown")

    with pytest.raises(ValueError, match="cannot be shown"):
        scheduler.once("k", "a", stored, see)
    told = scheduler.once("k", "a", stored)
    assert (told.status, b"it was done, but a defect" in told.body) == (500, True)
    assert count(raw, "job") == 1


def test_who_shares_a_turn_with_what_cannot_be_shown_is_shown_his_own(scheduler: Scheduler, raw: Raw) -> None:
    def see(_: Work, jobs: Sequence[JobId]) -> list[str]:
        if JobId(2) in jobs:
            raise ValueError("job 2 cannot be shown")
        return [f"seen {job}" for job in jobs]

    answers: list[object] = []
    each = [Once(key=key, digest="a", tell=_plain) for key in "xyz"]
    scheduler.engine.turn(
        [Request(partial(unless_told, once=once, act=stored), answers.append, see, once=once) for once in each]
    )
    assert [answers[0], type(answers[1]), answers[2]] == ["seen 1", ValueError, "seen 3"]
    assert scheduler.once("y", "a", stored).status == 500
    assert scheduler.once("z", "a", stored) == Told(status=201, body=b"seen 3")
    assert count(raw, "job") == 3


def _plain(shown: object) -> Told:
    return Told(status=201, body=str(shown).encode())
