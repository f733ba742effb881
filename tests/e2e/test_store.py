"""PostgreSQL under a real scheduler, and a queue that moves there from SQLite."""

from __future__ import annotations

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


def test_the_store_is_named_and_brought_up_to_date_without_a_scheduler(rota: Rota) -> None:
    assert rota.json("store", "show") == {"store": str(rota.home / "rota.db")}
    assert rota.json("store", "migrate") == {"schema": 1}
    assert rota.schedulers() == []


def test_an_address_that_is_none_is_refused(rota: Rota) -> None:
    said = rota.ask("config", "set", "store.url", "mysql://x", code=2)
    assert "postgresql://" in said.err
    said = rota.ask("store", "copy", "missing.db", "other.db", code=2)
    assert "there is no database at" in said.err


def test_a_server_that_is_not_there_is_said_at_once(rota: Rota) -> None:
    rota.ask("config", "set", "store.url", "postgresql://127.0.0.1:9/none")
    said = rota.ask("up", code=1)
    assert "127.0.0.1" in said.err
