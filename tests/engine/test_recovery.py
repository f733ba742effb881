"""Recovery: what the store says runs is compared with what the executor can account for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import FakeExecutor, Raw, Scheduler
from rota.core.status import Status
from rota.engine import recovery
from rota.engine.work import Work
from rota.errors import StoreError
from rota.executor.port import Account, Accounts, Exited, FailedToStart, Lost, Message, Started
from rota.ids import JobId, RunId
from rota.store.claim import OpenRun


def test_what_lives_is_adopted_and_goes_on(scheduler: Scheduler) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    scheduler.start(job, pid=7)
    run = scheduler.run_of(job)
    scheduler.crash([Account(run=run, pid=7)])
    assert scheduler.engine.recovery == {"running_jobs_adopted": 1}
    assert (scheduler.status(job), scheduler.job(job).pid) == (Status.RUNNING, 7)
    assert scheduler.started() == []  # it holds its place, and is not started again
    scheduler.say(Exited(run=run, at=scheduler.clock.moment.timestamp(), code=5))
    assert (scheduler.status(job), scheduler.job(job).exit_code) == (Status.FAILED, 5)
    assert scheduler.started() == [following]


def test_what_ended_meanwhile_is_booked_with_its_real_exit_code(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    scheduler.start(job)
    run = scheduler.run_of(job)
    at = scheduler.clock.moment
    scheduler.clock.advance(hours=1)
    scheduler.session.close()
    scheduler.executor = FakeExecutor()
    scheduler.executor.inbox = [
        Accounts(runs=[Account(run=run, pid=None, has_ended=True)]),
        Exited(run=run, at=at.timestamp(), code=42, tail="bye"),
    ]
    scheduler.boot()
    found = scheduler.job(job)
    assert (found.status, found.exit_code, found.finished_at) == (Status.FAILED, 42, at)
    assert scheduler.engine.recovery == {"finished_while_away": 1}
    assert scheduler.executor.acknowledged == [run]


def test_a_claim_that_was_never_started_returns_to_its_old_place(scheduler: Scheduler, raw: Raw) -> None:
    first = scheduler.submit()
    second = scheduler.submit()
    urgent = scheduler.submit(priority=-1)
    before = scheduler.job(first)
    scheduler.crash()
    assert scheduler.engine.recovery == {"requeued": 1}
    assert scheduler.started() == [first]  # before those that came later
    after = scheduler.job(first)
    assert (after.position, after.priority, after.created_at) == (before.position, before.priority, before.created_at)
    assert after.dispatch_failures == 0
    assert after.run is not None
    assert before.run is not None
    assert after.run.id > before.run.id
    assert raw("SELECT count(*) FROM run") == [(1,)]
    assert scheduler.drain() == [first, second, urgent]


def test_what_ran_and_nobody_can_account_for_is_failed(scheduler: Scheduler) -> None:
    job, following = scheduler.submit(), scheduler.submit()
    scheduler.start(job)
    scheduler.crash()
    found = scheduler.job(job)
    assert (found.status, found.exit_code, found.reason) == (Status.FAILED, 1, "Scheduler crash recovery")
    assert found.run is not None
    assert found.run.error == "Scheduler crash recovery"
    assert scheduler.engine.recovery == {"running_jobs_recovered": 1}
    assert scheduler.started() == [following]


def test_what_was_recovered_fails_its_successors(wide: Scheduler) -> None:
    job = wide.submit()
    following = wide.submit(after=[job])
    wide.start(job)
    wide.crash()
    assert wide.status(following) is Status.BLOCKED_BY_DEPENDENCY


def test_recovery_is_idempotent(wide: Scheduler, raw: Raw) -> None:
    running, claimed, waiting = wide.submit(), wide.submit(), wide.submit(delay="1h")
    wide.start(running)
    wide.crash()
    for _ in range(2):
        run = wide.job(claimed).run
        assert run is not None
        events = raw("SELECT count(*) FROM event")
        wide.crash([Account(run=run.id, pid=1)])
        assert raw("SELECT count(*) FROM event WHERE kind <> 'scheduler.recovered'")[0] <= events[0]
        assert wide.status(running) is Status.FAILED
        assert wide.started() == []
    assert wide.status(waiting) is Status.QUEUED


def test_what_is_over_is_not_recovered_again(wide: Scheduler) -> None:
    """LESSONS: every restart recovered all of history."""
    for code in (0, 1):
        wide.end(wide.submit(), code)
    wide.cancel(wide.submit(delay="1h"))
    before = len(wide.events)
    wide.crash()
    assert wide.engine.recovery == {}
    assert len(wide.events) == before


def test_nothing_starts_before_the_executor_has_accounted_for_everything(scheduler: Scheduler) -> None:
    scheduler.submit()
    second = scheduler.submit()
    scheduler.session.close()
    scheduler.executor = FakeExecutor()
    scheduler.executor.inbox = []
    scheduler.boot()
    scheduler.set_pools(**{"global": 5})
    assert scheduler.started() == []
    scheduler.say(Accounts(runs=[]))
    assert scheduler.started() == [1, second]


def test_an_executor_that_is_lost_and_comes_back(wide: Scheduler) -> None:
    alive, gone, claimed = (wide.submit() for _ in range(3))
    wide.start(alive)
    wide.start(gone)
    run = wide.run_of(alive)
    wide.say(Lost(reason="it was killed"))
    assert {wide.status(job) for job in (alive, gone)} == {Status.RUNNING}
    waiting = wide.submit()
    assert waiting not in wide.started()
    wide.say(Accounts(runs=[Account(run=run, pid=1)]))
    assert wide.status(alive) is Status.RUNNING
    assert wide.status(gone) is Status.FAILED
    assert wide.started()[-2:] == [claimed, waiting]
    wide.end(alive)
    assert wide.status(alive) is Status.COMPLETED


def test_a_start_whose_confirmation_was_missed_is_known_by_its_account(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.run_of(job)
    scheduler.crash([Account(run=run, pid=7)])
    assert (scheduler.status(job), scheduler.job(job).pid) == (Status.RUNNING, 7)
    told = len(scheduler.events)
    scheduler.say(Started(run=run, pid=7, start_time=1))
    assert len(scheduler.events) == told


def test_a_job_once_adopted_is_never_taken_for_one_that_was_not_started(scheduler: Scheduler) -> None:
    """The supervisor does not repeat `Started`; its account has the pid, so the child exists. If both are lost
    later, the job must not be run a second time."""
    job = scheduler.submit()
    run = scheduler.run_of(job)
    scheduler.crash([Account(run=run, pid=7)])
    scheduler.crash()
    assert scheduler.started() == []
    assert (scheduler.status(job), scheduler.job(job).reason) == (Status.FAILED, "Scheduler crash recovery")


def test_an_adopted_claim_that_never_starts_is_overdue_too(scheduler: Scheduler) -> None:
    job = scheduler.submit()
    run = scheduler.run_of(job)
    scheduler.crash([Account(run=run, pid=None)])
    scheduler.clock.advance(minutes=6)
    scheduler.turn()
    assert scheduler.executor.stops == [run]


def test_recovery_leaves_an_event_that_says_what_it_did(wide: Scheduler) -> None:
    running, _claimed = wide.submit(), wide.submit()
    wide.start(running)
    wide.crash()
    (event,) = [event for event in wide.events if event.kind == "scheduler.recovered"]
    assert event.data == {"running_jobs_recovered": 1, "requeued": 1}
    assert {event.cause for event in wide.events if event.kind == "job.failed"} == {"recovery"}


def test_a_process_without_a_run_row_is_stopped_and_its_number_is_spent(scheduler: Scheduler) -> None:
    """As after a restore: the supervisor keeps what the store has never heard of."""
    known = scheduler.submit()
    stray, ended = RunId(70), RunId(71)
    accounts = [
        Account(run=scheduler.run_of(known), pid=7),
        Account(run=stray, pid=8),
        Account(run=ended, pid=None, has_ended=True),
    ]
    for _ in range(2):
        scheduler.crash(accounts)
        assert scheduler.executor.stops == [stray]
        assert scheduler.engine.recovery == {"running_jobs_adopted": 1, "errors": 1}
    for run in (stray, ended):
        scheduler.say(Exited(run=run, at=0, code=0))
    assert scheduler.executor.acknowledged == [stray, ended]
    assert [job.id for job in scheduler.reader.jobs([JobId(1), JobId(2)])] == [known], "nothing was made up for it"
    scheduler.say(Exited(run=accounts[0].run, at=0, code=0))
    scheduler.submit()
    assert scheduler.executor.starts[-1].run == 72, "what is told of the stray can never be taken for a job's"


@pytest.mark.parametrize("start", [None, Started(run=RunId(9), pid=5, start_time=1)])
@pytest.mark.parametrize("end", [Exited(run=RunId(9), at=0, code=0), FailedToStart(run=RunId(9), error="no")])
def test_a_stray_and_its_own_job_never_run_at_once(wide: Scheduler, start: Message | None, end: Message) -> None:
    """As after a restore to a moment at which the job still waited: its run of then lives on."""
    job = wide.submit(delay="1s")
    wide.clock.advance(seconds=1)
    wide.crash([Account(run=RunId(9), pid=None if start is None else 5)])
    assert (wide.started(), wide.executor.stops) == ([], [9])
    held = "nothing starts before what the store does not know has ended: run-9"
    assert (wide.engine.held_by, wide.engine.troubles) == (held, [held])
    other = wide.submit()
    if start is not None:
        wide.say(start)
    assert wide.started() == []
    assert (wide.engine.has_more, wide.engine.next_deadline is not None) == (False, start is None), "it does not spin"
    wide.say(end)
    assert wide.started() == [job, other]
    assert wide.executor.acknowledged == [9]
    assert (wide.engine.held_by, wide.engine.troubles) == (None, [])


def test_a_stray_is_not_waited_for_longer_than_its_executor_knows_it(wide: Scheduler) -> None:
    wide.crash([Account(run=RunId(9), pid=5), Account(run=RunId(8), pid=4)])
    job = wide.submit()
    wide.say(Lost(reason="it was killed"))
    assert wide.engine.troubles == []
    wide.say(Accounts(runs=[Account(run=RunId(8), pid=4), Account(run=RunId(9), pid=None, has_ended=True)]))
    assert "run-8" in str(wide.engine.held_by)
    assert "run-9" not in str(wide.engine.held_by)
    assert wide.started() == []
    wide.say(Lost(reason="it was killed"), Accounts(runs=[]))
    assert wide.started() == [job]


def test_the_report_is_of_the_first_connection_also_if_that_found_nothing(wide: Scheduler) -> None:
    wide.start(wide.submit())
    assert wide.engine.recovery == {}
    wide.say(Lost(reason="it was killed"), Accounts(runs=[]))
    assert wide.engine.recovery == {}, "what was lost since is no part of it"
    wide.session.close()
    wide.executor = FakeExecutor()
    wide.executor.inbox = []
    wide.boot()
    assert wide.engine.recovery is None, "nobody knows yet"


UNUSABLE = '{"max_retries":3,"base":"P999999999D","cap":"P999999999D"}'
"""A retry policy that can be read, and leads beyond the end of time."""


def test_a_lost_run_whose_record_cannot_be_used_is_failed_for_good(wide: Scheduler, raw: Raw) -> None:
    bad = wide.submit(retries=3, locks=["k"])
    wide.start(bad)
    behind, dependant = wide.submit(locks=["k"]), wide.submit(after=[bad])
    raw(f"UPDATE spec SET retry = '{UNUSABLE}' WHERE id = (SELECT spec FROM job WHERE id = {bad})")
    wide.crash()
    found = wide.job(bad)
    assert (found.status, found.exit_code, found.permanently_failed) == (Status.FAILED, 1, True)
    assert str(found.reason).startswith("scheduler data error: ")
    assert found.run is not None
    assert found.run.error == found.reason
    assert wide.engine.recovery == {"errors": 1}
    assert wide.status(dependant) is Status.BLOCKED_BY_DEPENDENCY
    assert wide.started() == [behind], "its locks are free"
    wide.crash([Account(run=wide.run_of(behind), pid=1)])
    assert wide.engine.recovery == {"running_jobs_adopted": 1}


def test_a_claim_that_cannot_be_taken_back_is_given_up(wide: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = wide.submit()
    monkeypatch.setattr(recovery, "take_back", lambda *_, **__: 1 / 0)
    wide.crash()
    found = wide.job(bad)
    assert (found.status, found.reason, found.run) == (Status.FAILED, "scheduler data error: division by zero", None)
    assert wide.engine.recovery == {"errors": 1}


def test_a_run_that_cannot_even_be_failed_is_left_and_keeps_no_other_back(
    wide: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, waiting = wide.submit(), wide.submit(delay="1s")
    wide.start(bad)
    wide.clock.advance(seconds=1)
    with monkeypatch.context() as broken:
        broken.setattr(recovery, "finish", lambda *_, **__: 1 / 0)
        broken.setattr(recovery, "fail_for_good", lambda *_, **__: 1 / 0)
        wide.crash()
    assert (wide.status(bad), wide.started()) == (Status.RUNNING, [waiting])
    assert wide.engine.recovery == {"errors": 1}
    wide.crash([Account(run=wide.run_of(waiting), pid=1)])
    assert wide.status(bad) is Status.FAILED, "the next connection tries again"


@pytest.fixture
def unsettled(wide: Scheduler, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Connect with accounts that cannot be settled, and let these messages follow."""

    def connect(accounts: list[Account], *messages: Message) -> None:
        with monkeypatch.context() as broken:
            broken.setattr("rota.engine.hearing.reconcile", lambda *_: 1 / 0)
            wide.crash(accounts)
            wide.say(*messages)

    return connect


SAID = "nothing can be started: what the executor runs cannot be settled: ZeroDivisionError('division by zero')"


def test_accounts_that_cannot_be_settled_are_said_and_tried_again(
    wide: Scheduler, unsettled: Callable[..., None]
) -> None:
    running, waiting = wide.submit(), wide.submit(delay="1s")
    wide.start(running)
    run = wide.run_of(running)
    wide.clock.advance(seconds=1)
    unsettled([Account(run=run, pid=1)])
    assert (wide.engine.held_by, wide.engine.troubles) == (SAID, [SAID])
    assert (wide.started(), wide.engine.recovery) == ([], None)
    assert wide.engine.next_deadline == wide.clock.monotonic() + 10
    wide.turn()
    assert wide.started() == [], "not at every turn"
    wide.clock.advance(seconds=10)
    wide.turn()
    assert (wide.engine.held_by, wide.engine.troubles) == (None, [])
    assert (wide.started(), wide.status(running)) == ([waiting], Status.RUNNING)
    assert wide.engine.recovery == {"running_jobs_adopted": 1}


def test_what_is_heard_after_unsettled_accounts_counts(wide: Scheduler, unsettled: Callable[..., None]) -> None:
    starting, ended = wide.submit(), wide.submit()
    first, second = wide.run_of(starting), wide.run_of(ended)
    accounts = [Account(run=first, pid=None), Account(run=second, pid=2), Account(run=RunId(9), pid=3)]
    ends = [Exited(run=run, at=0, code=0) for run in (second, RunId(9))]
    unsettled(accounts, Started(run=first, pid=7, start_time=1), *ends)
    assert wide.status(ended) is Status.COMPLETED, "everything but starting goes on"
    wide.clock.advance(seconds=10)
    wide.turn()
    assert wide.engine.troubles == [], "the stray has ended already"
    wide.clock.advance(minutes=6)
    wide.turn()
    assert wide.executor.stops == [], "the start was confirmed"
    assert (wide.status(starting), wide.job(starting).pid) == (Status.RUNNING, 7)


def test_unsettled_accounts_end_with_their_connection(
    wide: Scheduler, unsettled: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = wide.submit(delay="1s")
    unsettled([Account(run=RunId(9), pid=3)])
    wide.say(Lost(reason="it was killed"))
    assert wide.engine.troubles == []
    wide.clock.advance(minutes=1)
    wide.turn()
    assert (wide.executor.stops, wide.started()) == ([], []), "what was true then may not be true now"
    wide.say(Accounts(runs=[]))
    assert wide.started() == [job]


def test_unsettled_accounts_outlast_trouble_with_the_store(
    wide: Scheduler, unsettled: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = wide.submit(delay="1s")
    unsettled([])
    wide.clock.advance(seconds=10)

    def fail(*_: object) -> None:
        raise StoreError("it is away")

    with monkeypatch.context() as broken:
        broken.setattr("rota.engine.hearing.reconcile", fail)
        wide.engine.turn()
        assert "it is away" in wide.engine.troubles
    wide.turn()
    assert (wide.started(), wide.engine.troubles) == ([job], [])


def test_one_run_that_cannot_be_settled_keeps_no_other_back(
    wide: Scheduler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, lost, waiting = wide.submit(), wide.submit(), wide.submit(delay="1s")
    for job in (bad, lost):
        wide.start(job)
    broken = wide.run_of(bad)
    adopt = recovery.adopt

    def fail(work: Work, run: OpenRun, account: Account) -> None:
        adopt(work, run, account)
        raise ValueError("its record is damaged")

    monkeypatch.setattr(recovery, "adopt", fail)
    wide.crash([Account(run=broken, pid=1)])
    assert wide.engine.recovery == {"errors": 1, "running_jobs_recovered": 1}
    assert wide.status(lost) is Status.FAILED
    assert "run-1 could not be recovered" in caplog.text
    wide.clock.advance(seconds=2)
    wide.turn()
    assert wide.started() == [waiting]
    wide.say(Exited(run=broken, at=0, code=0))
    assert wide.status(bad) is Status.COMPLETED


def test_many_crashes_lose_nothing_and_repeat_nothing(wide: Scheduler) -> None:
    root = wide.submit()
    jobs = [wide.submit(after=[root], locks=["k"]) for _ in range(5)]
    finished = []
    for _ in range(6):
        open_runs = {job.run.id: job.id for job in wide.reader.jobs([root, *jobs]) if job.run and not job.run.status}
        for run, job in list(open_runs.items())[:1]:
            wide.crash([Account(run=run, pid=1) for run in open_runs])
            wide.say(Exited(run=run, at=0, code=0))
            finished.append(job)
    assert finished == [root, *jobs]
    assert {wide.status(job) for job in finished} == {Status.COMPLETED}
