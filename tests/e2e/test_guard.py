"""Guards of seed 002 on a live home. The tests try to break them with direct writes to the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.e2e.rig import ChildControl, Rota


@contextmanager
def open_database(rota: Rota) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(rota.home / "rota.db", timeout=10, isolation_level=None)) as database:
        database.execute("PRAGMA foreign_keys = ON")
        yield database


def refusal_of(database: sqlite3.Connection, sql: str) -> str:
    with pytest.raises(sqlite3.IntegrityError) as output:
        database.execute(sql)
    return str(output.value)


def test_inv_001_dispatched_job_keeps_its_params_and_command(rota: Rota, children: ChildControl) -> None:
    rota.start()
    running = rota.post_job(children.gated("runs"), params={"key": "value"})
    queued = rota.post_job(["sh", "-c", f'echo "$ROTA_PARAMS" > {children.pipe}'], params={"key": "value"})
    assert children.read_lines() == ["runs begins"]
    with open_database(rota) as database:
        change = 'UPDATE spec SET params = \'{"key":"new_value"}\' WHERE id = '
        assert refusal_of(database, f"{change} 1") == "Cannot modify params after dispatch"
        assert (
            refusal_of(database, "UPDATE spec SET command = '[]' WHERE id = 1")
            == "Cannot modify command after dispatch"
        )
        database.execute(f"{change} 2")
    children.release("runs")
    rota.wait_for_end(queued)
    assert children.read_lines(2) == ["runs ends", '{"key":"new_value"}']
    assert [rota.show(job)["params"] for job in (running, queued)] == [{"key": "value"}, {"key": "new_value"}]
    with open_database(rota) as database:
        frozen = "UPDATE spec SET params = '{}' WHERE id = 2"
        assert refusal_of(database, frozen) == "Cannot modify params after dispatch", "the job has run"


def test_inv_002_run_is_an_immutable_record(rota: Rota, children: ChildControl) -> None:
    rota.start()
    job = rota.post_job(children.immediate("done", 3))
    before = rota.wait_for_end(job)["run"]
    with open_database(rota) as database:
        for field, value in (("id", "9"), ("worker", "'local/9'"), ("started_at", "0")):
            output = refusal_of(database, f"UPDATE run SET {field} = {value} WHERE id = 1")
            assert output == f"Cannot modify immutable fields: {field}"
    assert rota.show(job)["run"] == before


def test_inv_003_worker_runs_one_job_at_a_time(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(3)
    jobs = {name: rota.post_job(children.gated(name)) for name in "abcd"}
    assert sorted(children.read_lines(3)) == ["a begins", "b begins", "c begins"]
    assert [rota.show(jobs[name])["run"]["worker"] for name in "abc"] == ["local/1", "local/2", "local/3"]
    with open_database(rota) as database:
        second = "INSERT INTO run (id, job, worker, started_at) VALUES (99, 4, 'local/2', 0)"
        assert refusal_of(database, second) == "UNIQUE constraint failed: run.worker"
    children.release("b")
    assert children.read_lines(2) == ["b ends", "d begins"]
    assert rota.show(jobs["d"])["run"]["worker"] == "local/2", "the freed worker"
    for name in "acd":
        children.release(name)
    rota.wait(*jobs.values())


def test_dec_001_executed_job_has_one_run_and_others_none(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_start_delays("10ms")
    ran, failed = rota.post_job(children.immediate("ran")), rota.post_job(children.immediate("failed", 3))
    never = rota.post_job(children.immediate("never"), delay="1h")
    missing = rota.post_job([str(children.path / "missing")])
    rota.run("cancel", never)
    rota.wait_for_end(failed)
    assert rota.wait_for_end(missing)["reason"].startswith("circuit-broken")
    assert [(shown["id"], shown["run"] and shown["run"]["status"]) for shown in rota.jobs()] == [
        (ran, "COMPLETED"),
        (failed, "FAILED"),
        (never, None),
        (missing, None),
    ]
    with open_database(rota) as database:
        assert database.execute("SELECT job FROM run ORDER BY id").fetchall() == [(1,), (2,)]


def test_dec_008_queue_survives_a_crash_in_order(rota: Rota, children: ChildControl) -> None:
    rota.start()
    running = rota.post_job(children.gated("running"))
    assert children.read_lines() == ["running begins"]
    rota.wait_for_start(running)
    for name, priority in (("third", 0), ("first", 9), ("fourth", 0), ("second", 5)):
        rota.post_job(children.immediate(name), priority=priority)
    before = rota.jobs()[1:]
    rota.crash()
    rota.start()
    assert rota.jobs()[1:] == before
    children.release("running")
    for shown in before:
        rota.wait_for_end(shown["id"])
    assert [line for line in children.read_available() if line.endswith("begins")] == [
        f"{name} begins" for name in ("first", "second", "third", "fourth")
    ]


def test_con_002_one_user_of_ollama_at_a_time(rota: Rota, children: ChildControl) -> None:
    rota.start()
    rota.set_global_size(-1)
    first, second = (rota.post_job(children.gated(name), pools={"resource/ollama": 1}) for name in ("first", "second"))
    remote = rota.post_job(children.gated("remote"))
    assert sorted(children.read_lines(2)) == ["first begins", "remote begins"]
    assert rota.show(second)["wait"]["detail"] == "waiting on pool resource/ollama (1/1)"
    children.release("first")
    assert children.read_lines(2) == ["first ends", "second begins"]
    for name in ("second", "remote"):
        children.release(name)
    rota.wait(first, second, remote)
