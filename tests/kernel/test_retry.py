"""Retries: which failed runs are retried, and when."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.config import DEFAULT_POLICIES, Config, RetryConfig, list_values
from rota.engine.settings import settings_from_config
from rota.errors import InvalidInput
from rota.home import Home
from rota.kernel.retry import FLEET_POLICY, MAX_RETRIES, RetryPolicies, RetryPolicy, decide_retry, format_progress
from rota.kernel.run import CRASH_RECOVERY, STOPPED_BY_SHUTDOWN, UNKNOWN_EXIT, RunResult
from rota.kernel.status import Status

NO_JITTER = 0.5
"""Random fraction without jitter."""


def seconds(policy: RetryPolicy, retries: int, fraction: float = NO_JITTER, exit_code: int | None = 1) -> float | None:
    delay = policy.retry_delay(retries, exit_code=exit_code, random_fraction=fraction)
    return None if delay is None else delay.total_seconds()


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (RetryPolicy(), [10, 20, 40, None, None]),
        (RetryPolicy(max_retries=0), [None]),
        (RetryPolicy(max_retries=1), [10, None]),
        (RetryPolicy(max_retries=7), [10, 20, 40, 80, 160, 300, 300, None]),
        (RetryPolicy(max_retries=5, base=timedelta(seconds=30)), [30, 60, 120, 240, 300, None]),
        (RetryPolicy(max_retries=3, multiplier=1), [10, 10, 10, None]),
        (RetryPolicy(base=timedelta()), [0, 0, 0, None]),
        (RetryPolicy(cap=timedelta(seconds=5)), [5, 5, 5, None]),
        (RetryPolicy(multiplier=1.5, base=timedelta(seconds=2)), [2, 3, 4.5, None]),
    ],
)
def test_dec_007_delays_grow_to_the_cap_and_end(policy: RetryPolicy, delays: list[float | None]) -> None:
    assert [seconds(policy, retries) for retries in range(len(delays))] == delays


@pytest.mark.parametrize(("fraction", "delay"), [(0.0, 9.0), (0.25, 9.5), (0.5, 10.0), (1.0, 11.0)])
def test_jitter_shortens_and_lengthens_delays(fraction: float, delay: float) -> None:
    assert seconds(RetryPolicy(), 0, fraction) == pytest.approx(delay)


def test_jitter_never_exceeds_the_cap() -> None:
    assert seconds(RetryPolicy(max_retries=9), 8, fraction=1.0) == 300


@pytest.mark.parametrize(("code", "is_retried"), [(1, True), (75, True), (2, False), (124, False), (None, True)])
def test_only_configured_exit_codes_are_retried(code: int | None, is_retried: bool) -> None:
    """Exit codes do not apply to a run that was interrupted."""
    assert (seconds(RetryPolicy(exit_codes=(1, 75)), 0, exit_code=code) is not None) is is_retried


def test_overflowing_delay_is_the_cap() -> None:
    assert seconds(RetryPolicy(max_retries=MAX_RETRIES, multiplier=100), MAX_RETRIES - 1) == 300


policies = st.builds(
    RetryPolicy,
    max_retries=st.integers(0, MAX_RETRIES),
    base=st.timedeltas(timedelta(), timedelta(days=3650)),
    multiplier=st.floats(1, 100),
    jitter=st.floats(0, 1),
    cap=st.timedeltas(timedelta(), timedelta(days=3650)),
)
fractions = st.floats(0, 1)


@given(policies, st.integers(0, MAX_RETRIES), fractions)
def test_delay_stays_within_bounds(policy: RetryPolicy, retries: int, fraction: float) -> None:
    delay = policy.retry_delay(retries, exit_code=1, random_fraction=fraction)
    assert (delay is None) is (retries >= policy.max_retries)
    if delay is not None:
        assert timedelta() <= delay <= policy.cap
        nominal = policy.retry_delay(retries, exit_code=1, random_fraction=NO_JITTER)
        assert nominal is not None
        # The jitter limits a delay relative to the delay without jitter, unless the cap hides the difference.
        assert delay <= nominal * (1 + policy.jitter) + timedelta(microseconds=2)


@given(policies, st.integers(0, MAX_RETRIES - 1))
def test_delays_never_shrink(policy: RetryPolicy, retries: int) -> None:
    first, second = (policy.retry_delay(n, exit_code=1, random_fraction=NO_JITTER) for n in (retries, retries + 1))
    assert first is None or second is None or second >= first


@given(policies, fractions)
def test_every_chain_ends(policy: RetryPolicy, fraction: float) -> None:
    """LESSONS: 70 h loop, 3,612 failures."""
    runs = 1
    while policy.retry_delay(runs - 1, exit_code=1, random_fraction=fraction) is not None:
        runs += 1
    assert runs == policy.max_retries + 1


def ended(status: Status = Status.FAILED, code: int | None = 1, reason: str | None = "exit code 1") -> RunResult:
    return RunResult(status=status, exit_code=code, reason=reason)


@pytest.mark.parametrize(
    ("end", "is_retried"),
    [
        (ended(), True),
        (ended(code=124, reason="timed out after 2m"), True),
        (ended(code=None, reason=CRASH_RECOVERY), True),
        (ended(code=None, reason=UNKNOWN_EXIT), True),
        (ended(code=143, reason=STOPPED_BY_SHUTDOWN), True),
        (ended(Status.COMPLETED, 0, None), False),
        (ended(Status.SKIPPED, 0, "nothing to do"), False),
        (ended(Status.CANCELLED, 143, "cancelled by ann"), False),
    ],
)
def test_only_failed_runs_are_retried(end: RunResult, is_retried: bool) -> None:
    def delay(policy: RetryPolicy | None, *, is_cancelled: bool = False) -> timedelta | None:
        return decide_retry(policy, 0, end, is_cancel_requested=is_cancelled, random_fraction=NO_JITTER)

    assert (delay(RetryPolicy()) is not None) is is_retried
    assert delay(None) is None
    assert delay(RetryPolicy(), is_cancelled=True) is None, "a cancel applies to the chain"


def test_interrupted_run_is_retried_regardless_of_exit_codes() -> None:
    policy = RetryPolicy(exit_codes=(75,))
    for reason in (CRASH_RECOVERY, UNKNOWN_EXIT, STOPPED_BY_SHUTDOWN):
        assert (
            decide_retry(policy, 0, ended(reason=reason), is_cancel_requested=False, random_fraction=NO_JITTER)
            is not None
        )
    assert decide_retry(policy, 0, ended(), is_cancel_requested=False, random_fraction=NO_JITTER) is None


def test_hold_prevents_retry_after_unknown_exit() -> None:
    hold = RetryPolicy(unknown_exit="hold")
    for reason in (CRASH_RECOVERY, UNKNOWN_EXIT):
        assert (
            decide_retry(hold, 0, ended(code=None, reason=reason), is_cancel_requested=False, random_fraction=NO_JITTER)
            is None
        )
    for known in (ended(), ended(code=143, reason=STOPPED_BY_SHUTDOWN)):
        assert decide_retry(hold, 0, known, is_cancel_requested=False, random_fraction=NO_JITTER) is not None


NIGHT = RetryPolicy(max_retries=9, multiplier=1)
POLICIES = RetryPolicies(named={FLEET_POLICY: RetryPolicy(max_retries=5), "night": NIGHT})


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ({}, None),
        ({"retries": 0}, RetryPolicy(max_retries=0)),
        ({"retries": 2}, RetryPolicy(max_retries=2)),
        ({"name": "default"}, RetryPolicy()),
        ({"name": "night"}, NIGHT),
        ({"name": "night", "retries": 1}, RetryPolicy(max_retries=1, multiplier=1)),
        ({"flow": "implement"}, RetryPolicy(max_retries=5)),
        ({"flow": "implement", "retries": 0}, RetryPolicy(max_retries=0)),
        ({"flow": "implement", "name": "night"}, NIGHT),
        ({"fallback": "default"}, RetryPolicy()),
        ({"fallback": "default", "retries": 1}, RetryPolicy(max_retries=1)),
        ({"fallback": "night", "name": "default"}, RetryPolicy()),
    ],
)
def test_choose_returns_the_requested_policy(requested: dict[str, object], expected: RetryPolicy | None) -> None:
    """Commands typed by a user are retried only on request (docs/dev/decisions/0001)."""
    arguments: dict[str, object] = {"name": None, "retries": None, "flow": None, **requested}
    assert POLICIES.choose(**arguments) == expected  # type: ignore[arg-type]


def test_unknown_policy_is_refused_with_known_names() -> None:
    with pytest.raises(InvalidInput) as refused:
        POLICIES.choose(name="nigth", retries=None, flow=None)
    assert refused.value.message == (
        "unknown retry policy: 'nigth'; known policies: default, fleet, night; a [retry.NAME] table adds one"
    )
    with pytest.raises(InvalidInput, match=r"; to retry up to 3 times, set `retries` to 3$"):
        POLICIES.choose(name="3", retries=None, flow=None)
    for retries in (-1, MAX_RETRIES + 1):
        with pytest.raises(InvalidInput, match=f"retries must be from 0 to 1000, not {retries}"):
            POLICIES.choose(name=None, retries=retries, flow=None)


def test_configuration_defaults_match_policy_defaults() -> None:
    assert settings_from_config(Config(), Home("/home")).retry == RetryPolicies()
    assert RetryPolicies().named[FLEET_POLICY].max_retries == DEFAULT_POLICIES[FLEET_POLICY]["max_retries"] == 5
    config = Config(policies={"night": RetryConfig(max_retries=1, exit_codes=(75,))})
    assert settings_from_config(config, Home("/home")).retry.named == {
        "night": RetryPolicy(max_retries=1, exit_codes=(75,))
    }


def test_docs_table_matches_configuration() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/retry-failed-jobs.md").read_text()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:4]] for line in page.splitlines() if line.startswith("| `")]
    listed = list_values(Config())
    for name, default, fleet in rows:
        shown = {key: str(value).removesuffix(".0") for key, value in listed.items() if key.startswith("retry.")}
        assert default.strip('"') == shown[f"retry.{name}"]
        assert fleet.strip('"') == shown[f"retry.fleet.{name}"]
    assert [row[0] for row in rows] == list(RetryConfig.__struct_fields__)


def test_progress_is_shown_only_for_automatic_retries() -> None:
    assert format_progress(RetryPolicy(), 2) == "retry 2 of 3"
    assert format_progress(RetryPolicy(), 0) is None
    assert format_progress(None, 0) is None
