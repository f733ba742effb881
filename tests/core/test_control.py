"""The delay and paused gates: what is said, and from which moment on nothing is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.making import NOW
from rota.core.breaker import Breakers, Open, Probed
from rota.core.control import Pause, Pauses, judge_delay, judge_pause, scopes_of, show_time
from rota.core.status import Status
from rota.core.verdict import PASS, Wait
from rota.core.wait import WaitKind
from rota.ids import JobId

MOMENT = timedelta(microseconds=1)
TOKYO = timezone(timedelta(hours=9))


def _not_before(text: str) -> Wait:
    return Wait(status=Status.QUEUED, kind=WaitKind.DELAY, detail=f"not before {text}")


@pytest.mark.parametrize(
    "not_before", [None, NOW, NOW - MOMENT, NOW.astimezone(TOKYO), datetime.min.replace(tzinfo=UTC)]
)
def test_a_time_that_has_come_passes(not_before: datetime | None) -> None:
    """Exactly now has come, on whichever clock it is written."""
    assert judge_delay(not_before, NOW) == PASS


@pytest.mark.parametrize(
    ("not_before", "text"),
    [
        (NOW + MOMENT, "2026-01-31T12:00:00.000001Z"),
        (NOW + timedelta(seconds=10), "2026-01-31T12:00:10Z"),
        (NOW + timedelta(milliseconds=1500), "2026-01-31T12:00:01.500000Z"),
        (datetime(2026, 2, 1, 0, tzinfo=TOKYO), "2026-01-31T15:00:00Z"),
        (datetime(2026, 7, 1, 9, tzinfo=ZoneInfo("America/New_York")), "2026-07-01T13:00:00Z"),
    ],
)
def test_a_time_to_come_is_named_in_utc(not_before: datetime, text: str) -> None:
    assert judge_delay(not_before, NOW) == _not_before(text)


zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=zones)  # noqa: DTZ001


@given(moments, moments)
def test_the_zone_in_which_a_time_is_written_changes_nothing(not_before: datetime, now: datetime) -> None:
    verdict = judge_delay(not_before, now)
    assert verdict == judge_delay(not_before.astimezone(UTC), now.astimezone(UTC))
    assert (verdict == PASS) is (not_before <= now)


@given(moments)
def test_a_time_shown_is_the_same_time(moment: datetime) -> None:
    shown = show_time(moment)
    assert shown.endswith("Z")
    assert "+" not in shown
    assert datetime.fromisoformat(shown) == moment


def _pauses(**scopes: str) -> Pauses:
    return Pauses({name.replace("__", "/"): Pause(by=by, at=NOW) for name, by in scopes.items()})


def _paused_by(actor: str) -> Wait:
    return Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=f"paused by {actor}", on=("pause",))


SCOPES = scopes_of({"global": 1}, "story", "plan", None)


def test_nothing_paused_passes() -> None:
    assert judge_pause(_pauses(), SCOPES) == PASS


def test_a_pause_of_everything_names_who_did_it() -> None:
    assert judge_pause(_pauses(**{"global": "ann"}), SCOPES) == _paused_by("ann")


def test_a_pause_of_everything_holds_a_job_that_draws_nothing() -> None:
    assert judge_pause(_pauses(**{"global": "ann"}), ()) == _paused_by("ann")


def test_a_pause_of_one_pool_holds_only_those_that_draw_from_it() -> None:
    pauses = _pauses(type__story="bob")
    assert judge_pause(pauses, SCOPES) == _paused_by("bob")
    assert judge_pause(pauses, ("global", "type/image")) == PASS


def test_of_several_pauses_the_widest_speaks() -> None:
    pauses = _pauses(flow__plan="eve", type__story="bob", **{"global": "ann"})
    assert judge_pause(pauses, SCOPES) == _paused_by("ann")
    assert judge_pause(_pauses(flow__plan="eve", type__story="bob"), SCOPES) == _paused_by("bob")


OPEN = Breakers({"type/x": Open(datetime(2026, 2, 1, 0, 10, tzinfo=UTC)), "target/y": Probed(JobId(9))})


@pytest.mark.parametrize(
    ("keys", "detail", "topic"),
    [
        (("type/x",), "breaker open for type/x until 2026-02-01T00:10:00Z", "breaker:type/x"),
        (("type/a", "target/y"), "breaker open for target/y until job-9 has ended", "breaker:target/y"),
        (("type/x", "target/y"), "breaker open for type/x until 2026-02-01T00:10:00Z", "breaker:type/x"),
    ],
)
def test_an_open_breaker_says_for_what_and_until_when(keys: tuple[str, ...], detail: str, topic: str) -> None:
    said = judge_pause(Pauses(breakers=OPEN), ("global",), keys)
    assert said == Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail=detail, on=(topic,))
    assert Pauses(breakers=OPEN).are_over(("global",), keys)


@pytest.mark.parametrize("keys", [(), ("type/other",), ("target/x", "type/y")])
def test_a_breaker_holds_nobody_else_not_even_who_draws_from_its_pool(keys: tuple[str, ...]) -> None:
    assert judge_pause(Pauses(breakers=OPEN), ("global", "type/x"), keys) == PASS
    assert not Pauses(breakers=OPEN).are_over(("global", "type/x"), keys)


def test_a_person_speaks_before_a_breaker() -> None:
    pauses = Pauses({"global": Pause(by="ann", at=NOW)}, OPEN)
    said = judge_pause(pauses, ("global",), ("type/x",))
    assert isinstance(said, Wait)
    assert said.detail == "paused by ann"


@pytest.mark.parametrize(
    ("draws", "own", "scopes"),
    [
        ({}, (None, None, None), ("global",)),
        ({"global": 1}, ("", "", ""), ("global",)),
        ({"global": 1, "flow/f": 1}, (None, "f", None), ("global", "flow/f")),
        ({"global": 2}, ("t", "f", "x"), ("global", "type/t", "flow/f", "target/x")),
        ({"resource/r": 1, "type/u": 1}, ("t", None, None), ("global", "type/t", "resource/r", "type/u")),
    ],
)
def test_a_job_stands_under_everything_its_own_and_what_it_draws_from(
    draws: dict[str, int], own: tuple[str | None, str | None, str | None], scopes: tuple[str, ...]
) -> None:
    assert scopes_of(draws, *own) == scopes


def test_a_hold_file_holds_everybody_and_says_what_it_says() -> None:
    said = judge_pause(Pauses(held="until noon"), ())
    assert said == Wait(status=Status.QUEUED, kind=WaitKind.PAUSED, detail="held: until noon", on=("hold_file",))
    assert Pauses(held="").are_over((), ())
    assert not Pauses(_pauses(flow__plan="eve").scopes).are_over(("global", "flow/other"), ())


def test_a_person_speaks_before_a_file_and_a_file_before_a_breaker() -> None:
    everything = Pauses({"flow/plan": Pause(by="ann", at=NOW)}, OPEN, "until noon")
    for pauses, scopes, detail in (
        (everything, ("flow/plan",), "paused by ann"),
        (everything, (), "held: until noon"),
    ):
        said = judge_pause(pauses, scopes, ("type/x",))
        assert isinstance(said, Wait)
        assert said.detail == detail


def test_only_everything_and_a_file_are_over_all() -> None:
    assert _pauses(**{"global": "ann"}).are_over_all
    assert Pauses(held="x").are_over_all
    assert not _pauses(flow__plan="ann").are_over_all
    assert not Pauses(breakers=OPEN).are_over_all
