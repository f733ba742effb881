"""The removal itself, on both databases: all of a chain or none of it, and no number twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import Raw
from rota.core.after import AfterPolicy
from rota.core.breaker import Open
from rota.core.gc import sort_out
from rota.core.job import Spec
from rota.ids import JobId, RunId
from rota.store.gc import TOP, Removed, RowCounts
from sample import sample
from store.desk import BROKEN, NOW, Desk, add_job
from store.invariants import check_store

TABLES = ("job", "spec", "edge", "lock", "run", "event")
LATER = NOW + timedelta(days=1)


def counts(raw: Raw) -> dict[str, int]:
    return {table: raw(f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


def ended(desk: Desk, **fields: object) -> JobId:
    job = desk.add(**fields)  # type: ignore[arg-type]
    desk.look()
    assert desk.claim() == [job]
    desk.finish(job)
    return job


def remove(desk: Desk, *ids: JobId, until: datetime = LATER, settled: int = TOP) -> Removed:
    with desk.writing() as session:
        return session.remove_chains(ids, until=until, settled=settled)


def jobs(desk: Desk) -> list[int]:
    return [job for (job,) in desk.raw("SELECT id FROM job ORDER BY id")]


def test_all_rows_of_a_chain_go_and_are_counted(desk: Desk) -> None:
    job = ended(desk, locks=["repo"])
    there = counts(desk.raw)
    removed = remove(desk, job)
    assert removed.chains == {job}
    assert (removed.rows.jobs, removed.rows.runs, removed.rows.events) == (1, there["run"], there["event"])
    assert set(counts(desk.raw).values()) == {0}


def test_what_an_executor_was_given_of_it_goes_too(desk: Desk) -> None:
    """It did not answer when its job was taken back, so that was never told as over."""
    job = ended(desk)
    with desk.writing() as session:
        session.give_ahead({job: RunId(77)}, NOW)
    assert remove(desk, job).chains == {job}
    assert desk.raw("SELECT count(*) FROM ahead") == [(0,)]


def test_numbers_are_not_used_again(desk: Desk) -> None:
    job = ended(desk)
    ((run,),) = desk.raw("SELECT max(id) FROM run")
    ((event,),) = desk.raw("SELECT max(seq) FROM event")
    remove(desk, job)
    assert ended(desk) == job + 1
    assert desk.raw("SELECT min(id) FROM run") == [(run + 1,)]
    assert desk.raw("SELECT min(seq) FROM event") == [(event + 1,)]
    assert desk.reader.events_from() == event + 1


@pytest.mark.parametrize("policy", list(AfterPolicy))
def test_a_chain_that_somebody_came_after_meanwhile_stays_whole(desk: Desk, policy: AfterPolicy) -> None:
    job = ended(desk)
    desk.add(after=[(job, policy)])
    before = counts(desk.raw)
    assert remove(desk, job) == Removed(chains=frozenset(), rows=RowCounts())
    assert counts(desk.raw) == before


def test_a_chain_that_goes_on_meanwhile_stays_whole(desk: Desk) -> None:
    job = desk.add()
    desk.claim()
    desk.finish(job, BROKEN)
    with desk.writing() as session:
        retry = session.add_retry(job, retries=0, not_before=None, now=NOW, cause="retry")
    assert not remove(desk, job).chains
    assert jobs(desk) == [job, retry]


def test_the_last_end_of_a_chain_counts(desk: Desk) -> None:
    job = desk.add()
    desk.claim()
    desk.finish(job, BROKEN)
    with desk.writing() as session:
        retry = session.add_retry(job, retries=0, not_before=None, now=NOW, cause="retry")
    desk.look()
    desk.claim()
    desk.finish(retry)
    desk.raw(f"UPDATE job SET finished_at = finished_at + 1 WHERE id = {retry}")
    assert not remove(desk, job, until=NOW + timedelta(microseconds=1)).chains
    assert remove(desk, job, until=NOW + timedelta(microseconds=2)).rows.jobs == 2


def test_a_job_that_something_happened_to_since_its_files_were_settled_stays(desk: Desk) -> None:
    job = ended(desk)
    last = desk.reader.last_event()
    assert not remove(desk, job, settled=last - 1).chains
    assert remove(desk, job, settled=last).chains


def test_the_job_that_a_breaker_waits_for_stays(desk: Desk) -> None:
    job = ended(desk)
    desk.raw(
        f"INSERT INTO breaker (key, state, opened_at, until, probe) VALUES ('type/story', 'half_open', 1, 2, {job})"
    )
    assert not remove(desk, job).chains
    desk.raw("DELETE FROM breaker")
    assert remove(desk, job).chains


def test_answers_and_events_without_a_job_go_by_age(desk: Desk) -> None:
    with desk.writing() as session:
        session.remember_answer("old", "d", 201, "a", NOW)
        session.remember_answer("new", "d", 201, "a", LATER)
        session.set_breaker("type/a", Open(until=LATER), now=NOW, cause="test")
    assert desk.reader.old_answers(NOW) == []
    assert desk.reader.old_answers(LATER) == ["old"]
    assert desk.reader.old_jobless_events(NOW) == []
    numbers = desk.reader.old_jobless_events(LATER)
    with desk.writing() as session:
        assert session.remove_answers(["old"]) == 1
        assert session.remove_jobless_events(numbers) == len(numbers) == 1
    assert desk.raw("SELECT key FROM idempotency") == [("new",)]
    assert desk.reader.events_from() == numbers[0] + 1


def test_environments_and_lanes_that_nobody_uses_go_and_their_numbers_mean_nothing_else(desk: Desk) -> None:
    """The executor knows environments by number: a number that came to mean another would start a job in it."""

    def add(name: str) -> JobId:
        with desk.writing() as session:
            spec = Spec(command=("true",), cwd="/", surroundings=session.surroundings({"NAME": name}))
            return add_job(session, spec=spec, draws={f"flow/{name}": 1})

    def there() -> tuple[list[int], list[int]]:
        environments = desk.raw("SELECT id FROM surroundings ORDER BY id")
        return [row[0] for row in environments], [row[0] for row in desk.raw("SELECT id FROM lane ORDER BY id")]

    first, second, third = add("a"), add("b"), add("c")
    desk.claim()
    for job in (first, second, third):
        desk.finish(job)
    remove(desk, third, first)
    unused = desk.reader.unused()
    assert (unused.lanes, unused.surroundings) == ([1, 3], [1, 3])
    late = add("a")
    with desk.writing() as session:
        rows = session.remove_unused(unused)
    assert (rows.lanes, rows.surroundings) == (0, 0), "one is used again, and the last of all stays"
    desk.claim()
    desk.finish(late)
    remove(desk, late)
    with desk.writing() as session:
        rows = session.remove_unused(desk.reader.unused())
        assert session.surroundings({"NAME": "d"}) == 4
    assert (rows.lanes, rows.surroundings) == (1, 1)
    assert there() == ([2, 3, 4], [2, 3])


def test_a_submit_of_the_same_transaction_does_not_use_what_was_just_removed(desk: Desk) -> None:
    with desk.writing() as session:
        session.surroundings({"NAME": "a"})
        session.surroundings({"NAME": "b"})
    with desk.writing() as session:
        assert session.surroundings({"NAME": "a"}) == 1
        session.remove_unused(desk.reader.unused())
        assert session.surroundings({"NAME": "a"}) == 3


def test_the_refusal_tells_a_number_that_was_used_from_one_that_never_was(desk: Desk) -> None:
    job = ended(desk)
    remove(desk, job)
    assert "may have been collected" in desk.reader.no_such_job(job).message
    assert "`rota list --all`" in desk.reader.no_such_job(JobId(job + 1)).message
    assert "may have been collected" in desk.session.no_such_job(job).message


Wanted = list[tuple[list[int], int, int]]
"""Of each job: which of those before it comes before, how it ends (0 it does not), and how many days ago."""


@st.composite
def histories(draw: st.DrawFn) -> Wanted:
    count = draw(st.integers(1, 8))
    return [
        (
            draw(st.lists(st.integers(0, number - 1), unique=True, max_size=3)) if number else [],
            draw(st.integers(0, 4)),
            draw(st.integers(0, 3)),
        )
        for number in range(count)
    ]


def build(desk: Desk, wanted: Wanted) -> list[JobId]:
    """Chains of one or two jobs, with edges, ages and ends as wanted; the ends are written past the verbs."""
    chains: list[JobId] = []
    with desk.writing() as session:
        for before, _, _ in wanted:
            edges = [(chains[each], AfterPolicy.FINISHED) for each in before]
            chains.append(add_job(session, after=edges, locks=["repo"]))
    for job, (_, end, days) in zip(chains, wanted, strict=True):
        if end > 1:
            _end(desk.raw, job, NOW - timedelta(days=days))
        if end > 2:
            with desk.unchecked() as session:
                retry = session.add_retry(job, retries=0, not_before=None, now=NOW, cause="retry")
            if end > 3:
                _end(desk.raw, retry, NOW - timedelta(days=days) + timedelta(hours=1))
    return chains


def _end(raw: Raw, job: JobId, at: datetime) -> None:
    stored = int(at.timestamp() * 1_000_000)
    raw(
        f"UPDATE job SET status = 'CANCELLED', finished_at = {stored}, ready = 0, stirred = 0, wait_kind = NULL"
        f" WHERE id = {job}"
    )


@settings(max_examples=sample(10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=histories(), limit=st.integers(1, 3))
def test_whatever_is_removed_nothing_that_is_left_refers_to_it(desk: Desk, wanted: Wanted, limit: int) -> None:
    for table in ("lock", "edge", "run", "event", "job", "spec"):
        desk.raw(f"DELETE FROM {table}")
    before = desk.raw("SELECT next FROM sequence WHERE noun = 'job'")[0][0]
    chains = build(desk, wanted)
    assert min(chains) >= before
    until = NOW - timedelta(days=1)
    was = {row[0] for row in desk.raw("SELECT chain FROM job")}
    edges = desk.raw("SELECT job.chain, edge.chain FROM edge JOIN job ON job.id = edge.job")
    stays = _must_stay(desk.raw, edges, until)
    _collect(desk, until, limit)
    assert {row[0] for row in desk.raw("SELECT DISTINCT chain FROM job")} == stays
    assert desk.raw("SELECT job FROM edge WHERE chain NOT IN (SELECT chain FROM job)") == []
    for table in ("edge", "lock", "run", "event"):
        assert desk.raw(f"SELECT job FROM {table} WHERE job NOT IN (SELECT id FROM job)") == []
    assert desk.raw("SELECT id FROM spec WHERE id NOT IN (SELECT spec FROM job)") == []
    with desk.unchecked() as session:
        assert session.next_job_ids(1)[0] > max(was)
    desk.raw(f"UPDATE sequence SET next = {max(was) + 10} WHERE noun = 'job'")


def _must_stay(raw: Raw, edges: Sequence[tuple[int, ...]], until: datetime) -> set[int]:
    limit = int(until.timestamp() * 1_000_000)
    stays = {row[0] for row in raw(f"SELECT chain FROM job WHERE finished_at IS NULL OR finished_at >= {limit}")}
    while more := {predecessor for job, predecessor in edges if job in stays} - stays:
        stays |= more
    return stays


def _collect(desk: Desk, until: datetime, limit: int) -> None:
    below = TOP
    while ids := desk.reader.old_chains(below, until=until, limit=limit):
        below = ids[-1]
        with desk.unchecked() as session:
            chains = session.chains_for_gc(ids, settled=TOP)
            planned = sort_out(chains, until=until, gone=frozenset()).free
            assert session.remove_chains(ids, until=until, settled=TOP).chains == {chain.id for chain in planned}


def test_the_store_is_in_order_after_a_removal_from_the_middle(desk: Desk) -> None:
    first, second, third = ended(desk), ended(desk), ended(desk)
    remove(desk, second)
    assert jobs(desk) == [first, third]
    check_store(desk.raw)
