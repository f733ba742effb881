"""The guards of seed 002 on a live home, with whoever would break them writing to the database past Rota."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from e2e.rig import Rota, Stage


@contextmanager
def past_rota(rota: Rota) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(rota.home / "rota.db", timeout=10, isolation_level=None)) as database:
        database.execute("PRAGMA foreign_keys = ON")
        yield database


def refused(database: sqlite3.Connection, sql: str) -> str:
    with pytest.raises(sqlite3.IntegrityError) as said:
        database.execute(sql)
    return str(said.value)


def test_inv_001_what_was_dispatched_keeps_its_params_and_command(rota: Rota, stage: Stage) -> None:
    rota.start()
    running = rota.post(stage.actor("runs"), params={"key": "value"})
    queued = rota.post(["sh", "-c", f'echo "$ROTA_PARAMS" > {stage.pipe}'], params={"key": "value"})
    assert stage.hear() == ["runs begins"]
    with past_rota(rota) as database:
        change = 'UPDATE spec SET params = \'{"key":"new_value"}\' WHERE id = '
        assert refused(database, f"{change} 1") == "Cannot modify params after dispatch"
        assert (
            refused(database, "UPDATE spec SET command = '[]' WHERE id = 1") == "Cannot modify command after dispatch"
        )
        database.execute(f"{change} 2")
    stage.release("runs")
    rota.ended(queued)
    assert stage.hear(2) == ["runs ends", '{"key":"new_value"}']
    assert [rota.show(job)["params"] for job in (running, queued)] == [{"key": "value"}, {"key": "new_value"}]
    with past_rota(rota) as database:
        frozen = "UPDATE spec SET params = '{}' WHERE id = 2"
        assert refused(database, frozen) == "Cannot modify params after dispatch", "it has run by now"


def test_inv_002_a_run_is_an_audit_record(rota: Rota, stage: Stage) -> None:
    rota.start()
    job = rota.post(stage.walk_on("done", 3))
    before = rota.ended(job)["run"]
    with past_rota(rota) as database:
        for field, value in (("id", "9"), ("worker", "'local/9'"), ("started_at", "0")):
            said = refused(database, f"UPDATE run SET {field} = {value} WHERE id = 1")
            assert said == f"Cannot modify immutable fields: {field}"
    assert rota.show(job)["run"] == before


def test_inv_003_a_worker_has_one_job_at_a_time(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.set_global(3)
    jobs = {name: rota.post(stage.actor(name)) for name in "abcd"}
    assert sorted(stage.hear(3)) == ["a begins", "b begins", "c begins"]
    assert [rota.show(jobs[name])["run"]["worker"] for name in "abc"] == ["local/1", "local/2", "local/3"]
    with past_rota(rota) as database:
        second = "INSERT INTO run (id, job, worker, started_at) VALUES (99, 4, 'local/2', 0)"
        assert refused(database, second) == "UNIQUE constraint failed: run.worker"
    stage.release("b")
    assert stage.hear(2) == ["b ends", "d begins"]
    assert rota.show(jobs["d"])["run"]["worker"] == "local/2", "the place that came free"
    for name in "acd":
        stage.release(name)
    rota.wait(*jobs.values())


def test_dec_001_one_run_for_a_job_that_ran_and_none_for_one_that_did_not(rota: Rota, stage: Stage) -> None:
    rota.start()
    ran, failed = rota.post(stage.walk_on("ran")), rota.post(stage.walk_on("failed", 3))
    never = rota.post(stage.walk_on("never"), delay="1h")
    missing = rota.post([str(stage.path / "missing")])
    rota.ask("cancel", never)
    rota.ended(failed)
    assert rota.ended(missing)["reason"].startswith("circuit-broken")
    assert [(shown["id"], shown["run"] and shown["run"]["status"]) for shown in rota.jobs()] == [
        (ran, "COMPLETED"),
        (failed, "FAILED"),
        (never, None),
        (missing, None),
    ]
    with past_rota(rota) as database:
        assert database.execute("SELECT job FROM run ORDER BY id").fetchall() == [(1,), (2,)]


def test_dec_008_the_queue_is_there_after_a_crash_in_its_order(rota: Rota, stage: Stage) -> None:
    rota.start()
    running = rota.post(stage.actor("running"))
    assert stage.hear() == ["running begins"]
    rota.running(running)
    for name, priority in (("third", 0), ("first", 9), ("fourth", 0), ("second", 5)):
        rota.post(stage.walk_on(name), priority=priority)
    before = rota.jobs()[1:]
    rota.crash()
    rota.start()
    assert rota.jobs()[1:] == before
    stage.release("running")
    for shown in before:
        rota.ended(shown["id"])
    assert [line for line in stage.heard() if line.endswith("begins")] == [
        f"{name} begins" for name in ("first", "second", "third", "fourth")
    ]


def test_con_002_one_user_of_ollama_at_a_time(rota: Rota, stage: Stage) -> None:
    rota.start()
    rota.set_global(-1)
    first, second = (rota.post(stage.actor(name), pools={"resource/ollama": 1}) for name in ("first", "second"))
    remote = rota.post(stage.actor("remote"))
    assert sorted(stage.hear(2)) == ["first begins", "remote begins"]
    assert rota.show(second)["wait"]["detail"] == "waiting on pool resource/ollama (1/1)"
    stage.release("first")
    assert stage.hear(2) == ["first ends", "second begins"]
    for name in ("second", "remote"):
        stage.release(name)
    rota.wait(first, second, remote)
