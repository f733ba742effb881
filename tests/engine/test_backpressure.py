"""Back-pressure: warned from the soft limit on, put off from the hard one on, and nobody else is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from harness import Raw, Scheduler
from rota.command.backpressure import Deferred, Delayed
from rota.command.retry import retry
from rota.command.submission import Submission, Surroundings
from rota.command.submit import AlreadyActive, Answer, Submitted, delays_of, submit
from rota.core.backpressure import Depth, Figures, QueueLimit
from rota.core.status import Status
from rota.engine.work import Request, Work
from rota.errors import InvalidInput

AROUND = Surroundings(cwd="/", variables={"PATH": "/usr/bin:/bin"})
TABLES = ("job", "spec", "edge", "lock", "surroundings", "lane", "event", "idempotency", "sequence")
AUTO = QueueLimit(soft="auto", hard="auto")


def contents(raw: Raw) -> list[list[tuple[Any, ...]]]:
    return [raw(f"SELECT * FROM {table}") for table in TABLES]


def both(work: Work, told: list[Answer]) -> list[tuple[Answer, Delayed | None]]:
    return list(zip(told, delays_of(work, told), strict=True))


def ask(scheduler: Scheduler, *bodies: dict[str, Any]) -> tuple[Answer, Delayed | None]:
    """The answer of one submit, and what it is warned of at the end of its turn."""
    wanted = [msgspec.convert({"command": ["true"], **body}, Submission) for body in bodies or ({},)]
    told: tuple[Answer, Delayed | None] = scheduler.do(partial(submit, wanted=wanted, around=AROUND, actor="me"), both)
    return told


def fill(scheduler: Scheduler, count: int, **body: Any) -> None:
    for _ in range(count):
        assert isinstance(ask(scheduler, body)[0], Submitted)


def test_nothing_is_warned_of_or_put_off_unless_it_was_asked_for(scheduler: Scheduler) -> None:
    for _ in range(100):
        told, delayed = ask(scheduler)
        assert isinstance(told, Submitted)
        assert delayed is None


def test_fleets_figures_at_one_place(scheduler: Scheduler) -> None:
    """FLEET: soft at four times the capacity, at least 8; hard at twice that. One runs, so the ninth makes eight."""
    scheduler.set_queue(AUTO)
    answers = [ask(scheduler) for _ in range(19)]
    assert [isinstance(told, Submitted) for told, _ in answers] == [True] * 17 + [False] * 2
    assert [delayed is not None for _, delayed in answers] == [False] * 8 + [True] * 9 + [False] * 2
    assert answers[8][1] == Delayed(
        depth=Depth(total=8), figures=Figures(soft=8, hard=16), text="Queue delayed; respecting caps: 8 ready"
    )
    put_off = answers[17][0]
    assert isinstance(put_off, Deferred)
    assert (put_off.depth, put_off.figures) == (Depth(total=16), Figures(soft=8, hard=16))
    assert put_off.text.startswith("the queue is full, 16 of 16 ready; nothing was stored: try again later")


def test_what_is_put_off_leaves_no_trace_and_can_come_again(scheduler: Scheduler, raw: Raw) -> None:
    scheduler.set_queue(QueueLimit(hard=1))
    fill(scheduler, 2)
    before = contents(raw)
    new = {"env": {"NEW": "1"}, "inherit_env": False, "type": "new", "unique": "k", "flow": "f"}
    assert isinstance(ask(scheduler, new)[0], Deferred)
    assert contents(raw) == before
    scheduler.end(scheduler.started()[0])
    told = ask(scheduler, new)[0]
    assert isinstance(told, Submitted)
    assert told.jobs == [3], "no number was used up"


def test_already_active_is_looked_at_first(scheduler: Scheduler) -> None:
    scheduler.set_queue(QueueLimit(hard=1))
    fill(scheduler, 1)
    told = ask(scheduler, {"unique": "k"})[0]
    assert isinstance(told, Submitted)
    assert ask(scheduler, {"unique": "k"})[0] == AlreadyActive(active={"k": told.jobs[0]})


def test_what_is_wrong_by_itself_is_not_told_to_come_again(scheduler: Scheduler) -> None:
    scheduler.set_queue(QueueLimit(hard=1))
    fill(scheduler, 2)
    with pytest.raises(InvalidInput, match="name the `flow` too"):
        ask(scheduler, {"phase": "p"})


def test_a_batch_is_taken_or_put_off_whole(scheduler: Scheduler, raw: Raw) -> None:
    scheduler.set_queue(QueueLimit(soft=5, hard=10))
    told, delayed = ask(scheduler, *[{}] * 30)
    assert isinstance(told, Submitted)
    assert len(told.jobs) == 30
    assert delayed is not None
    assert delayed.depth.total == 29
    before = contents(raw)
    assert isinstance(ask(scheduler, *[{}] * 3)[0], Deferred)
    assert contents(raw) == before


def test_a_flow_has_limits_of_its_own(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 4})
    scheduler.set_queue(plan=QueueLimit(soft=2, hard=3), build=AUTO)
    fill(scheduler, 3, flow="plan")  # one of them runs
    told, delayed = ask(scheduler, {"flow": "plan"})
    assert isinstance(told, Submitted)
    assert delayed is not None
    assert delayed.text == "Queue delayed; respecting caps: 3 ready (by flow: plan 3)"
    put_off, _ = ask(scheduler, {"flow": "plan"})
    assert isinstance(put_off, Deferred)
    assert put_off.text.startswith("the queue of flow plan is full, 3 of 3 ready")
    assert put_off.figures == Figures(), "of all jobs there is no limit"
    for flow in ("build", "other", None):
        told, delayed = ask(scheduler, {"flow": flow})
        assert isinstance(told, Submitted), flow
        assert delayed is None, flow
    assert isinstance(ask(scheduler, {"flow": "build"}, {"flow": "plan"})[0], Deferred), "a batch, for one of its flows"


def test_other_flows_do_not_fill_the_queue_of_one(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 0})
    scheduler.set_queue(plan=QueueLimit(soft=2, hard=3))
    fill(scheduler, 10, flow="other")
    answers = [ask(scheduler, {"flow": "plan"}) for _ in range(4)]
    assert [isinstance(told, Submitted) for told, _ in answers] == [True, True, True, False]
    assert [delayed is not None for _, delayed in answers] == [False, True, True, False]


def test_auto_of_a_flow_follows_the_pool_of_that_flow(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": -1, "flow__plan": 3, "flow__free": -1})
    scheduler.set_queue(AUTO, plan=AUTO, other=AUTO, free=AUTO)
    limits, queue = scheduler.settings.limits, scheduler.settings.queue
    assert queue.concerning(["plan", "other", "free"], limits) == {
        "plan": Figures(soft=12, hard=24),
        "other": Figures(soft=8, hard=16),
    }


def test_a_raised_limit_counts_at_once(scheduler: Scheduler) -> None:
    """FLEET: users may raise caps at run time; the limits are worked out anew."""
    scheduler.set_queue(AUTO)
    fill(scheduler, 17)
    assert isinstance(ask(scheduler)[0], Deferred)
    scheduler.set_pools(**{"global": 5})
    told, delayed = ask(scheduler)
    assert isinstance(told, Submitted), "five run, twelve stand ready, and forty may"
    assert delayed is None
    scheduler.set_pools(**{"global": -1})
    assert isinstance(ask(scheduler)[0], Submitted)


def test_who_waits_is_not_counted_until_he_is_ready(scheduler: Scheduler) -> None:
    scheduler.set_queue(QueueLimit(hard=3))
    first = scheduler.submit(locks=["key"])
    fill(scheduler, 20, after=[{"job": f"job-{first}"}])
    fill(scheduler, 20, delay="1h")
    fill(scheduler, 20, locks=[{"key": "key"}])
    assert scheduler.reader.depth() == Depth(total=0)
    scheduler.end(first)
    assert scheduler.reader.depth().total == 20
    assert isinstance(ask(scheduler)[0], Deferred)


def test_retries_and_rewinds_are_not_refused(scheduler: Scheduler) -> None:
    chain = scheduler.submit(retries=1, unique="k")
    scheduler.end(chain, 1)
    scheduler.set_queue(QueueLimit(soft=1, hard=1))
    blocker = scheduler.submit()
    failed = scheduler.submit()
    assert isinstance(ask(scheduler)[0], Deferred)
    scheduler.clock.advance(minutes=5)
    scheduler.turn()
    assert scheduler.reader.depth().total == 2, "the retry is due, and ready"
    scheduler.end(blocker)
    running = scheduler.started()[-1]
    scheduler.end(running, 1)
    scheduler.do(lambda work: retry(work, f"job-{running}", actor="me"))
    scheduler.rewind(blocker)
    assert scheduler.status(blocker) is Status.QUEUED
    assert failed in scheduler.drain()


def test_within_one_turn_each_sees_those_before_it(scheduler: Scheduler, raw: Raw) -> None:
    scheduler.set_pools(**{"global": 0})
    scheduler.set_queue(QueueLimit(soft=3, hard=5))
    answers: list[Any] = []

    def request() -> Request[Answer]:
        act = partial(submit, wanted=[Submission(command=["true"])], around=AROUND, actor="me")
        return Request(act, answers.append, both)  # type: ignore[arg-type]

    scheduler.engine.turn([request() for _ in range(20)])
    assert [type(told).__name__ for told, _ in answers] == ["Submitted"] * 5 + ["Deferred"] * 15
    assert [delayed is not None for _, delayed in answers] == [True] * 5 + [False] * 15, "all see the end of the turn"
    assert raw("SELECT count(*) FROM job") == [(5,)]


def test_a_job_that_starts_at_once_is_warned_of_nothing(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 2})
    scheduler.set_queue(QueueLimit(soft=1, hard=1))
    assert [ask(scheduler)[1] is None for _ in range(3)] == [True, True, False]


def test_without_limits_a_submit_counts_nothing(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    database, asked = scheduler.session._db, list[str]()
    rows = database.rows

    def seen(name: str, /, **values: Any) -> Any:
        asked.append(name)
        return rows(name, **values)

    monkeypatch.setattr(database, "rows", seen)
    ask(scheduler, {"flow": "f"})
    scheduler.set_queue(other=QueueLimit(soft=1, hard=1))
    ask(scheduler, {"flow": "f"})
    assert "depths" not in asked
    scheduler.set_queue(QueueLimit(hard=100))
    ask(scheduler)
    assert asked.count("depths") == 1
    scheduler.set_queue(QueueLimit(soft=100))
    ask(scheduler)
    assert asked.count("depths") == 2


def test_what_starts_in_its_own_turn_does_not_put_off_those_that_come_with_it(
    make_scheduler: Callable[..., Scheduler],
) -> None:
    """Many submits may share a turn; how many do is chance, and must not decide."""
    scheduler = make_scheduler(**{"global": 4})
    scheduler.set_queue(QueueLimit(hard=2))
    answers: list[Answer] = []
    act = partial(submit, wanted=[Submission(command=["true"])], around=AROUND, actor="me")
    scheduler.engine.turn([Request(act, answers.append) for _ in range(8)])
    assert [type(answer) for answer in answers] == [Submitted] * 6 + [Deferred] * 2
    assert len(scheduler.started()) == 4


@pytest.mark.parametrize(
    ("fields", "taken"), [({"heartbeat": "manual"}, 2), ({"spawn_delay": timedelta(minutes=1)}, 2), ({}, 3)]
)
def test_what_cannot_start_in_its_own_turn_counts(
    make_scheduler: Callable[..., Scheduler], fields: dict[str, Any], taken: int
) -> None:
    scheduler = make_scheduler(**{"global": 9})
    scheduler.configure(**fields)
    scheduler.set_queue(QueueLimit(hard=2))
    answers: list[Answer] = []
    act = partial(submit, wanted=[Submission(command=["true"], flow="f")], around=AROUND, actor="me")
    scheduler.engine.turn([Request(act, answers.append) for _ in range(6)])
    assert [type(answer) for answer in answers] == [Submitted] * taken + [Deferred] * (6 - taken)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": "abc"},
        {"idle_timeout": "0s"},
        {"delay": "zz"},
        {"locks": [{"key": "x" * 300}]},
        {"retry": "nosuch"},
        {"retries": -1},
        {"cwd": "here"},
        {"env": {"A=B": "c"}},
    ],
)
def test_what_is_wrong_by_itself_is_not_told_to_try_again(scheduler: Scheduler, wrong: dict[str, Any]) -> None:
    scheduler.set_queue(QueueLimit(hard=1))
    fill(scheduler, 1, unique="a")
    fill(scheduler, 1)
    for body in (wrong, {**wrong, "unique": "a"}):
        with pytest.raises(InvalidInput):
            ask(scheduler, body)
