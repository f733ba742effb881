"""Whose a store is: no other home gets it while something of it may run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Scheduler
from rota.errors import Conflict
from rota.home import Home
from rota.ids import RunId
from rota.store.owner import adopt, claim


@pytest.fixture
def make_home(tmp_path: Path) -> Callable[[str], Home]:
    def make(name: str) -> Home:
        (tmp_path / name).mkdir()
        return Home(str(tmp_path / name))

    return make


def a_run(scheduler: Scheduler) -> None:
    scheduler.submit()
    assert scheduler.session.open_runs()


def given_ahead(scheduler: Scheduler) -> None:
    job = scheduler.submit(delay="1h")
    scheduler.session.begin()
    scheduler.session.give_ahead({job: RunId(1)}, scheduler.clock.now())
    scheduler.session.commit()


@pytest.mark.parametrize("use", [a_run, given_ahead])
def test_what_may_run_keeps_another_home_out(
    scheduler: Scheduler, make_home: Callable[[str], Home], use: Callable[[Scheduler], None]
) -> None:
    first, second, session = make_home("first"), make_home("second"), scheduler.session
    use(scheduler)
    session.begin()
    claim(session, first, "it")  # it was nobody's
    claim(session, first, "it")
    with pytest.raises(Conflict, match=f"it is the store of the home {first.directory} on .*`rota store adopt`"):
        claim(session, second, "it")
    adopt(session, second)
    claim(session, second, "it")
    with pytest.raises(Conflict, match=f"the home {second.directory} on "):
        claim(session, first, "it")
    session.rollback()


def test_where_nothing_runs_it_changes_hands(scheduler: Scheduler, make_home: Callable[[str], Home]) -> None:
    scheduler.session.begin()
    for name in ("first", "second"):
        claim(scheduler.session, make_home(name), "it")
    scheduler.session.rollback()


def test_a_home_that_is_moved_is_the_same(scheduler: Scheduler, make_home: Callable[[str], Home]) -> None:
    a_run(scheduler)
    home = make_home("first")
    scheduler.session.begin()
    claim(scheduler.session, home, "it")
    moved = Home(str(home.root.rename(home.root.with_name("moved"))))
    claim(scheduler.session, moved, "it")
    assert str(scheduler.session.meta("home_place")).startswith(f"{moved.directory} on ")
    assert moved.identity.stat().st_mode & 0o777 == 0o600
    scheduler.session.rollback()
