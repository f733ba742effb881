"""PostgreSQL under a real scheduler, and moving a queue from SQLite to PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.rig import ChildControl, Rota
from tests.e2e.test_crash import crash_before_a_claimed_job_starts, crash_three_times


@pytest.fixture
def postgres_home(rota: Rota, postgres_url: str) -> Rota:
    """A home with a PostgreSQL store."""
    rota.run("config", "set", "store.url", postgres_url)
    return rota


def test_crashes_on_postgres(postgres_home: Rota, children: ChildControl) -> None:
    crash_three_times(postgres_home, children)
    assert postgres_home.status()["store"].startswith("postgresql://")
    assert not (postgres_home.home / "rota.db").exists()


def test_claim_without_a_start_on_postgres(postgres_home: Rota, children: ChildControl) -> None:
    crash_before_a_claimed_job_starts(postgres_home, children)
    assert postgres_home.status()["store"].startswith("postgresql://")


def test_queue_moves_from_sqlite_to_postgres(rota: Rota, children: ChildControl, postgres_url: str) -> None:
    rota.start()
    done = rota.post_job(children.immediate("done"))
    rota.wait_for_end(done)
    rota.set_global_size(0)
    first, second = (rota.post_job(children.immediate(name)) for name in ("first", "second"))
    refused = rota.run("store", "copy", "home", postgres_url, code=4)
    assert "another scheduler" in refused.err
    rota.run("down")
    copied = rota.json("store", "copy", "home", postgres_url)["copied"]
    assert copied["job"] == 3
    rota.run("config", "set", "store.url", postgres_url)
    rota.run("config", "set", "pools.global", "1")
    rota.start()
    assert [rota.wait_for_end(job)["status"] for job in (done, first, second)] == ["COMPLETED"] * 3
    assert rota.submit("--", "true") == "job-4"
    assert children.read_available() == [
        f"{name} {act}" for name in ("done", "first", "second") for act in ("begins", "ends")
    ]
    rota.run("down")
    repeated = rota.run("store", "copy", str(rota.home / "rota.db"), postgres_url, code=4)
    assert "not empty" in repeated.err or "already" in repeated.err


@pytest.fixture
def other_home(make_rota: Callable[..., Rota], tmp_path: Path, postgres_url: str) -> Rota:
    """Another home with the same PostgreSQL store."""
    other_home = make_rota(tmp_path / "other")
    other_home.run("config", "set", "store.url", postgres_url)
    return other_home


def test_store_with_running_jobs_is_refused_to_another_home(
    postgres_home: Rota, other_home: Rota, children: ChildControl
) -> None:
    """It would treat the running jobs as lost and run them a second time."""
    postgres_home.start()
    job = postgres_home.post_job(children.gated("it"), retries=1)
    assert children.read_lines() == ["it begins"]
    postgres_home.wait_for_start(job)
    postgres_home.crash()
    output = other_home.run("up", code=1)
    assert f"is the store of the home {postgres_home.home} on " in output.err
    assert "`rota store adopt`" in output.err
    assert "does not answer" not in output.err
    postgres_home.start()
    children.release("it")
    assert postgres_home.wait_for_end(job)["status"] == "COMPLETED"
    postgres_home.run("down")
    assert other_home.start()
    assert other_home.show(job)["attempt"] == 1
    assert children.read_available() == ["it ends"]


def test_store_of_a_lost_home_can_be_adopted(postgres_home: Rota, other_home: Rota, children: ChildControl) -> None:
    postgres_home.start()
    lost = postgres_home.post_job(children.gated("it"), retries=1)
    assert children.read_lines() == ["it begins"]
    postgres_home.wait_for_start(lost)
    postgres_home.close()
    assert other_home.json("store", "adopt")["home"] == str(other_home.home)
    other_home.start()
    assert children.read_lines() == ["it begins"], "the retry"
    assert other_home.show(lost)["reason"] == "Scheduler crash recovery"
    output = postgres_home.run("up", code=1)
    assert "another scheduler" in output.err
    children.release("it")
    assert children.read_lines() == ["it ends"]


def test_file_store_cannot_be_adopted(rota: Rota) -> None:
    assert "is a local file, which belongs to its home" in rota.run("store", "adopt", code=2).err


def test_store_copy_creates_one_file_only(rota: Rota) -> None:
    """No .gitignore: the target directory may be a repository."""
    rota.start()
    rota.run("down")
    rota.run("store", "copy", "home", "saved.db")
    assert [entry.name for entry in rota.cwd.iterdir()] == ["saved.db"]


def test_store_show_and_migrate_need_no_scheduler(rota: Rota) -> None:
    assert rota.json("store", "show") == {"store": str(rota.home / "rota.db")}
    assert rota.json("store", "migrate") == {"schema": 1}
    assert rota.schedulers() == []


def test_invalid_store_url_is_refused(rota: Rota) -> None:
    output = rota.run("config", "set", "store.url", "mysql://x", code=2)
    assert "postgresql://" in output.err
    rota.run("store", "migrate")
    for stores in (("home", "mysql://x"), ("mysql://x", "home")):
        output = rota.run("store", "copy", *stores, code=1)
        assert "unsupported store URL mysql://; use a file path or postgresql://" in output.err
    output = rota.run("store", "copy", "missing.db", "other.db", code=2)
    assert "there is no database at" in output.err


def test_unreachable_database_server_is_reported(rota: Rota) -> None:
    rota.run("config", "set", "store.url", "postgresql://127.0.0.1:9/none")
    output = rota.run("up", code=1)
    assert "127.0.0.1" in output.err
