"""Starts that fail: again in 1 s, again in 2 s, then it is enough. Runs that fail: the breaker over their kind."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.making import NOW
from rota.core.breaker import (
    CIRCUIT_BROKEN,
    CLOSED,
    HALF_OPEN,
    BreakerPolicy,
    Breakers,
    Closed,
    HalfOpen,
    Open,
    Probed,
    State,
    Told,
    after_end,
    after_while,
    again_after,
    keys_of,
    told_by,
)
from rota.core.run import CRASH_RECOVERY, STOPPED_BY_SHUTDOWN, UNKNOWN_EXIT, Conclusion
from rota.core.status import Status
from rota.ids import JobId

JOB, OTHER = JobId(1), JobId(2)
POLICY = BreakerPolicy(failures=3, window=timedelta(minutes=10), cool_down=timedelta(minutes=5))
OFF = BreakerPolicy(failures=None)
LATER = NOW + timedelta(minutes=5)
MOMENT = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("failures", "most", "seconds"),
    [
        (1, 3, 1), (2, 3, 2), (3, 3, None), (4, 3, None), (1_000_000, 3, None),
        (1, 1, None), (1, 9, 1), (6, 9, 32), (7, 9, 60), (8, 9, 60), (999_999, 1_000_000, 60),
    ],
)  # fmt: skip
def test_how_long_to_wait_after_so_many_failed_starts(failures: int, most: int, seconds: int | None) -> None:
    assert again_after(failures, most) == (None if seconds is None else timedelta(seconds=seconds))


def test_the_word_that_users_see() -> None:
    assert CIRCUIT_BROKEN == "circuit-broken"


def test_the_figures_are_those_of_the_design() -> None:
    assert BreakerPolicy() == BreakerPolicy(
        dispatch_failures=3, failures=20, window=timedelta(minutes=10), cool_down=timedelta(minutes=10)
    )


@pytest.mark.parametrize(
    ("status", "reason", "told"),
    [
        (Status.COMPLETED, None, Told.GOOD),
        (Status.FAILED, "exit code 1", Told.BAD),
        (Status.FAILED, "timed out after 2m", Told.BAD),
        (Status.FAILED, "killed by SIGSEGV", Told.BAD),
        (Status.FAILED, CRASH_RECOVERY, Told.NOTHING),
        (Status.FAILED, UNKNOWN_EXIT, Told.NOTHING),
        (Status.FAILED, STOPPED_BY_SHUTDOWN, Told.NOTHING),
        (Status.CANCELLED, "cancelled by ann", Told.NOTHING),
        (Status.SKIPPED, "nothing to do", Told.NOTHING),
    ],
)
def test_what_an_end_says_of_its_kind(status: Status, reason: str | None, told: Told) -> None:
    assert told_by(Conclusion(status=status, exit_code=1, reason=reason)) is told


GOOD, BAD, NOTHING = Told.GOOD, Told.BAD, Told.NOTHING

ENDS: list[tuple[State, Told, int, State]] = [
    (CLOSED, GOOD, 0, CLOSED),
    (CLOSED, NOTHING, 99, CLOSED),
    (CLOSED, BAD, 1, CLOSED),
    (CLOSED, BAD, 2, CLOSED),
    (CLOSED, BAD, 3, Open(LATER)),
    (CLOSED, BAD, 4, Open(LATER)),
    # What was started before it opened decides nothing.
    (Open(NOW), GOOD, 0, Open(NOW)),
    (Open(NOW), BAD, 9, Open(NOW)),
    (HALF_OPEN, GOOD, 0, HALF_OPEN),
    (HALF_OPEN, BAD, 9, HALF_OPEN),
    (Probed(OTHER), GOOD, 0, Probed(OTHER)),
    (Probed(OTHER), BAD, 9, Probed(OTHER)),
    (Probed(OTHER), NOTHING, 0, Probed(OTHER)),
    # The probe does.
    (Probed(JOB), GOOD, 0, CLOSED),
    (Probed(JOB), BAD, 1, Open(LATER)),
    (Probed(JOB), NOTHING, 0, HALF_OPEN),
]


@pytest.mark.parametrize(("state", "told", "recent", "after"), ENDS)
def test_what_an_end_makes_of_a_breaker(state: State, told: Told, recent: int, after: State) -> None:
    assert after_end(state, JOB, told, recent=recent, policy=POLICY, now=NOW) == after


@pytest.mark.parametrize(
    ("state", "now", "after"),
    [
        (Open(LATER), LATER - MOMENT, Open(LATER)),
        (Open(LATER), LATER, HALF_OPEN),
        (Open(LATER), LATER + timedelta(days=9), HALF_OPEN),
        (HALF_OPEN, LATER, HALF_OPEN),
        (Probed(JOB), LATER + timedelta(days=9), Probed(JOB)),
    ],
)
def test_what_time_makes_of_a_breaker(state: State, now: datetime, after: State) -> None:
    assert after_while(state, POLICY, now) == after


@pytest.mark.parametrize("state", [Open(LATER), HALF_OPEN, Probed(JOB), CLOSED])
def test_switched_off_all_are_closed(state: State) -> None:
    assert after_while(state, OFF, NOW) == CLOSED
    assert after_end(state, JOB, BAD, recent=99, policy=OFF, now=NOW) == CLOSED


@pytest.mark.parametrize(
    ("type_", "target", "keys"),
    [
        (None, None, ()),
        ("", "", ()),
        ("x", None, ("type/x",)),
        (None, "y", ("target/y",)),
        ("x", "y", ("type/x", "target/y")),
    ],
)
def test_the_breakers_of_a_job(type_: str | None, target: str | None, keys: tuple[str, ...]) -> None:
    assert keys_of(type_, target) == keys


def test_the_first_that_holds_is_named_and_a_half_open_one_does_not_hold() -> None:
    breakers = Breakers({"type/x": HALF_OPEN, "target/y": Open(LATER), "target/z": Probed(JOB)})
    assert breakers.holding(("type/x",)) is None
    assert breakers.holding(("type/x", "target/y")) == ("target/y", Open(LATER))
    assert breakers.holding(("target/z",)) == ("target/z", Probed(JOB))
    assert breakers.holding(("type/other",)) is None
    assert breakers.awaiting(("type/x", "target/y", "type/other")) == ("type/x",)
    assert breakers.probed(("type/x",), OTHER).holding(("type/x",)) == ("type/x", Probed(OTHER))


def test_the_next_that_is_due() -> None:
    breakers = Breakers({"type/x": HALF_OPEN, "type/y": Open(LATER), "type/z": Open(LATER + MOMENT)})
    assert breakers.next_due(POLICY, NOW) == LATER
    assert breakers.next_due(OFF, NOW) == NOW
    assert Breakers().next_due(POLICY, NOW) is None
    assert Breakers().next_due(OFF, NOW) is None
    assert Breakers({"type/x": Probed(JOB)}).next_due(POLICY, NOW) is None


# Whatever happens in whatever order.

steps = st.lists(
    st.tuples(st.sampled_from(Told), st.integers(1, 5), st.integers(0, 4), st.integers(0, 400)), max_size=60
)


@given(steps)
def test_a_breaker_only_ever_moves_along_its_arrows(given_steps: list[tuple[Told, int, int, int]]) -> None:
    """Closed opens only by failure, open half-opens only by time, half-open closes or opens only by its probe; and
    from everywhere a probe that completes leads back to closed."""
    state: State = CLOSED
    now = NOW
    for told, job, recent, seconds in given_steps:
        now += timedelta(seconds=seconds)
        waited = after_while(state, POLICY, now)
        assert waited == state or (isinstance(state, Open) and state.until <= now and waited == HALF_OPEN)
        if isinstance(waited, HalfOpen):
            waited = Probed(JobId(job))
        state = after_end(waited, JobId(job), told, recent=recent, policy=POLICY, now=now)
        match waited, state:
            case Closed(), Open():
                assert told is BAD
                assert recent >= 3
            case (Probed(by), Open()) if by == job:
                assert told is BAD
            case (Probed(by), Closed()) if by == job:
                assert told is GOOD
            case (Probed(by), HalfOpen()) if by == job:
                assert told is NOTHING
            case _:
                assert state == waited
        assert not isinstance(state, Open) or state == waited or state.until == now + POLICY.cool_down
