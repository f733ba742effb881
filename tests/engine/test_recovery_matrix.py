"""Whatever was RUNNING and whoever died: what becomes of it, and that recovering once more changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from harness import FakeExecutor, Raw, Scheduler
from rota.core.event import Event
from rota.core.run import CRASH_RECOVERY, UNKNOWN_EXIT
from rota.core.status import Status
from rota.engine.recovery import KEYS
from rota.executor.port import Account, Accounts, Exited, FailedToStart, Message
from rota.ids import JobId, RunId
from rota.store.session import Session

RUN = RunId(1)
AT = 1_767_225_600.0
ALIVE = Account(run=RUN, pid=7, start_time=1)
STARTING = Account(run=RUN, pid=None)
ENDED = Account(run=RUN, pid=None, has_ended=True)
LOST = Account(run=RUN, pid=None, has_ended=True, is_lost=True)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    was_confirmed: bool = True
    """RUNNING, not only DISPATCHED."""
    accounts: tuple[Account, ...] = ()
    messages: tuple[Message, ...] = ()
    """What the executor says at once behind its accounts."""
    status: Status
    exit_code: int | None = None
    reason: str | None = None
    report: dict[str, int]
    again: tuple[Account, ...] = ()
    """What it knows at the start after this one."""


CASES = {
    "adopted": Case(
        accounts=(ALIVE,), status=Status.RUNNING, report={"running_jobs_adopted": 1}, again=(ALIVE,)
    ),
    "adopted, its start was not heard of": Case(
        was_confirmed=False, accounts=(ALIVE,), status=Status.RUNNING, report={"running_jobs_adopted": 1},
        again=(ALIVE,),
    ),
    "adopted while it is being started": Case(
        was_confirmed=False, accounts=(STARTING,), status=Status.DISPATCHED, report={"running_jobs_adopted": 1},
        again=(STARTING,),
    ),
    "ended meanwhile": Case(
        accounts=(ENDED,), messages=(Exited(run=RUN, at=AT, code=42),), status=Status.FAILED, exit_code=42,
        reason="exit code 42", report={"finished_while_away": 1},
    ),
    "ended meanwhile, and the acknowledgement got lost": Case(
        accounts=(ENDED,), messages=(Exited(run=RUN, at=AT, code=0),), status=Status.COMPLETED, exit_code=0,
        report={"finished_while_away": 1}, again=(ENDED,),
    ),
    "ended meanwhile, its start was not heard of": Case(
        was_confirmed=False, accounts=(ENDED,), messages=(Exited(run=RUN, at=AT, code=0),), status=Status.COMPLETED,
        exit_code=0, report={"finished_while_away": 1},
    ),
    "could not be started meanwhile": Case(
        was_confirmed=False, accounts=(ENDED,), messages=(FailedToStart(run=RUN, error="no such program"),),
        status=Status.QUEUED, report={"finished_while_away": 1},
    ),
    "supervisor lost, child alive": Case(  # the new supervisor watches it, and cannot know how it will end
        accounts=(ALIVE,), messages=(Exited(run=RUN, at=AT),), status=Status.FAILED, exit_code=1,
        reason=UNKNOWN_EXIT, report={"running_jobs_adopted": 1},
    ),
    "supervisor lost, child gone": Case(
        accounts=(LOST,), messages=(Exited(run=RUN, at=AT, watched=False),), status=Status.FAILED, exit_code=1,
        reason=CRASH_RECOVERY, report={"running_jobs_recovered": 1},
    ),
    "supervisor lost in the middle of a start": Case(
        was_confirmed=False, accounts=(LOST,), messages=(Exited(run=RUN, at=AT, watched=False),),
        status=Status.FAILED, exit_code=1, reason=CRASH_RECOVERY, report={"running_jobs_recovered": 1},
    ),
    "run row without a process": Case(
        status=Status.FAILED, exit_code=1, reason=CRASH_RECOVERY, report={"running_jobs_recovered": 1}
    ),
}  # fmt: skip


def tables(raw: Raw) -> dict[str, list[tuple[Any, ...]]]:
    """All that is stored, but for the reports of recovery themselves."""
    rows = {name: raw(f"SELECT * FROM {name} ORDER BY 1, 2") for name in ("job", "spec", "run", "edge", "lock", "lane")}
    rows["event"] = raw("SELECT * FROM event WHERE kind <> 'scheduler.recovered' ORDER BY seq")
    return rows


def restart(scheduler: Scheduler, accounts: Sequence[Account], messages: Sequence[Message] = ()) -> None:
    scheduler.session.close()
    scheduler.executor = FakeExecutor()
    scheduler.executor.inbox = [Accounts(runs=list(accounts)), *messages]
    scheduler.boot()


@pytest.fixture
def job(scheduler: Scheduler) -> JobId:
    """The one that is under way: it holds a lock, and one waits for its end, one for its lock, one for its place."""
    job = scheduler.submit(locks=["repo"])
    scheduler.submit(after=["job-1:finished"], delay="1h")
    scheduler.submit(locks=["repo"], delay="1h")
    scheduler.submit(delay="1h")
    return job


@pytest.mark.parametrize("name", CASES)
def test_recovered_once_and_then_never_again(scheduler: Scheduler, raw: Raw, job: JobId, name: str) -> None:
    case = CASES[name]
    if case.was_confirmed:
        scheduler.start(job, pid=7)
    restart(scheduler, case.accounts, case.messages)
    found = scheduler.job(job)
    assert (found.status, found.exit_code, found.reason) == (case.status, case.exit_code, case.reason)
    assert scheduler.engine.recovery == case.report
    assert scheduler.started() == [], "nothing ran a second time"
    held = raw("SELECT state FROM lock WHERE job = 1")
    assert held == [("held" if found.status.shown is Status.RUNNING else "idle",)]
    assert scheduler.executor.acknowledged == [RUN] * len(case.messages)
    before = tables(raw)
    for _ in range(2):
        restart(scheduler, case.again, case.messages if case.again == (ENDED,) else ())
        assert tables(raw) == before
        assert scheduler.started() == []


def test_a_claim_that_was_never_started_is_started_once_at_its_place(
    scheduler: Scheduler, raw: Raw, job: JobId
) -> None:
    """The second time it is known: it goes on, and is not started again."""
    restart(scheduler, [])
    assert scheduler.engine.recovery == {"requeued": 1}
    assert scheduler.started() == [job]
    again = scheduler.run_of(job)
    assert again != RUN, "a claim that came to nothing is not a run"
    before = tables(raw)
    restart(scheduler, [Account(run=again, pid=None)])
    assert tables(raw) == before
    assert scheduler.started() == []


def test_nothing_is_adopted_after_a_reboot(wide: Scheduler, raw: Raw) -> None:
    """The journal is of another boot: whatever was open in it is over, and nobody saw it end."""
    running, claimed = wide.submit(), wide.submit()
    wide.start(running)
    lost = [Account(run=wide.run_of(each), pid=None, has_ended=True, is_lost=True) for each in (running, claimed)]
    restart(wide, lost, [Exited(run=account.run, at=AT, watched=False) for account in lost])
    for each in (running, claimed):
        found = wide.job(each)
        assert (found.status, found.exit_code, found.reason) == (Status.FAILED, 1, "Scheduler crash recovery")
    assert wide.engine.recovery == {"running_jobs_recovered": 2}
    before = tables(raw)
    restart(wide, [])
    assert wide.engine.recovery == {}
    assert tables(raw) == before


def test_a_process_that_the_store_does_not_know_is_stopped(scheduler: Scheduler, raw: Raw, job: JobId) -> None:
    """As after an older copy of the database was put back: nobody would ever book its end or free what it holds."""
    scheduler.start(job, pid=7)
    stranger = Account(run=RunId(99), pid=99, start_time=1)
    for _ in range(2):
        before = tables(raw)
        restart(scheduler, [ALIVE, stranger])
        assert scheduler.executor.stops == [99]
        assert scheduler.engine.recovery == {"running_jobs_adopted": 1, "errors": 1}
        assert tables(raw) == before
    scheduler.say(Exited(run=RunId(99), at=AT, signal=15, ended_by="stop"))
    assert scheduler.executor.acknowledged == [99]
    assert tables(raw) == before
    restart(scheduler, [ALIVE])
    assert scheduler.executor.stops == []


def test_an_end_that_the_store_does_not_know_is_acknowledged_and_that_is_all(scheduler: Scheduler, raw: Raw) -> None:
    before = tables(raw)
    restart(scheduler, [Account(run=RunId(99), pid=None, has_ended=True)], [Exited(run=RunId(99), at=AT, code=0)])
    assert (scheduler.executor.stops, scheduler.executor.acknowledged) == ([], [99])
    assert tables(raw) == before


def test_one_that_cannot_be_recovered_keeps_nobody_else_from_it(
    wide: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """LESSONS Dispatch: one bad record stopped the tick for all. It is counted, said, and tried at the next start."""
    bad, good, waiting = wide.submit(), wide.submit(), wide.submit(delay="1h")
    for each in (bad, good):
        wide.start(each)
    finish = Session.finish

    def failing(self: Session, run: Any, *args: Any, **fields: Any) -> bool:
        if run.job == bad:
            raise LookupError("unreadable")
        return finish(self, run, *args, **fields)

    monkeypatch.setattr(Session, "finish", failing)
    restart(wide, [])
    assert wide.engine.recovery == {"errors": 1, "running_jobs_recovered": 1}
    assert (wide.status(bad), wide.status(good)) == (Status.RUNNING, Status.FAILED)
    assert "could not be recovered" in caplog.text
    wide.clock.advance(hours=1)
    wide.turn()
    assert wide.started() == [waiting], "the rest goes on"
    monkeypatch.undo()
    restart(wide, [Account(run=wide.run_of(waiting), pid=5)])
    assert wide.engine.recovery == {"running_jobs_recovered": 1, "running_jobs_adopted": 1}
    assert wide.job(bad).reason == CRASH_RECOVERY


def test_the_report_is_kept_as_an_event(scheduler: Scheduler, job: JobId) -> None:
    scheduler.start(job, pid=7)
    restart(scheduler, [ALIVE])
    kept = [event for _seq, event in scheduler.reader.events_since(0, 100) if event.kind == "scheduler.recovered"]
    (event,) = kept
    expected = Event(kind="scheduler.recovered", at=event.at, cause="recovery", data={"running_jobs_adopted": 1})
    assert event == expected
    assert set(event.data) <= set(KEYS)


def test_the_report_has_the_names_of_the_design() -> None:
    assert KEYS == (
        "running_jobs_adopted", "running_jobs_recovered", "finished_while_away", "requeued", "slots_expired",
        "retries_created", "groups_recovered", "errors",
    )  # fmt: skip
