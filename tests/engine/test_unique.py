"""A unique key is one chain's from submit until the chain has ended."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from harness import Raw, Scheduler, SchemaRefused
from rota.command.retry import retry
from rota.command.submission import Submission, Surroundings
from rota.command.submit import AlreadyActive, Answer, Submitted, submit
from rota.core.status import Status
from rota.engine.work import Request, Work
from rota.errors import Conflict, InvalidInput
from rota.ids import JobId

AROUND = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})
TABLES = ("job", "spec", "edge", "lock", "surroundings", "lane", "event", "idempotency", "sequence")


def contents(raw: Raw) -> list[list[tuple[Any, ...]]]:
    return [raw(f"SELECT * FROM {table}") for table in TABLES]


def request(answers: list[Any], *bodies: dict[str, Any]) -> Request[Answer]:
    wanted = [msgspec.convert({"command": ["true"], **body}, Submission) for body in bodies]
    return Request(partial(submit, wanted=wanted, around=AROUND, actor="me"), answers.append)


def batch(scheduler: Scheduler, *bodies: dict[str, Any]) -> Answer:
    wanted = [msgspec.convert({"command": ["true"], **body}, Submission) for body in bodies]
    told: Answer = scheduler.do(partial(submit, wanted=wanted, around=AROUND, actor="me"))
    return told


def again(scheduler: Scheduler, job: JobId) -> Any:
    return scheduler.do(lambda work: retry(work, f"job-{job}", actor="me"))


def test_a_second_submit_is_told_who_has_the_key_and_leaves_no_trace(scheduler: Scheduler, raw: Raw) -> None:
    job = scheduler.submit(unique="card-7")
    before = contents(raw)
    told = scheduler.answer("other", unique="card-7", env={"NEW": "1"}, inherit_env=False, type="new")
    assert told == AlreadyActive(active={"card-7": job})
    assert contents(raw) == before
    assert scheduler.submit(unique="card-8") == job + 1, "no number was used up"


def test_the_key_is_free_when_the_chain_has_ended(scheduler: Scheduler) -> None:
    for end in (0, 1):
        job = scheduler.submit(unique="k")
        assert isinstance(scheduler.answer(unique="k"), AlreadyActive)
        scheduler.end(job, end)
    cancelled = scheduler.submit(unique="k", delay="1h")
    scheduler.cancel(cancelled)
    failed = scheduler.submit()
    blocked = scheduler.submit(unique="k", after=[failed])
    scheduler.end(failed, 1)
    assert scheduler.status(blocked) is Status.BLOCKED_BY_DEPENDENCY
    assert scheduler.submit(unique="k") > blocked


def test_a_chain_keeps_it_while_it_backs_off_and_names_its_active_job(scheduler: Scheduler) -> None:
    """FLEET: the card lock is held during the wait, so that no run of a user collides with the retry."""
    first = scheduler.submit(unique="k", retries=1)
    scheduler.end(first, 1)
    second = JobId(first + 1)
    assert scheduler.job(second).not_before is not None
    assert scheduler.answer(unique="k") == AlreadyActive(active={"k": second})
    scheduler.clock.advance(minutes=10)
    scheduler.turn()
    scheduler.end(second, 1)
    assert isinstance(scheduler.answer(unique="k"), Submitted)


def test_it_outlives_a_crash(scheduler: Scheduler) -> None:
    job = scheduler.submit(unique="k")
    scheduler.crash()
    assert scheduler.answer(unique="k") == AlreadyActive(active={"k": job})


def test_of_many_in_one_turn_one_is_submitted(scheduler: Scheduler, raw: Raw) -> None:
    """LESSONS Dispatch: two of two racers both won."""
    answers: list[Any] = []
    scheduler.engine.turn([request(answers, {"unique": "k", "name": f"{n}"}) for n in range(50)])
    stored = [told for told in answers if isinstance(told, Submitted)]
    assert len(stored) == 1
    assert answers.count(AlreadyActive(active={"k": stored[0].jobs[0]})) == 49
    assert raw("SELECT count(*) FROM job") == [(1,)]


def test_one_that_is_refused_in_the_same_turn_takes_no_key_with_it(scheduler: Scheduler) -> None:
    answers: list[Any] = []
    scheduler.engine.turn([
        request(answers, {"unique": "k", "priority": 10**9}),
        request(answers, {"unique": "k"}),
        request(answers, {"unique": "k"}),
    ])  # fmt: skip
    assert [type(told).__name__ for told in answers] == ["InvalidInput", "Submitted", "AlreadyActive"]


def test_a_batch_with_a_key_that_is_taken_is_not_stored_at_all(scheduler: Scheduler, raw: Raw) -> None:
    jobs = [scheduler.submit(unique=key) for key in ("a", "b")]
    before = contents(raw)
    told = batch(scheduler, {"unique": "b"}, {}, {"unique": "c"}, {"unique": "a"})
    assert isinstance(told, AlreadyActive)
    assert told.active == {"a": jobs[0], "b": jobs[1]}
    assert contents(raw) == before
    free = batch(scheduler, {"unique": "c"}, {}, {"unique": "d"})
    assert isinstance(free, Submitted)
    assert [scheduler.job(job).unique for job in free.jobs] == ["c", None, "d"]


def test_a_batch_that_would_be_in_its_own_way_is_refused(scheduler: Scheduler, raw: Raw) -> None:
    before = contents(raw)
    with pytest.raises(InvalidInput, match="jobs 2 and 3 of the submit have one unique key, 'k'"):
        batch(scheduler, {}, {"unique": "k"}, {"unique": "k"})
    assert contents(raw) == before


def test_the_schema_holds_it_whoever_writes(scheduler: Scheduler, raw: Raw) -> None:
    one, other = scheduler.submit(unique="k"), scheduler.submit()
    with pytest.raises(SchemaRefused):
        raw(f"UPDATE job SET unique_key = 'k' WHERE id = {other}")
    scheduler.end(one)
    raw(f"UPDATE job SET unique_key = 'k' WHERE id = {other}")


def test_a_retry_by_hand_needs_the_key_back(scheduler: Scheduler, raw: Raw) -> None:
    job = scheduler.submit(unique="k")
    scheduler.end(job, 1)
    other = scheduler.submit(unique="k")
    before = contents(raw)
    with pytest.raises(Conflict, match=rf"cannot retry job-{job}: its unique key 'k' is job-{other}'s now"):
        again(scheduler, job)
    assert contents(raw) == before
    scheduler.end(other)
    retried = again(scheduler, job)
    assert scheduler.answer(unique="k") == AlreadyActive(active={"k": retried.job})


def test_a_retry_by_hand_of_a_chain_that_waits_has_its_key(scheduler: Scheduler) -> None:
    job = scheduler.submit(unique="k", retries=3)
    scheduler.end(job, 1)
    assert again(scheduler, job).job == job + 1


def test_a_rewind_needs_the_keys_of_all_it_puts_back(wide: Scheduler, raw: Raw) -> None:
    root = wide.submit()
    downstream = wide.submit(after=[root], unique="k")
    wide.drain()
    other = wide.submit(unique="k")
    before = contents(raw)
    with pytest.raises(Conflict, match=rf"cannot rewind job-{downstream}: its unique key 'k' is job-{other}'s now"):
        wide.rewind(root)
    assert contents(raw) == before
    wide.end(other)
    assert wide.rewind(root).reset == [f"job-{root}", f"job-{downstream}"]
    assert wide.answer(unique="k") == AlreadyActive(active={"k": downstream})


def test_a_job_that_waits_in_the_set_has_its_key_already(wide: Scheduler) -> None:
    root = wide.submit()
    waiting = wide.submit(after=[root], unique="k", delay="1h")
    wide.end(root)
    assert wide.rewind(root).reset == [f"job-{root}", f"job-{waiting}"]


def test_two_chains_of_a_set_cannot_both_have_the_key(wide: Scheduler, raw: Raw) -> None:
    """One after the other they could: not when both are put back at once."""
    root = wide.submit(unique="k")
    wide.end(root)
    follower = wide.submit(after=[root], unique="k")
    wide.end(follower)
    before = contents(raw)
    with pytest.raises(Conflict, match=rf"job-{root} and job-{follower} have one unique key, 'k'"):
        wide.rewind(root)
    assert contents(raw) == before


def test_a_chain_that_lost_its_retry_and_its_key_ends_and_holds_up_nobody(scheduler: Scheduler, raw: Raw) -> None:
    """Something else has written to the store: the failure is booked, its retry is not."""
    job = scheduler.submit(unique="k", retries=3)
    scheduler.end(job, 1)
    raw(f"DELETE FROM event WHERE job = {job + 1}")
    raw(f"DELETE FROM job WHERE id = {job + 1}")
    raw(f"UPDATE job SET retried_as = NULL WHERE id = {job}")
    other = scheduler.submit(unique="k")
    scheduler.crash()
    assert scheduler.engine.trouble is None
    assert scheduler.engine.recovery is not None
    assert not scheduler.engine.recovery.get("errors")
    assert scheduler.job(job).permanently_failed
    assert scheduler.answer(unique="k") == AlreadyActive(active={"k": other})


def test_a_plain_submit_asks_nothing_of_it(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    database, asked = scheduler.session._db, list[str]()
    rows = database.rows

    def seen(name: str, /, **values: Any) -> Any:
        asked.append(name)
        return rows(name, **values)

    monkeypatch.setattr(database, "rows", seen)
    scheduler.submit()
    assert "active_of_keys" not in asked
    scheduler.submit(unique="k")
    assert asked.count("active_of_keys") == 1


def test_the_key_is_shown(scheduler: Scheduler) -> None:
    assert scheduler.show(scheduler.submit(unique="k")).unique == "k"
    assert scheduler.show(scheduler.submit()).unique is None


def test_a_turn_that_is_undone_gives_the_key_back(scheduler: Scheduler) -> None:
    def fails(work: Work) -> None:
        submit(work, [Submission(command=["true"], unique="k")], AROUND, actor=None)
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        scheduler.do(fails)
    assert isinstance(scheduler.answer(unique="k"), Submitted)
