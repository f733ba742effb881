"""Delays after failed starts, and the circuit breaker for runs that keep failing."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.ids import JobId
from rota.kernel.breaker import (
    CIRCUIT_BROKEN,
    CLOSED,
    HALF_OPEN,
    BreakerPolicy,
    BreakerState,
    BreakerStates,
    ClosedState,
    HalfOpenState,
    OpenState,
    ProbingState,
    RunSignal,
    breaker_keys,
    signal_of,
    state_after_run,
    state_after_time,
)
from rota.kernel.run import CRASH_RECOVERY, STOPPED_BY_SHUTDOWN, UNKNOWN_EXIT, RunResult
from rota.kernel.status import Status
from tests.kernel.factories import NOW

JOB, OTHER = JobId(1), JobId(2)
POLICY = BreakerPolicy(failures=3, window=timedelta(minutes=10), cool_down=timedelta(minutes=5))
OFF = BreakerPolicy(failures=None)
LATER = NOW + timedelta(minutes=5)
MICROSECOND = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("failures", "limit", "seconds"),
    [
        (1, 3, 30),
        (2, 3, 300),
        (3, 3, None),
        (4, 3, None),
        (1_000_000, 3, None),
        (1, 1, None),
        (1, 9, 30),
        (8, 9, 300),
        (999_999, 1_000_000, 300),
    ],
)
def test_start_delay_after_failed_starts(failures: int, limit: int, seconds: int | None) -> None:
    policy = BreakerPolicy(dispatch_failures=limit)
    assert policy.start_delay(failures) == (None if seconds is None else timedelta(seconds=seconds))


def test_last_start_delay_repeats() -> None:
    short, long = timedelta(seconds=1), timedelta(seconds=2)
    for delays, expected in (((short,), [short, short, short, None]), ((short, long), [short, long, long, None])):
        policy = BreakerPolicy(dispatch_failures=4, start_delays=delays)
        assert [policy.start_delay(failures) for failures in (1, 2, 3, 4)] == expected


def test_circuit_broken_reason_is_literal() -> None:
    assert CIRCUIT_BROKEN == "circuit-broken"


def test_default_breaker_policy() -> None:
    assert BreakerPolicy() == BreakerPolicy(
        dispatch_failures=3,
        start_delays=(timedelta(seconds=30), timedelta(minutes=5)),
        failures=20,
        window=timedelta(minutes=10),
        cool_down=timedelta(minutes=10),
    )


@pytest.mark.parametrize(
    ("status", "reason", "signal"),
    [
        (Status.COMPLETED, None, RunSignal.SUCCESS),
        (Status.FAILED, "exit code 1", RunSignal.FAILURE),
        (Status.FAILED, "timed out after 2m", RunSignal.FAILURE),
        (Status.FAILED, "killed by SIGSEGV", RunSignal.FAILURE),
        (Status.FAILED, CRASH_RECOVERY, RunSignal.NEUTRAL),
        (Status.FAILED, UNKNOWN_EXIT, RunSignal.NEUTRAL),
        (Status.FAILED, STOPPED_BY_SHUTDOWN, RunSignal.NEUTRAL),
        (Status.CANCELLED, "cancelled by ann", RunSignal.NEUTRAL),
        (Status.SKIPPED, "nothing to do", RunSignal.NEUTRAL),
    ],
)
def test_run_signal_of_each_result(status: Status, reason: str | None, signal: RunSignal) -> None:
    assert signal_of(RunResult(status=status, exit_code=1, reason=reason)) is signal


SUCCESS, FAILURE, NEUTRAL = RunSignal.SUCCESS, RunSignal.FAILURE, RunSignal.NEUTRAL

ENDS: list[tuple[BreakerState, RunSignal, int, BreakerState]] = [
    (CLOSED, SUCCESS, 0, CLOSED),
    (CLOSED, NEUTRAL, 99, CLOSED),
    (CLOSED, FAILURE, 1, CLOSED),
    (CLOSED, FAILURE, 2, CLOSED),
    (CLOSED, FAILURE, 3, OpenState(LATER)),
    (CLOSED, FAILURE, 4, OpenState(LATER)),
    # Runs that started before the breaker opened do not change its state.
    (OpenState(NOW), SUCCESS, 0, OpenState(NOW)),
    (OpenState(NOW), FAILURE, 9, OpenState(NOW)),
    (HALF_OPEN, SUCCESS, 0, HALF_OPEN),
    (HALF_OPEN, FAILURE, 9, HALF_OPEN),
    (ProbingState(OTHER), SUCCESS, 0, ProbingState(OTHER)),
    (ProbingState(OTHER), FAILURE, 9, ProbingState(OTHER)),
    (ProbingState(OTHER), NEUTRAL, 0, ProbingState(OTHER)),
    # The probe changes it.
    (ProbingState(JOB), SUCCESS, 0, CLOSED),
    (ProbingState(JOB), FAILURE, 1, OpenState(LATER)),
    (ProbingState(JOB), NEUTRAL, 0, HALF_OPEN),
]


@pytest.mark.parametrize(("state", "signal", "recent", "after"), ENDS)
def test_breaker_state_after_run(state: BreakerState, signal: RunSignal, recent: int, after: BreakerState) -> None:
    assert state_after_run(state, JOB, signal, recent_failures=recent, policy=POLICY, now=NOW) == after


@pytest.mark.parametrize(
    ("state", "now", "after"),
    [
        (OpenState(LATER), LATER - MICROSECOND, OpenState(LATER)),
        (OpenState(LATER), LATER, HALF_OPEN),
        (OpenState(LATER), LATER + timedelta(days=9), HALF_OPEN),
        (HALF_OPEN, LATER, HALF_OPEN),
        (ProbingState(JOB), LATER + timedelta(days=9), ProbingState(JOB)),
    ],
)
def test_breaker_state_after_time(state: BreakerState, now: datetime, after: BreakerState) -> None:
    assert state_after_time(state, POLICY, now) == after


@pytest.mark.parametrize("state", [OpenState(LATER), HALF_OPEN, ProbingState(JOB), CLOSED])
def test_disabled_breakers_are_always_closed(state: BreakerState) -> None:
    assert state_after_time(state, OFF, NOW) == CLOSED
    assert state_after_run(state, JOB, FAILURE, recent_failures=99, policy=OFF, now=NOW) == CLOSED


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
def test_breaker_keys_of_type_and_target(type_: str | None, target: str | None, keys: tuple[str, ...]) -> None:
    assert breaker_keys(type_, target) == keys


def test_find_holding_returns_first_open_or_probing_breaker() -> None:
    breakers = BreakerStates({"type/x": HALF_OPEN, "target/y": OpenState(LATER), "target/z": ProbingState(JOB)})
    assert breakers.find_holding(("type/x",)) is None
    assert breakers.find_holding(("type/x", "target/y")) == ("target/y", OpenState(LATER))
    assert breakers.find_holding(("target/z",)) == ("target/z", ProbingState(JOB))
    assert breakers.find_holding(("type/other",)) is None
    assert breakers.find_half_open(("type/x", "target/y", "type/other")) == ("type/x",)
    assert breakers.with_probe(("type/x",), OTHER).find_holding(("type/x",)) == ("type/x", ProbingState(OTHER))


def test_next_transition_is_the_earliest_end_of_a_cool_down() -> None:
    breakers = BreakerStates(
        {"type/x": HALF_OPEN, "type/y": OpenState(LATER), "type/z": OpenState(LATER + MICROSECOND)}
    )
    assert breakers.next_transition(POLICY, NOW) == LATER
    assert breakers.next_transition(OFF, NOW) == NOW
    assert BreakerStates().next_transition(POLICY, NOW) is None
    assert BreakerStates().next_transition(OFF, NOW) is None
    assert BreakerStates({"type/x": ProbingState(JOB)}).next_transition(POLICY, NOW) is None


# Random sequences of runs.

steps = st.lists(
    st.tuples(st.sampled_from(RunSignal), st.integers(1, 5), st.integers(0, 4), st.integers(0, 400)), max_size=60
)


@given(steps)
def test_breaker_follows_only_documented_transitions(drawn: list[tuple[RunSignal, int, int, int]]) -> None:
    """A closed breaker opens only by a failure, an open breaker half-opens only by time, and a half-open breaker closes
    or opens only by its probe."""
    state: BreakerState = CLOSED
    now = NOW
    for signal, job, recent, seconds in drawn:
        now += timedelta(seconds=seconds)
        before = state_after_time(state, POLICY, now)
        assert before == state or (isinstance(state, OpenState) and state.until <= now and before == HALF_OPEN)
        if isinstance(before, HalfOpenState):
            before = ProbingState(JobId(job))
        state = state_after_run(before, JobId(job), signal, recent_failures=recent, policy=POLICY, now=now)
        match before, state:
            case ClosedState(), OpenState():
                assert signal is FAILURE
                assert recent >= 3
            case (ProbingState(by), OpenState()) if by == job:
                assert signal is FAILURE
            case (ProbingState(by), ClosedState()) if by == job:
                assert signal is SUCCESS
            case (ProbingState(by), HalfOpenState()) if by == job:
                assert signal is NEUTRAL
            case _:
                assert state == before
        assert not isinstance(state, OpenState) or state == before or state.until == now + POLICY.cool_down
