"""PostgreSQL under a real scheduler, and a queue that moves there from SQLite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.rig import Rota, Stage
from e2e.test_crash import a_claimed_job_that_never_started_returns_to_its_place, three_crashes_in_a_row


@pytest.fixture
def on_postgres(rota: Rota, postgres_url: str) -> Rota:
    """A home whose records are on a server."""
    rota.ask("config", "set", "store.url", postgres_url)
    return rota


def test_crashes_on_postgres(on_postgres: Rota, stage: Stage) -> None:
    three_crashes_in_a_row(on_postgres, stage)
    assert on_postgres.status()["store"].startswith("postgresql://")
    assert not (on_postgres.home / "rota.db").exists()


def test_a_claim_without_a_start_on_postgres(on_postgres: Rota, stage: Stage) -> None:
    a_claimed_job_that_never_started_returns_to_its_place(on_postgres, stage)
    assert on_postgres.status()["store"].startswith("postgresql://")


def test_a_queue_moves_to_postgres_and_goes_on_there(rota: Rota, stage: Stage, postgres_url: str) -> None:
    rota.start()
    done = rota.post(stage.walk_on("done"))
    rota.ended(done)
    rota.set_global(0)
    first, second = (rota.post(stage.walk_on(name)) for name in ("first", "second"))
    refused = rota.ask("store", "copy", "home", postgres_url, code=4)
    assert "another scheduler" in refused.err
    rota.ask("down")
    copied = rota.json("store", "copy", "home", postgres_url)["copied"]
    assert copied["job"] == 3
    rota.ask("config", "set", "store.url", postgres_url)
    rota.ask("config", "set", "pools.global", "1")
    rota.start()
    assert [rota.ended(job)["status"] for job in (done, first, second)] == ["COMPLETED"] * 3
    assert rota.submit("--", "true") == "job-4"
    assert stage.heard() == [f"{name} {act}" for name in ("done", "first", "second") for act in ("begins", "ends")]
    rota.ask("down")
    again = rota.ask("store", "copy", str(rota.home / "rota.db"), postgres_url, code=4)
    assert "not empty" in again.err or "already" in again.err


@pytest.fixture
def other(make_rota: Callable[..., Rota], tmp_path: Path, postgres_url: str) -> Rota:
    """Another home whose records are on the same server."""
    other = make_rota(tmp_path / "other")
    other.ask("config", "set", "store.url", postgres_url)
    return other


def test_another_home_does_not_get_a_store_whose_jobs_run_elsewhere(
    on_postgres: Rota, other: Rota, stage: Stage
) -> None:
    """It would take them for lost, and run them again beside themselves."""
    on_postgres.start()
    job = on_postgres.post(stage.actor("it"), retries=1)
    assert stage.hear() == ["it begins"]
    on_postgres.running(job)
    on_postgres.crash()
    said = other.ask("up", code=1)
    assert f"is the store of the home {on_postgres.home} on " in said.err
    assert "`rota store adopt`" in said.err
    assert "does not answer" not in said.err
    on_postgres.start()
    stage.release("it")
    assert on_postgres.ended(job)["status"] == "COMPLETED"
    on_postgres.ask("down")
    assert other.start()
    assert other.show(job)["attempt"] == 1
    assert stage.heard() == ["it ends"]


def test_a_store_of_a_home_that_is_gone_is_adopted(on_postgres: Rota, other: Rota, stage: Stage) -> None:
    on_postgres.start()
    lost = on_postgres.post(stage.actor("it"), retries=1)
    assert stage.hear() == ["it begins"]
    on_postgres.running(lost)
    on_postgres.close()
    assert other.json("store", "adopt")["home"] == str(other.home)
    other.start()
    assert stage.hear() == ["it begins"], "the retry"
    assert other.show(lost)["reason"] == "Scheduler crash recovery"
    said = on_postgres.ask("up", code=1)
    assert "another scheduler" in said.err
    stage.release("it")
    assert stage.hear() == ["it ends"]


def test_a_store_in_a_file_is_its_homes(rota: Rota) -> None:
    assert "lies in its home" in rota.ask("store", "adopt", code=2).err


def test_a_copy_in_a_file_leaves_nothing_else_beside_it(rota: Rota) -> None:
    """It may be a repository: what keeps a home out of git would hide all of it."""
    rota.start()
    rota.ask("down")
    rota.ask("store", "copy", "home", "saved.db")
    assert [entry.name for entry in rota.cwd.iterdir()] == ["saved.db"]


def test_the_store_is_named_and_brought_up_to_date_without_a_scheduler(rota: Rota) -> None:
    assert rota.json("store", "show") == {"store": str(rota.home / "rota.db")}
    assert rota.json("store", "migrate") == {"schema": 1}
    assert rota.schedulers() == []


def test_an_address_that_is_none_is_refused(rota: Rota) -> None:
    said = rota.ask("config", "set", "store.url", "mysql://x", code=2)
    assert "postgresql://" in said.err
    rota.ask("store", "migrate")
    for stores in (("home", "mysql://x"), ("mysql://x", "home")):
        said = rota.ask("store", "copy", *stores, code=1)
        assert "cannot be at mysql://; name a file, or postgresql://" in said.err
    said = rota.ask("store", "copy", "missing.db", "other.db", code=2)
    assert "there is no database at" in said.err


def test_a_server_that_is_not_there_is_said_at_once(rota: Rota) -> None:
    rota.ask("config", "set", "store.url", "postgresql://127.0.0.1:9/none")
    said = rota.ask("up", code=1)
    assert "127.0.0.1" in said.err
