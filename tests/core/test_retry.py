"""Whether a failed run is tried again, and when."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.config import DEFAULT_POLICIES, Config, Retry, listing
from rota.core.retry import FLEET, MOST_RETRIES, RetryPolicies, RetryPolicy, decide, show_progress
from rota.core.run import CRASH_RECOVERY, STOPPED_BY_SHUTDOWN, UNKNOWN_EXIT, Conclusion
from rota.core.status import Status
from rota.engine.settings import settings_of
from rota.errors import InvalidInput
from rota.home import Home

MIDDLE = 0.5
"""No jitter."""


def seconds(policy: RetryPolicy, retries: int, chance: float = MIDDLE, exit_code: int | None = 1) -> float | None:
    delay = policy.again_after(retries, exit_code=exit_code, chance=chance)
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
def test_dec_007_delays_grow_to_the_cap_and_come_to_an_end(policy: RetryPolicy, delays: list[float | None]) -> None:
    assert [seconds(policy, retries) for retries in range(len(delays))] == delays


@pytest.mark.parametrize(("chance", "delay"), [(0.0, 9.0), (0.25, 9.5), (0.5, 10.0), (1.0, 11.0)])
def test_jitter_goes_both_ways(chance: float, delay: float) -> None:
    assert seconds(RetryPolicy(), 0, chance) == pytest.approx(delay)


def test_no_jitter_goes_beyond_the_cap() -> None:
    assert seconds(RetryPolicy(max_retries=9), 8, chance=1.0) == 300


@pytest.mark.parametrize(("code", "is_retried"), [(1, True), (75, True), (2, False), (124, False), (None, True)])
def test_only_the_chosen_exit_codes_are_tried_again(code: int | None, is_retried: bool) -> None:
    """What the command did not do itself is not a matter of codes."""
    assert (seconds(RetryPolicy(exit_codes=(1, 75)), 0, exit_code=code) is not None) is is_retried


def test_a_count_beyond_all_floats_is_the_cap() -> None:
    assert seconds(RetryPolicy(max_retries=MOST_RETRIES, multiplier=100), MOST_RETRIES - 1) == 300


policies = st.builds(
    RetryPolicy,
    max_retries=st.integers(0, MOST_RETRIES),
    base=st.timedeltas(timedelta(), timedelta(days=3650)),
    multiplier=st.floats(1, 100),
    jitter=st.floats(0, 1),
    cap=st.timedeltas(timedelta(), timedelta(days=3650)),
)
chances = st.floats(0, 1)


@given(policies, st.integers(0, MOST_RETRIES), chances)
def test_a_delay_is_within_its_bounds(policy: RetryPolicy, retries: int, chance: float) -> None:
    delay = policy.again_after(retries, exit_code=1, chance=chance)
    assert (delay is None) is (retries >= policy.max_retries)
    if delay is not None:
        assert timedelta() <= delay <= policy.cap
        middle = policy.again_after(retries, exit_code=1, chance=MIDDLE)
        assert middle is not None
        # A cap under both of them hides the difference; a delay is as long as its middle, give or take the jitter.
        assert delay <= middle * (1 + policy.jitter) + timedelta(microseconds=2)


@given(policies, st.integers(0, MOST_RETRIES - 1))
def test_a_chain_waits_longer_each_time(policy: RetryPolicy, retries: int) -> None:
    first, then = (policy.again_after(n, exit_code=1, chance=MIDDLE) for n in (retries, retries + 1))
    assert first is None or then is None or then >= first


@given(policies, chances)
def test_every_chain_comes_to_an_end(policy: RetryPolicy, chance: float) -> None:
    """LESSONS: 70 h loop, 3,612 failures."""
    runs = 1
    while policy.again_after(runs - 1, exit_code=1, chance=chance) is not None:
        runs += 1
    assert runs == policy.max_retries + 1


def ended(status: Status = Status.FAILED, code: int = 1, reason: str | None = "exit code 1") -> Conclusion:
    return Conclusion(status=status, exit_code=code, reason=reason)


@pytest.mark.parametrize(
    ("end", "is_retried"),
    [
        (ended(), True),
        (ended(code=124, reason="timed out after 2m"), True),
        (ended(reason=CRASH_RECOVERY), True),
        (ended(reason=UNKNOWN_EXIT), True),
        (ended(code=143, reason=STOPPED_BY_SHUTDOWN), True),
        (ended(Status.COMPLETED, 0, None), False),
        (ended(Status.SKIPPED, 0, "nothing to do"), False),
        (ended(Status.CANCELLED, 143, "cancelled by ann"), False),
    ],
)
def test_which_ends_are_tried_again(end: Conclusion, is_retried: bool) -> None:
    def delay(policy: RetryPolicy | None, *, is_unwanted: bool = False) -> timedelta | None:
        return decide(policy, 0, end, is_unwanted=is_unwanted, chance=MIDDLE)

    assert (delay(RetryPolicy()) is not None) is is_retried
    assert delay(None) is None
    assert delay(RetryPolicy(), is_unwanted=True) is None, "a cancel means the chain"


def test_an_end_that_was_nobodys_doing_is_tried_again_whatever_the_codes() -> None:
    picky = RetryPolicy(exit_codes=(75,))
    for reason in (CRASH_RECOVERY, UNKNOWN_EXIT, STOPPED_BY_SHUTDOWN):
        assert decide(picky, 0, ended(reason=reason), is_unwanted=False, chance=MIDDLE) is not None
    assert decide(picky, 0, ended(), is_unwanted=False, chance=MIDDLE) is None


NIGHT = RetryPolicy(max_retries=9, multiplier=1)
KNOWN = RetryPolicies(named={FLEET: RetryPolicy(max_retries=5), "night": NIGHT})


@pytest.mark.parametrize(
    ("asked", "expected"),
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
        ({"otherwise": "default"}, RetryPolicy()),
        ({"otherwise": "default", "retries": 1}, RetryPolicy(max_retries=1)),
        ({"otherwise": "night", "name": "default"}, RetryPolicy()),
    ],
)
def test_what_a_job_asks_for_is_what_it_gets(asked: dict[str, object], expected: RetryPolicy | None) -> None:
    """A command typed by hand is not repeated unless asked (docs/decisions/0003)."""
    given: dict[str, object] = {"name": None, "retries": None, "flow": None, **asked}
    assert KNOWN.choose(**given) == expected  # type: ignore[arg-type]


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput) as refused:
        KNOWN.choose(name="nigth", retries=None, flow=None)
    assert refused.value.message == (
        "unknown retry policy: 'nigth'; known are default, fleet, night, and [retry.NAME] adds one"
    )
    for retries in (-1, MOST_RETRIES + 1):
        with pytest.raises(InvalidInput, match=f"retries go from 0 to 1000, not {retries}"):
            KNOWN.choose(name=None, retries=retries, flow=None)


def test_the_configuration_has_the_defaults_of_the_rules() -> None:
    assert settings_of(Config(), Home("/home")).retry == RetryPolicies()
    assert RetryPolicies().named[FLEET].max_retries == DEFAULT_POLICIES[FLEET]["max_retries"] == 5
    given = Config(policies={"night": Retry(max_retries=1, exit_codes=(75,))})
    assert settings_of(given, Home("/home")).retry.named == {"night": RetryPolicy(max_retries=1, exit_codes=(75,))}


def test_the_page_has_the_figures_of_the_configuration() -> None:
    page = (Path(__file__).parents[2] / "docs/retry.md").read_text()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:4]] for line in page.splitlines() if line.startswith("| `")]
    listed = listing(Config())
    for name, default, fleet in rows:
        shown = {key: str(value).removesuffix(".0") for key, value in listed.items() if key.startswith("retry.")}
        assert default.strip('"') == shown[f"retry.{name}"]
        assert fleet.strip('"') == shown[f"retry.fleet.{name}"]
    assert [row[0] for row in rows] == list(Retry.__struct_fields__)


def test_progress_is_told_of_automatic_retries_only() -> None:
    assert show_progress(RetryPolicy(), 2) == "retry 2 of 3"
    assert show_progress(RetryPolicy(), 0) is None
    assert show_progress(None, 0) is None
