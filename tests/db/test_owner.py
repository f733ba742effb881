"""Store ownership: no other home gets a store that may have running jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rota.db.store import adopt_store, claim_ownership
from rota.errors import Conflict
from rota.home import Home
from rota.ids import RunId
from tests.harness import Scheduler


@pytest.fixture
def make_home(tmp_path: Path) -> Callable[[str], Home]:
    def make(name: str) -> Home:
        (tmp_path / name).mkdir()
        return Home(str(tmp_path / name))

    return make


def start_run(scheduler: Scheduler) -> None:
    scheduler.submit()
    assert scheduler.session.runs.list_open()


def offer_run(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="1h")
    scheduler.session.begin()
    scheduler.session.prefetch.offer({job: RunId(1)}, scheduler.clock.now())
    scheduler.session.commit()


@pytest.mark.parametrize("use", [start_run, offer_run])
def test_store_with_possible_runs_refuses_another_home(
    scheduler: Scheduler, make_home: Callable[[str], Home], use: Callable[[Scheduler], None]
) -> None:
    first, second, session = make_home("first"), make_home("second"), scheduler.session
    use(scheduler)
    session.begin()
    claim_ownership(session, first, "the store")  # the store has no owner yet
    claim_ownership(session, first, "the store")
    with pytest.raises(Conflict, match=f"the store is the store of the home {first.directory} on .*`rota store adopt`"):
        claim_ownership(session, second, "the store")
    adopt_store(session, second)
    claim_ownership(session, second, "the store")
    with pytest.raises(Conflict, match=f"the home {second.directory} on "):
        claim_ownership(session, first, "the store")
    session.rollback()


def test_idle_store_can_change_its_home(scheduler: Scheduler, make_home: Callable[[str], Home]) -> None:
    scheduler.session.begin()
    for name in ("first", "second"):
        claim_ownership(scheduler.session, make_home(name), "the store")
    scheduler.session.rollback()


def test_moved_home_keeps_its_identity(scheduler: Scheduler, make_home: Callable[[str], Home]) -> None:
    start_run(scheduler)
    home = make_home("first")
    scheduler.session.begin()
    claim_ownership(scheduler.session, home, "the store")
    moved = Home(str(home.root.rename(home.root.with_name("moved"))))
    claim_ownership(scheduler.session, moved, "the store")
    assert str(scheduler.session.meta.get("home_location")).startswith(f"{moved.directory} on ")
    assert moved.identity.stat().st_mode & 0o777 == 0o600
    scheduler.session.rollback()
