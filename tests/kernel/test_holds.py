"""The delay and paused gates: messages, and the moment from which a job passes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.ids import JobId
from rota.kernel.breaker import BreakerStates, OpenState, ProbingState
from rota.kernel.holds import Pause, PauseState, format_time, judge_delay, judge_pause, scopes_of
from rota.kernel.status import Status
from rota.kernel.verdict import PASS, Wait, WaitKind
from tests.kernel.factories import NOW

MICROSECOND = timedelta(microseconds=1)
TOKYO = timezone(timedelta(hours=9))


def _not_before(text: str) -> Wait:
    return Wait(status=Status.QUEUED, kind=WaitKind.DELAY, detail=f"not before {text}")


@pytest.mark.parametrize(
    "not_before", [None, NOW, NOW - MICROSECOND, NOW.astimezone(TOKYO), datetime.min.replace(tzinfo=UTC)]
)
def test_reached_not_before_passes(not_before: datetime | None) -> None:
    """The current moment counts as reached, in any time zone."""
    assert judge_delay(not_before, NOW) == PASS


@pytest.mark.parametrize(
    ("not_before", "text"),
    [
        (NOW + MICROSECOND, "2026-01-31T12:00:00.000001Z"),
        (NOW + timedelta(seconds=10), "2026-01-31T12:00:10Z"),
        (NOW + timedelta(milliseconds=1500), "2026-01-31T12:00:01.500000Z"),
        (datetime(2026, 2, 1, 0, tzinfo=TOKYO), "2026-01-31T15:00:00Z"),
        (datetime(2026, 7, 1, 9, tzinfo=ZoneInfo("America/New_York")), "2026-07-01T13:00:00Z"),
    ],
)
def test_future_not_before_is_shown_in_utc(not_before: datetime, text: str) -> None:
    assert judge_delay(not_before, NOW) == _not_before(text)


zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=zones)  # noqa: DTZ001


@given(moments, moments)
def test_delay_gate_ignores_time_zone(not_before: datetime, now: datetime) -> None:
    verdict = judge_delay(not_before, now)
    assert verdict == judge_delay(not_before.astimezone(UTC), now.astimezone(UTC))
    assert (verdict == PASS) is (not_before <= now)


@given(moments)
def test_formatted_time_round_trips(moment: datetime) -> None:
    shown = format_time(moment)
    assert shown.endswith("Z")
    assert "+" not in shown
    assert datetime.fromisoformat(shown) == moment


def _pauses(**scopes: str) -> PauseState:
    return PauseState({name.replace("__", "/"): Pause(actor=by, at=NOW) for name, by in scopes.items()})


def _paused_by(actor: str) -> Wait:
    return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=f"paused by {actor}", on=("pause",))


SCOPES = scopes_of({"global": 1}, "story", "plan", None)


def test_no_pause_passes() -> None:
    assert judge_pause(_pauses(), SCOPES) == PASS


def test_global_pause_names_the_actor() -> None:
    assert judge_pause(_pauses(**{"global": "ann"}), SCOPES) == _paused_by("ann")


def test_global_pause_holds_a_job_without_scopes() -> None:
    assert judge_pause(_pauses(**{"global": "ann"}), ()) == _paused_by("ann")


def test_scope_pause_holds_only_covered_jobs() -> None:
    pauses = _pauses(type__story="bob")
    assert judge_pause(pauses, SCOPES) == _paused_by("bob")
    assert judge_pause(pauses, ("global", "type/image")) == PASS


def test_widest_pause_gives_the_reason() -> None:
    pauses = _pauses(flow__plan="eve", type__story="bob", **{"global": "ann"})
    assert judge_pause(pauses, SCOPES) == _paused_by("ann")
    assert judge_pause(_pauses(flow__plan="eve", type__story="bob"), SCOPES) == _paused_by("bob")


OPEN = BreakerStates({"type/x": OpenState(datetime(2026, 2, 1, 0, 10, tzinfo=UTC)), "target/y": ProbingState(JobId(9))})


@pytest.mark.parametrize(
    ("keys", "detail", "topic"),
    [
        (("type/x",), "breaker open for type/x until 2026-02-01T00:10:00Z", "breaker:type/x"),
        (("type/a", "target/y"), "breaker open for target/y until job-9 has ended", "breaker:target/y"),
        (("type/x", "target/y"), "breaker open for type/x until 2026-02-01T00:10:00Z", "breaker:type/x"),
    ],
)
def test_open_breaker_names_key_and_end(keys: tuple[str, ...], detail: str, topic: str) -> None:
    verdict = judge_pause(PauseState(breakers=OPEN), ("global",), keys)
    assert verdict == Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=detail, on=(topic,))
    assert PauseState(breakers=OPEN).is_paused(("global",), keys)


@pytest.mark.parametrize("keys", [(), ("type/other",), ("target/x", "type/y")])
def test_breaker_ignores_jobs_that_only_draw_from_its_pool(keys: tuple[str, ...]) -> None:
    assert judge_pause(PauseState(breakers=OPEN), ("global", "type/x"), keys) == PASS
    assert not PauseState(breakers=OPEN).is_paused(("global", "type/x"), keys)


def test_pause_takes_precedence_over_breaker() -> None:
    pauses = PauseState({"global": Pause(actor="ann", at=NOW)}, OPEN)
    verdict = judge_pause(pauses, ("global",), ("type/x",))
    assert isinstance(verdict, Wait)
    assert verdict.detail == "paused by ann"


@pytest.mark.parametrize(
    ("demand", "own", "scopes"),
    [
        ({}, (None, None, None), ("global",)),
        ({"global": 1}, ("", "", ""), ("global",)),
        ({"global": 1, "flow/f": 1}, (None, "f", None), ("global", "flow/f")),
        ({"global": 2}, ("t", "f", "x"), ("global", "type/t", "flow/f", "target/x")),
        ({"resource/r": 1, "type/u": 1}, ("t", None, None), ("global", "type/t", "resource/r", "type/u")),
    ],
)
def test_scopes_cover_global_own_fields_and_demand(
    demand: dict[str, int], own: tuple[str | None, str | None, str | None], scopes: tuple[str, ...]
) -> None:
    assert scopes_of(demand, *own) == scopes


def test_hold_file_holds_all_jobs_with_its_text() -> None:
    verdict = judge_pause(PauseState(hold_text="until noon"), ())
    assert verdict == Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail="held: until noon", on=("hold_file",))
    assert PauseState(hold_text="").is_paused((), ())
    assert not PauseState(_pauses(flow__plan="eve").scopes).is_paused(("global", "flow/other"), ())


def test_pause_precedes_hold_file_and_hold_file_precedes_breaker() -> None:
    everything = PauseState({"flow/plan": Pause(actor="ann", at=NOW)}, OPEN, "until noon")
    for pauses, scopes, detail in ((everything, ("flow/plan",), "paused by ann"), (everything, (), "held: until noon")):
        verdict = judge_pause(pauses, scopes, ("type/x",))
        assert isinstance(verdict, Wait)
        assert verdict.detail == detail


def test_only_global_pause_and_hold_file_are_global() -> None:
    assert _pauses(**{"global": "ann"}).is_paused_globally
    assert PauseState(hold_text="x").is_paused_globally
    assert not _pauses(flow__plan="ann").is_paused_globally
    assert not PauseState(breakers=OPEN).is_paused_globally
