"""What an end means: every way a child can end, with its status, its code and its words."""

from __future__ import annotations

from datetime import timedelta
from signal import SIGHUP, SIGKILL, SIGSEGV, SIGTERM

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.run import MUTABLE, Conclusion, End, Intent, Run, amend, conclude
from rota.core.status import TERMINAL, Status
from rota.errors import Conflict

COMPLETED, FAILED, SKIPPED, CANCELLED = Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED
NOTHING = Intent()
STOPPED = Intent(stop_requested="cancelled by ann")
LIMITED = Intent(timeout=timedelta(minutes=2), idle_timeout=timedelta(seconds=30))


def _failed(exit_code: int, reason: str) -> Conclusion:
    return Conclusion(status=FAILED, exit_code=exit_code, reason=reason, error=reason)


DONE = Conclusion(status=COMPLETED, exit_code=0, reason=None)
CALLED_OFF = Conclusion(status=CANCELLED, exit_code=143, reason="cancelled by ann", error="cancelled by ann")


@pytest.mark.parametrize(
    ("end", "intent", "conclusion"),
    [
        (End(code=0), NOTHING, DONE),
        (End(code=0, tail="a warning"), NOTHING, DONE),
        (End(code=1), NOTHING, _failed(1, "exit code 1")),
        (End(code=255), NOTHING, _failed(255, "exit code 255")),
        (End(signal=SIGKILL), NOTHING, _failed(137, "killed by SIGKILL")),
        (End(signal=SIGTERM), NOTHING, _failed(143, "killed by SIGTERM")),
        (End(signal=SIGSEGV), NOTHING, _failed(139, "killed by SIGSEGV")),
        (End(signal=SIGHUP), NOTHING, _failed(129, "killed by SIGHUP")),
        (End(signal=50), NOTHING, _failed(178, "killed by signal 50")),
    ],
)
def test_an_end_of_its_own(end: End, intent: Intent, conclusion: Conclusion) -> None:
    assert conclude(end, intent) == conclusion


@pytest.mark.parametrize("how", [{"signal": SIGTERM}, {"signal": SIGKILL}, {"code": 0}, {"code": 3}, {}])
def test_a_timeout_is_124_however_the_child_took_it(how: dict[str, int]) -> None:
    timeout, idle = End(ended_by="timeout", **how), End(ended_by="idle_timeout", **how)  # type: ignore[arg-type]
    assert conclude(timeout, LIMITED) == _failed(124, "timed out after 2m")
    assert conclude(idle, LIMITED) == _failed(124, "timed out after 30s without output")


@pytest.mark.parametrize(
    ("timeout", "text"),
    [
        (timedelta(milliseconds=300), "timed out after 300ms"),
        (timedelta(seconds=1.5), "timed out after 1.5s"),
        (timedelta(seconds=150), "timed out after 2m30s"),
        (timedelta(hours=1), "timed out after 1h"),
    ],
)
def test_a_timeout_is_named_as_people_write_it(timeout: timedelta, text: str) -> None:
    assert conclude(End(ended_by="timeout"), Intent(timeout=timeout)) == _failed(124, text)


@pytest.mark.parametrize("ended_by", ["timeout", "idle_timeout"])
def test_a_timeout_that_the_record_does_not_know_is_a_timeout_all_the_same(ended_by: str) -> None:
    assert conclude(End(ended_by=ended_by), NOTHING) == _failed(124, "timed out after its limit")


def test_a_timeout_before_a_cancel_took_effect_stands() -> None:
    intent = Intent(stop_requested="cancelled by ann", timeout=timedelta(minutes=2))
    assert conclude(End(ended_by="timeout", signal=SIGTERM), intent) == _failed(124, "timed out after 2m")


@pytest.mark.parametrize(
    ("end", "intent", "conclusion"),
    [
        (End(ended_by="stop", signal=SIGTERM), STOPPED, CALLED_OFF),
        (End(ended_by="stop", signal=SIGKILL), STOPPED, CALLED_OFF),
        (End(ended_by="stop", code=0), STOPPED, CALLED_OFF),
        (End(ended_by="stop", code=7), STOPPED, CALLED_OFF),
        (End(ended_by="stop"), STOPPED, CALLED_OFF),
        # Asked for, but it had ended before: its result stands.
        (End(code=0), STOPPED, DONE),
        (End(code=7), STOPPED, _failed(7, "exit code 7")),
        (End(signal=SIGKILL), STOPPED, _failed(137, "killed by SIGKILL")),
        # Stopped, but nobody had asked for it: what it ended with.
        (End(ended_by="stop", signal=SIGTERM), NOTHING, _failed(143, "killed by SIGTERM")),
        (End(ended_by="stop", code=0), NOTHING, DONE),
        (End(ended_by="stop", code=7), NOTHING, _failed(7, "exit code 7")),
    ],
)
def test_a_stop_cancels_only_what_it_was_asked_to_and_what_had_not_ended(
    end: End, intent: Intent, conclusion: Conclusion
) -> None:
    assert conclude(end, intent) == conclusion


@pytest.mark.parametrize(("said", "reason"), [("nothing to do", "nothing to do"), ("", "skip_if exited 0")])
@pytest.mark.parametrize("intent", [NOTHING, STOPPED, LIMITED])
def test_skipped_with_what_it_said_or_a_text_of_its_own(said: str, reason: str, intent: Intent) -> None:
    expected = Conclusion(status=SKIPPED, exit_code=0, reason=reason)
    assert conclude(End(skipped=said, code=0), intent) == expected
    assert conclude(End(skipped=said), intent) == expected


@pytest.mark.parametrize(("watched", "reason"), [(True, "exit status unknown"), (False, "Scheduler crash recovery")])
def test_dec_008_an_end_that_nobody_knows_is_a_failure_with_its_name(watched: bool, reason: str) -> None:
    assert conclude(End(watched=watched), NOTHING) == _failed(1, reason)
    assert conclude(End(watched=watched), STOPPED) == _failed(1, reason)


@pytest.mark.parametrize(
    ("end", "first"),
    [
        (End(code=2, tail="Traceback\nValueError: no\n"), "exit code 2"),
        (End(signal=SIGKILL, tail="Traceback\nValueError: no\n"), "killed by SIGKILL"),
        (End(ended_by="timeout", tail="Traceback\nValueError: no\n"), "timed out after 2m"),
        (End(ended_by="idle_timeout", tail="Traceback\nValueError: no\n"), "timed out after 30s without output"),
        (End(tail="Traceback\nValueError: no\n"), "exit status unknown"),
    ],
)
def test_the_end_of_stderr_is_kept_under_the_reason(end: End, first: str) -> None:
    conclusion = conclude(end, LIMITED)
    assert conclusion.error == f"{first}\nTraceback\nValueError: no\n"
    assert conclusion.reason == first


ends = st.builds(
    End,
    code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    ended_by=st.sampled_from([None, "stop", "timeout", "idle_timeout"]),
    skipped=st.none() | st.text(max_size=5),
    watched=st.booleans(),
    tail=st.text(max_size=10),
)
limits = st.none() | st.timedeltas(timedelta(milliseconds=1), timedelta(days=3650))
intents = st.builds(
    Intent, stop_requested=st.sampled_from([None, "cancelled by ann"]), timeout=limits, idle_timeout=limits
)


@given(ends, intents)
def test_every_end_has_a_meaning(end: End, intent: Intent) -> None:
    """A failure is never an empty string, only success is silent, and the code tells success from the rest."""
    conclusion = conclude(end, intent)
    assert conclusion.status in TERMINAL - {Status.BLOCKED_BY_DEPENDENCY}
    assert (conclusion.exit_code == 0) is (conclusion.status in (COMPLETED, SKIPPED))
    assert 0 <= conclusion.exit_code <= 255
    assert (conclusion.reason is None) is (conclusion.status is COMPLETED)
    assert conclusion.reason != ""
    if conclusion.status is FAILED:
        assert conclusion.error
        assert conclusion.reason
        assert conclusion.error.startswith(conclusion.reason)
        assert conclusion.error.endswith(end.tail)


@given(ends, intents)
def test_only_exit_code_0_completes_and_only_a_wanted_stop_cancels(end: End, intent: Intent) -> None:
    status = conclude(end, intent).status
    if status is COMPLETED:
        assert end.code == 0
        assert end.ended_by not in ("timeout", "idle_timeout")
    if status is CANCELLED:
        assert end.ended_by == "stop"
        assert intent.stop_requested is not None
    assert (status is SKIPPED) is (end.skipped is not None)


def test_inv_002_these_fields_of_a_run_may_change_and_no_other() -> None:
    assert {"finished_at", "status", "exit_code", "error", "artifacts"} == MUTABLE
    assert amend(status="FAILED", finished_at=1, exit_code=1, error="no") == {
        "status": "FAILED", "finished_at": 1, "exit_code": 1, "error": "no",
    }  # fmt: skip
    for field in set(Run.__struct_fields__) - MUTABLE:
        with pytest.raises(Conflict, match=f"^Cannot modify immutable fields: {field}$"):
            amend(**{field: 1})


def test_inv_002_the_refused_fields_are_named_in_the_order_of_the_record() -> None:
    with pytest.raises(Conflict, match=r"^Cannot modify immutable fields: id, job, worker, started_at, mood$"):
        amend(mood=1, started_at=1, status="FAILED", worker="local/2", id=9, job=9)
