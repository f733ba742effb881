"""Removal on both databases: a chain is removed as a whole or not at all, and no id is reused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.ids import JobId, RunId
from rota.kernel.breaker import OpenState
from rota.kernel.edges import DependencyPolicy
from rota.kernel.job import Spec
from rota.retention.model import partition_collectable
from rota.retention.repository import MAX_ID, RemovalResult, RowCounts
from tests.db.harness import FAILED_RESULT, NOW, StoreHarness, add_job
from tests.db.invariants import check_store
from tests.harness import SqlRunner
from tests.sample import sample

TABLES = ("job", "spec", "edge", "lock", "run", "event")
LATER = NOW + timedelta(days=1)


def count_rows(run_sql: SqlRunner) -> dict[str, int]:
    return {table: run_sql(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def add_ended_job(harness: StoreHarness, **fields: object) -> JobId:
    job = harness.add(**fields)  # type: ignore[arg-type]
    harness.evaluate()
    assert harness.claim() == [job]
    harness.finish(job)
    return job


def remove_chains(
    harness: StoreHarness, *ids: JobId, until: datetime = LATER, settled_seq: int = MAX_ID
) -> RemovalResult:
    with harness.transaction() as session:
        return session.retention.remove_chains(ids, until=until, settled_seq=settled_seq)


def job_ids(harness: StoreHarness) -> list[int]:
    return [job for (job,) in harness.run_sql("SELECT id FROM job ORDER BY id")]


def test_chain_is_removed_with_all_rows_and_counted(harness: StoreHarness) -> None:
    job = add_ended_job(harness, locks=["repo"])
    before = count_rows(harness.run_sql)
    removed = remove_chains(harness, job)
    assert removed.chains == {job}
    assert (removed.rows.jobs, removed.rows.runs, removed.rows.events) == (1, before["run"], before["event"])
    assert set(count_rows(harness.run_sql).values()) == {0}


def test_removal_includes_prefetch_offers(harness: StoreHarness) -> None:
    """An executor that did not confirm a withdrawal leaves the offer in the store."""
    job = add_ended_job(harness)
    with harness.transaction() as session:
        session.prefetch.offer({job: RunId(77)}, NOW)
    assert remove_chains(harness, job).chains == {job}
    assert harness.run_sql("SELECT count(*) FROM prefetch") == [(0,)]


def test_removed_ids_are_not_reused(harness: StoreHarness) -> None:
    job = add_ended_job(harness)
    ((run,),) = harness.run_sql("SELECT max(id) FROM run")
    ((event,),) = harness.run_sql("SELECT max(seq) FROM event")
    remove_chains(harness, job)
    assert add_ended_job(harness) == job + 1
    assert harness.run_sql("SELECT min(id) FROM run") == [(run + 1,)]
    assert harness.run_sql("SELECT min(seq) FROM event") == [(event + 1,)]
    assert harness.reader.events.first_seq() == event + 1


@pytest.mark.parametrize("policy", list(DependencyPolicy))
def test_chain_with_a_new_dependent_is_kept(harness: StoreHarness, policy: DependencyPolicy) -> None:
    job = add_ended_job(harness)
    harness.add(after=[(job, policy)])
    before = count_rows(harness.run_sql)
    assert remove_chains(harness, job) == RemovalResult(chains=frozenset(), rows=RowCounts())
    assert count_rows(harness.run_sql) == before


def test_chain_with_a_new_retry_is_kept(harness: StoreHarness) -> None:
    job = harness.add()
    harness.claim()
    harness.finish(job, FAILED_RESULT)
    with harness.transaction() as session:
        retry = session.chains.retry(job, retries=0, not_before=None, now=NOW, cause="retry")
    assert not remove_chains(harness, job).chains
    assert job_ids(harness) == [job, retry]


def test_age_of_a_chain_counts_from_its_last_end(harness: StoreHarness) -> None:
    job = harness.add()
    harness.claim()
    harness.finish(job, FAILED_RESULT)
    with harness.transaction() as session:
        retry = session.chains.retry(job, retries=0, not_before=None, now=NOW, cause="retry")
    harness.evaluate()
    harness.claim()
    harness.finish(retry)
    harness.run_sql(f"UPDATE job SET finished_at = finished_at + 1 WHERE id = {retry}")
    assert not remove_chains(harness, job, until=NOW + timedelta(microseconds=1)).chains
    assert remove_chains(harness, job, until=NOW + timedelta(microseconds=2)).rows.jobs == 2


def test_job_with_later_events_is_kept(harness: StoreHarness) -> None:
    job = add_ended_job(harness)
    last = harness.reader.events.last_stored_seq()
    assert not remove_chains(harness, job, settled_seq=last - 1).chains
    assert remove_chains(harness, job, settled_seq=last).chains


def test_probing_job_is_kept(harness: StoreHarness) -> None:
    job = add_ended_job(harness)
    harness.run_sql(
        f"INSERT INTO breaker (key, state, opened_at, until, probe) VALUES ('type/story', 'half_open', 1, 2, {job})"
    )
    assert not remove_chains(harness, job).chains
    harness.run_sql("DELETE FROM breaker")
    assert remove_chains(harness, job).chains


def test_old_responses_and_jobless_events_are_removed(harness: StoreHarness) -> None:
    with harness.transaction() as session:
        session.responses.add("old", "d", 201, "a", NOW)
        session.responses.add("new", "d", 201, "a", LATER)
        session.breakers.set("type/a", OpenState(until=LATER), now=NOW, cause="test")
    assert harness.reader.responses.old_keys(NOW) == []
    assert harness.reader.responses.old_keys(LATER) == ["old"]
    assert harness.reader.events.old_jobless(NOW) == []
    numbers = harness.reader.events.old_jobless(LATER)
    with harness.transaction() as session:
        assert session.responses.remove(["old"]) == 1
        assert session.events.remove_jobless(numbers) == len(numbers) == 1
    assert harness.run_sql("SELECT key FROM idempotency") == [("new",)]
    assert harness.reader.events.first_seq() == numbers[0] + 1


def test_unused_environments_and_lanes_are_removed_and_ids_not_reused(harness: StoreHarness) -> None:
    """The executor caches environments by id: a reused id would start a job in the wrong environment."""

    def add(name: str) -> JobId:
        with harness.transaction() as session:
            spec = Spec(command=("true",), cwd="/", environment=session.jobs.environment_id({"NAME": name}))
            return add_job(session, spec=spec, demand={f"flow/{name}": 1})

    def stored_ids() -> tuple[list[int], list[int]]:
        environments = harness.run_sql("SELECT id FROM environment ORDER BY id")
        return [row[0] for row in environments], [row[0] for row in harness.run_sql("SELECT id FROM lane ORDER BY id")]

    first, second, third = add("a"), add("b"), add("c")
    harness.claim()
    for job in (first, second, third):
        harness.finish(job)
    remove_chains(harness, third, first)
    unused = harness.reader.retention.find_unused()
    assert (unused.lanes, unused.environments) == ([1, 3], [1, 3])
    late = add("a")
    with harness.transaction() as session:
        rows = session.retention.remove_unused(unused)
    assert (rows.lanes, rows.environments) == (0, 0), (
        "one environment is in use again, and the last lane and environment stay"
    )
    harness.claim()
    harness.finish(late)
    remove_chains(harness, late)
    with harness.transaction() as session:
        rows = session.retention.remove_unused(harness.reader.retention.find_unused())
        assert session.jobs.environment_id({"NAME": "d"}) == 4
    assert (rows.lanes, rows.environments) == (1, 1)
    assert stored_ids() == ([2, 3, 4], [2, 3])


def test_submit_after_removal_adds_the_environment_again(harness: StoreHarness) -> None:
    with harness.transaction() as session:
        session.jobs.environment_id({"NAME": "a"})
        session.jobs.environment_id({"NAME": "b"})
    with harness.transaction() as session:
        assert session.jobs.environment_id({"NAME": "a"}) == 1
        session.retention.remove_unused(harness.reader.retention.find_unused())
        assert session.jobs.environment_id({"NAME": "a"}) == 3


def test_missing_job_error_distinguishes_collected_from_unknown(harness: StoreHarness) -> None:
    job = add_ended_job(harness)
    remove_chains(harness, job)
    assert "retention may have removed it" in harness.reader.jobs.not_found(job).message
    assert "`rota list --all`" in harness.reader.jobs.not_found(JobId(job + 1)).message
    assert "retention may have removed it" in harness.session.jobs.not_found(job).message


JobHistory = list[tuple[list[int], int, int]]
"""For each job: the indexes of its predecessors, how it ends (0: not at all), and how many days ago."""


@st.composite
def histories(draw: st.DrawFn) -> JobHistory:
    count = draw(st.integers(1, 8))
    return [
        (
            draw(st.lists(st.integers(0, number - 1), unique=True, max_size=3)) if number else [],
            draw(st.integers(0, 4)),
            draw(st.integers(0, 3)),
        )
        for number in range(count)
    ]


def build_chains(harness: StoreHarness, history: JobHistory) -> list[JobId]:
    """Build chains of one or two jobs with these edges, ends and ages. Ends are written by raw SQL."""
    chains: list[JobId] = []
    with harness.transaction() as session:
        for predecessors, _, _ in history:
            edges = [(chains[n], DependencyPolicy.FINISHED) for n in predecessors]
            chains.append(add_job(session, after=edges, locks=["repo"]))
    for job, (_, end, days) in zip(chains, history, strict=True):
        if end > 1:
            _end_job(harness.run_sql, job, NOW - timedelta(days=days))
        if end > 2:
            with harness.unchecked_transaction() as session:
                retry = session.chains.retry(job, retries=0, not_before=None, now=NOW, cause="retry")
            if end > 3:
                _end_job(harness.run_sql, retry, NOW - timedelta(days=days) + timedelta(hours=1))
    return chains


def _end_job(run_sql: SqlRunner, job: JobId, at: datetime) -> None:
    stored = int(at.timestamp() * 1_000_000)
    run_sql(
        f"UPDATE job SET status = 'CANCELLED', finished_at = {stored}, ready = 0, dirty = 0, wait_kind = NULL"
        f" WHERE id = {job}"
    )


@settings(max_examples=sample(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories(), limit=st.integers(1, 3))
def test_removal_leaves_no_dangling_references(harness: StoreHarness, history: JobHistory, limit: int) -> None:
    for table in ("lock", "edge", "run", "event", "job", "spec"):
        harness.run_sql(f"DELETE FROM {table}")
    before = harness.run_sql("SELECT next FROM sequence WHERE entity = 'job'")[0][0]
    chains = build_chains(harness, history)
    assert min(chains) >= before
    until = NOW - timedelta(days=1)
    old_chains = {row[0] for row in harness.run_sql("SELECT chain FROM job")}
    edges = harness.run_sql("SELECT job.chain, edge.chain FROM edge JOIN job ON job.id = edge.job")
    kept = _kept_chains(harness.run_sql, edges, until)
    _collect(harness, until, limit)
    assert {row[0] for row in harness.run_sql("SELECT DISTINCT chain FROM job")} == kept
    assert harness.run_sql("SELECT job FROM edge WHERE chain NOT IN (SELECT chain FROM job)") == []
    for table in ("edge", "lock", "run", "event"):
        assert harness.run_sql(f"SELECT job FROM {table} WHERE job NOT IN (SELECT id FROM job)") == []
    assert harness.run_sql("SELECT id FROM spec WHERE id NOT IN (SELECT spec FROM job)") == []
    with harness.unchecked_transaction() as session:
        assert session.ids.allocate_jobs(1)[0] > max(old_chains)
    harness.run_sql(f"UPDATE sequence SET next = {max(old_chains) + 10} WHERE entity = 'job'")


def _kept_chains(run_sql: SqlRunner, edges: Sequence[tuple[int, ...]], until: datetime) -> set[int]:
    limit = int(until.timestamp() * 1_000_000)
    kept = {row[0] for row in run_sql(f"SELECT chain FROM job WHERE finished_at IS NULL OR finished_at >= {limit}")}
    while predecessors := {predecessor for job, predecessor in edges if job in kept} - kept:
        kept |= predecessors
    return kept


def _collect(harness: StoreHarness, until: datetime, limit: int) -> None:
    before_id = MAX_ID
    while ids := harness.reader.retention.old_chains(before_id, until=until, limit=limit):
        before_id = ids[-1]
        with harness.unchecked_transaction() as session:
            chains = session.retention.ended_chains(ids, settled_seq=MAX_ID)
            planned = partition_collectable(chains, until=until, removed=frozenset()).collectable
            assert session.retention.remove_chains(ids, until=until, settled_seq=MAX_ID).chains == {
                chain.id for chain in planned
            }


def test_store_is_consistent_after_a_removal(harness: StoreHarness) -> None:
    first, second, third = add_ended_job(harness), add_ended_job(harness), add_ended_job(harness)
    remove_chains(harness, second)
    assert job_ids(harness) == [first, third]
    check_store(harness.run_sql)
