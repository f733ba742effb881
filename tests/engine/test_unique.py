"""A unique key belongs to one chain from its submit until the chain has ended."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from rota.engine.transaction import Transaction, TurnRequest
from rota.errors import Conflict, InvalidInput
from rota.ids import JobId
from rota.jobs.retry import retry
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import AcceptedSubmit, DuplicateSubmit, SubmitOutcome, submit
from rota.kernel.status import Status
from tests.harness import Scheduler, SchemaRefused, SqlRunner

pytestmark = pytest.mark.both_databases

ENVIRONMENT = DefaultEnvironment(cwd="/", variables={"PATH": "/usr/bin:/bin"})
TABLES = ("job", "spec", "edge", "lock", "environment", "lane", "event", "idempotency", "sequence")


def table_contents(run_sql: SqlRunner) -> list[list[tuple[Any, ...]]]:
    return [run_sql(f"SELECT * FROM {table}") for table in TABLES]


def make_request(responses: list[Any], *bodies: dict[str, Any]) -> TurnRequest[SubmitOutcome]:
    submissions = [msgspec.convert({"command": ["true"], **body}, Submission) for body in bodies]
    return TurnRequest(
        partial(submit, submissions=submissions, default_environment=ENVIRONMENT, actor="me"), responses.append
    )


def submit_batch(scheduler: Scheduler, *bodies: dict[str, Any]) -> SubmitOutcome:
    submissions = [msgspec.convert({"command": ["true"], **body}, Submission) for body in bodies]
    result: SubmitOutcome = scheduler.run_request(
        partial(submit, submissions=submissions, default_environment=ENVIRONMENT, actor="me")
    )
    return result


def retry_job(scheduler: Scheduler, job: JobId) -> Any:
    return scheduler.run_request(lambda tx: retry(tx, f"job-{job}", actor="me"))


def test_duplicate_submit_names_the_holder_and_leaves_no_trace(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    job = scheduler.submit(unique="card-7")
    before = table_contents(run_sql)
    result = scheduler.try_submit("other", unique="card-7", env={"NEW": "1"}, inherit_env=False, type="new")
    assert result == DuplicateSubmit(active={"card-7": job})
    assert table_contents(run_sql) == before
    assert scheduler.submit(unique="card-8") == job + 1, "no job number was used"


def test_key_is_free_when_the_chain_has_ended(scheduler: Scheduler) -> None:
    for end in (0, 1):
        job = scheduler.submit(unique="k")
        assert isinstance(scheduler.try_submit(unique="k"), DuplicateSubmit)
        scheduler.end_run(job, end)
    cancelled = scheduler.submit(unique="k", delay="1h")
    scheduler.cancel(cancelled)
    failed = scheduler.submit()
    blocked = scheduler.submit(unique="k", after=[failed])
    scheduler.end_run(failed, 1)
    assert scheduler.status(blocked) is Status.BLOCKED_BY_DEPENDENCY
    assert scheduler.submit(unique="k") > blocked


def test_chain_keeps_its_key_during_backoff(scheduler: Scheduler) -> None:
    """The chain keeps its unique key during the backoff, so that no submit collides with the retry."""
    first = scheduler.submit(unique="k", retries=1)
    scheduler.end_run(first, 1)
    second = JobId(first + 1)
    assert scheduler.job(second).not_before is not None
    assert scheduler.try_submit(unique="k") == DuplicateSubmit(active={"k": second})
    scheduler.clock.advance(minutes=10)
    scheduler.run_turns()
    scheduler.end_run(second, 1)
    assert isinstance(scheduler.try_submit(unique="k"), AcceptedSubmit)


def test_key_survives_crash(scheduler: Scheduler) -> None:
    job = scheduler.submit(unique="k")
    scheduler.crash()
    assert scheduler.try_submit(unique="k") == DuplicateSubmit(active={"k": job})


def test_concurrent_submits_in_one_turn_store_one_job(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """LESSONS Dispatch: of two concurrent submits with one key, both were stored."""
    responses: list[Any] = []
    scheduler.engine.turn([make_request(responses, {"unique": "k", "name": f"{n}"}) for n in range(50)])
    stored = [outcome for outcome in responses if isinstance(outcome, AcceptedSubmit)]
    assert len(stored) == 1
    assert responses.count(DuplicateSubmit(active={"k": stored[0].jobs[0]})) == 49
    assert run_sql("SELECT count(*) FROM job") == [(1,)]


def test_refused_submit_does_not_take_the_key_in_its_turn(scheduler: Scheduler) -> None:
    responses: list[Any] = []
    scheduler.engine.turn(
        [
            make_request(responses, {"unique": "k", "priority": 10**9}),
            make_request(responses, {"unique": "k"}),
            make_request(responses, {"unique": "k"}),
        ]
    )
    assert [type(outcome).__name__ for outcome in responses] == ["InvalidInput", "AcceptedSubmit", "DuplicateSubmit"]


def test_batch_with_a_held_key_is_not_stored(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    jobs = [scheduler.submit(unique=key) for key in ("a", "b")]
    before = table_contents(run_sql)
    result = submit_batch(scheduler, {"unique": "b"}, {}, {"unique": "c"}, {"unique": "a"})
    assert isinstance(result, DuplicateSubmit)
    assert result.active == {"a": jobs[0], "b": jobs[1]}
    assert table_contents(run_sql) == before
    free = submit_batch(scheduler, {"unique": "c"}, {}, {"unique": "d"})
    assert isinstance(free, AcceptedSubmit)
    assert [scheduler.job(job).unique for job in free.jobs] == ["c", None, "d"]


def test_batch_with_a_repeated_key_is_refused(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    before = table_contents(run_sql)
    with pytest.raises(InvalidInput, match="jobs 2 and 3 of the submit have the same unique key, 'k'"):
        submit_batch(scheduler, {}, {"unique": "k"}, {"unique": "k"})
    assert table_contents(run_sql) == before


def test_schema_enforces_the_key(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    holder, other = scheduler.submit(unique="k"), scheduler.submit()
    with pytest.raises(SchemaRefused):
        run_sql(f"UPDATE job SET unique_key = 'k' WHERE id = {other}")
    scheduler.end_run(holder)
    run_sql(f"UPDATE job SET unique_key = 'k' WHERE id = {other}")


def test_manual_retry_needs_the_key(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    job = scheduler.submit(unique="k")
    scheduler.end_run(job, 1)
    other = scheduler.submit(unique="k")
    before = table_contents(run_sql)
    with pytest.raises(Conflict, match=rf"cannot retry job-{job}: its unique key 'k' is held by job-{other}"):
        retry_job(scheduler, job)
    assert table_contents(run_sql) == before
    scheduler.end_run(other)
    retried = retry_job(scheduler, job)
    assert scheduler.try_submit(unique="k") == DuplicateSubmit(active={"k": retried.job})


def test_manual_retry_of_waiting_chain_keeps_its_key(scheduler: Scheduler) -> None:
    job = scheduler.submit(unique="k", retries=3)
    scheduler.end_run(job, 1)
    assert retry_job(scheduler, job).job == job + 1


def test_rewind_needs_the_keys_of_all_reset_jobs(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    root = unlimited_scheduler.submit()
    downstream = unlimited_scheduler.submit(after=[root], unique="k")
    unlimited_scheduler.drain()
    other = unlimited_scheduler.submit(unique="k")
    before = table_contents(run_sql)
    with pytest.raises(Conflict, match=rf"cannot rewind job-{downstream}: its unique key 'k' is held by job-{other}"):
        unlimited_scheduler.rewind(root)
    assert table_contents(run_sql) == before
    unlimited_scheduler.end_run(other)
    assert unlimited_scheduler.rewind(root).reset == [f"job-{root}", f"job-{downstream}"]
    assert unlimited_scheduler.try_submit(unique="k") == DuplicateSubmit(active={"k": downstream})


def test_waiting_job_of_the_rewind_set_has_its_key(unlimited_scheduler: Scheduler) -> None:
    root = unlimited_scheduler.submit()
    waiting = unlimited_scheduler.submit(after=[root], unique="k", delay="1h")
    unlimited_scheduler.end_run(root)
    assert unlimited_scheduler.rewind(root).reset == [f"job-{root}", f"job-{waiting}"]


def test_two_chains_of_a_rewind_set_cannot_share_a_key(unlimited_scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """They could one after the other, but not when both are reset together."""
    root = unlimited_scheduler.submit(unique="k")
    unlimited_scheduler.end_run(root)
    follower = unlimited_scheduler.submit(after=[root], unique="k")
    unlimited_scheduler.end_run(follower)
    before = table_contents(run_sql)
    with pytest.raises(Conflict, match=rf"job-{root} and job-{follower} have the same unique key, 'k'"):
        unlimited_scheduler.rewind(root)
    assert table_contents(run_sql) == before


def test_chain_that_lost_its_retry_and_key_ends(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    """Another writer changed the store: the failure is recorded, its retry is not."""
    job = scheduler.submit(unique="k", retries=3)
    scheduler.end_run(job, 1)
    run_sql(f"DELETE FROM event WHERE job = {job + 1}")
    run_sql(f"DELETE FROM job WHERE id = {job + 1}")
    run_sql(f"UPDATE job SET retried_as = NULL WHERE id = {job}")
    other = scheduler.submit(unique="k")
    scheduler.crash()
    assert scheduler.engine.store_error is None
    assert scheduler.engine.recovery_counts is not None
    assert not scheduler.engine.recovery_counts.get("errors")
    assert scheduler.job(job).permanently_failed
    assert scheduler.try_submit(unique="k") == DuplicateSubmit(active={"k": other})


def test_submit_without_key_reads_no_keys(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    database, statements = scheduler.session._db, list[str]()
    rows = database.rows

    def record(name: str, /, **values: Any) -> Any:
        statements.append(name)
        return rows(name, **values)

    monkeypatch.setattr(database, "rows", record)
    scheduler.submit()
    assert "key_holders" not in statements
    scheduler.submit(unique="k")
    assert statements.count("key_holders") == 1


def test_key_is_shown(scheduler: Scheduler) -> None:
    assert scheduler.show_job(scheduler.submit(unique="k")).unique == "k"
    assert scheduler.show_job(scheduler.submit()).unique is None


def test_failed_turn_releases_the_key(scheduler: Scheduler) -> None:
    def fails(tx: Transaction) -> None:
        submit(tx, [Submission(command=["true"], unique="k")], ENVIRONMENT, actor=None)
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        scheduler.run_request(fails)
    assert isinstance(scheduler.try_submit(unique="k"), AcceptedSubmit)
