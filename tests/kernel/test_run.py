"""Results of runs: status, exit code and messages for every way a child can end."""

from __future__ import annotations

from datetime import timedelta
from signal import SIGHUP, SIGKILL, SIGSEGV, SIGTERM

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import Conflict
from rota.kernel.run import (
    CRASH_RECOVERY,
    MUTABLE_FIELDS,
    STOPPED_BY_SHUTDOWN,
    UNVERIFIED,
    Run,
    RunEnd,
    RunResult,
    StopIntent,
    amend,
    conclude,
)
from rota.kernel.status import TERMINAL, Status

COMPLETED, FAILED, SKIPPED, CANCELLED = Status.COMPLETED, Status.FAILED, Status.SKIPPED, Status.CANCELLED
NO_INTENT = StopIntent()
STOPPED = StopIntent(stop_requested="cancelled by ann")
LIMITED = StopIntent(timeout=timedelta(minutes=2), idle_timeout=timedelta(seconds=30))


def _failed(exit_code: int | None, reason: str) -> RunResult:
    return RunResult(status=FAILED, exit_code=exit_code, reason=reason, error=reason)


SUCCESS = RunResult(status=COMPLETED, exit_code=0, reason=None)
CANCELLED_RESULT = RunResult(status=CANCELLED, exit_code=143, reason="cancelled by ann", error="cancelled by ann")


@pytest.mark.parametrize(
    ("end", "intent", "result"),
    [
        (RunEnd(code=0), NO_INTENT, SUCCESS),
        (RunEnd(code=0, stderr_tail="a warning"), NO_INTENT, SUCCESS),
        (RunEnd(code=1), NO_INTENT, _failed(1, "exit code 1")),
        (RunEnd(code=255), NO_INTENT, _failed(255, "exit code 255")),
        (RunEnd(signal=SIGKILL), NO_INTENT, _failed(137, "killed by SIGKILL")),
        (RunEnd(signal=SIGTERM), NO_INTENT, _failed(143, "killed by SIGTERM")),
        (RunEnd(signal=SIGSEGV), NO_INTENT, _failed(139, "killed by SIGSEGV")),
        (RunEnd(signal=SIGHUP), NO_INTENT, _failed(129, "killed by SIGHUP")),
        (RunEnd(signal=50), NO_INTENT, _failed(178, "killed by signal 50")),
    ],
)
def test_result_of_each_exit(end: RunEnd, intent: StopIntent, result: RunResult) -> None:
    assert conclude(end, intent) == result


@pytest.mark.parametrize("exit_fields", [{"signal": SIGTERM}, {"signal": SIGKILL}, {"code": 0}, {"code": 3}, {}])
def test_timeout_exits_124_whatever_the_child_did(exit_fields: dict[str, int]) -> None:
    timeout, idle = RunEnd(ended_by="timeout", **exit_fields), RunEnd(ended_by="idle_timeout", **exit_fields)  # type: ignore[arg-type]
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
def test_timeout_reason_formats_the_duration(timeout: timedelta, text: str) -> None:
    assert conclude(RunEnd(ended_by="timeout"), StopIntent(timeout=timeout)) == _failed(124, text)


@pytest.mark.parametrize("ended_by", ["timeout", "idle_timeout"])
def test_timeout_without_recorded_limit_has_a_generic_reason(ended_by: str) -> None:
    assert conclude(RunEnd(ended_by=ended_by), NO_INTENT) == _failed(124, "timed out after its limit")


def test_timeout_before_cancel_takes_effect_stands() -> None:
    intent = StopIntent(stop_requested="cancelled by ann", timeout=timedelta(minutes=2))
    assert conclude(RunEnd(ended_by="timeout", signal=SIGTERM), intent) == _failed(124, "timed out after 2m")


@pytest.mark.parametrize(
    ("end", "intent", "result"),
    [
        (RunEnd(ended_by="stop", signal=SIGTERM), STOPPED, CANCELLED_RESULT),
        (RunEnd(ended_by="stop", signal=SIGKILL), STOPPED, CANCELLED_RESULT),
        (RunEnd(ended_by="stop", code=0), STOPPED, CANCELLED_RESULT),
        (RunEnd(ended_by="stop", code=7), STOPPED, CANCELLED_RESULT),
        (RunEnd(ended_by="stop"), STOPPED, CANCELLED_RESULT),
        # The child had ended before the requested stop: its result stands.
        (RunEnd(code=0), STOPPED, SUCCESS),
        (RunEnd(code=7), STOPPED, _failed(7, "exit code 7")),
        (RunEnd(signal=SIGKILL), STOPPED, _failed(137, "killed by SIGKILL")),
        # The child was stopped without a stored request: its result stands.
        (RunEnd(ended_by="stop", signal=SIGTERM), NO_INTENT, _failed(143, "killed by SIGTERM")),
        (RunEnd(ended_by="stop", code=0), NO_INTENT, SUCCESS),
        (RunEnd(ended_by="stop", code=7), NO_INTENT, _failed(7, "exit code 7")),
    ],
)
def test_only_requested_stop_of_running_child_cancels(end: RunEnd, intent: StopIntent, result: RunResult) -> None:
    assert conclude(end, intent) == result


@pytest.mark.parametrize(("skip_reason", "reason"), [("nothing to do", "nothing to do"), ("", "skip_if exited 0")])
@pytest.mark.parametrize("intent", [NO_INTENT, STOPPED, LIMITED])
def test_skip_reason_has_a_default_text(skip_reason: str, reason: str, intent: StopIntent) -> None:
    expected = RunResult(status=SKIPPED, exit_code=0, reason=reason)
    assert conclude(RunEnd(skip_reason=skip_reason, code=0), intent) == expected
    assert conclude(RunEnd(skip_reason=skip_reason), intent) == expected


@pytest.mark.parametrize(
    ("was_watched", "reason"), [(True, "exit status unknown"), (False, "Scheduler crash recovery")]
)
def test_dec_008_unknown_exit_is_a_named_failure(was_watched: bool, reason: str) -> None:
    assert conclude(RunEnd(was_watched=was_watched), NO_INTENT) == _failed(None, reason)
    assert conclude(RunEnd(was_watched=was_watched), STOPPED) == _failed(None, reason)


@pytest.mark.parametrize(
    ("end", "first"),
    [
        (RunEnd(code=2, stderr_tail="Traceback\nValueError: no\n"), "exit code 2"),
        (RunEnd(signal=SIGKILL, stderr_tail="Traceback\nValueError: no\n"), "killed by SIGKILL"),
        (RunEnd(ended_by="timeout", stderr_tail="Traceback\nValueError: no\n"), "timed out after 2m"),
        (
            RunEnd(ended_by="idle_timeout", stderr_tail="Traceback\nValueError: no\n"),
            "timed out after 30s without output",
        ),
        (RunEnd(stderr_tail="Traceback\nValueError: no\n"), "exit status unknown"),
    ],
)
def test_error_has_reason_then_stderr_tail(end: RunEnd, first: str) -> None:
    result = conclude(end, LIMITED)
    assert result.error == f"{first}\nTraceback\nValueError: no\n"
    assert result.reason == first


ends = st.builds(
    RunEnd,
    code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    ended_by=st.sampled_from([None, "stop", "timeout", "idle_timeout"]),
    skip_reason=st.none() | st.text(max_size=5),
    was_watched=st.booleans(),
    stderr_tail=st.text(max_size=10),
)
limits = st.none() | st.timedeltas(timedelta(milliseconds=1), timedelta(days=3650))
intents = st.builds(
    StopIntent, stop_requested=st.sampled_from([None, "cancelled by ann"]), timeout=limits, idle_timeout=limits
)


@given(ends, intents)
def test_every_end_has_a_consistent_result(end: RunEnd, intent: StopIntent) -> None:
    """A failure always has an error, only success has no reason, and the exit code separates success from failure."""
    result = conclude(end, intent)
    assert result.status in TERMINAL - {Status.BLOCKED_BY_DEPENDENCY}
    assert (result.exit_code == 0) is (result.status in (COMPLETED, SKIPPED))
    assert result.exit_code is None or 0 <= result.exit_code <= 255
    is_unknown = result.reason in ("exit status unknown", "Scheduler crash recovery")
    assert (result.exit_code is None) is is_unknown or end.skip_reason is not None
    assert (result.reason is None) is (result.status is COMPLETED)
    assert result.reason != ""
    if result.status is FAILED:
        assert result.error
        assert result.reason
        assert result.error.startswith(result.reason)
        assert result.error.endswith(end.stderr_tail)


@given(ends, intents)
def test_only_exit_code_0_completes_and_only_requested_stop_cancels(end: RunEnd, intent: StopIntent) -> None:
    status = conclude(end, intent).status
    if status is COMPLETED:
        assert end.code == 0
        assert end.ended_by not in ("timeout", "idle_timeout")
    if status is CANCELLED:
        assert end.ended_by == "stop"
        assert intent.stop_requested is not None
    assert (status is SKIPPED) is (end.skip_reason is not None)


def test_inv_002_only_mutable_run_fields_can_change() -> None:
    assert {"finished_at", "status", "exit_code", "error", "artifacts"} == MUTABLE_FIELDS
    assert amend(status="FAILED", finished_at=1, exit_code=1, error="no") == {
        "status": "FAILED",
        "finished_at": 1,
        "exit_code": 1,
        "error": "no",
    }
    for field in set(Run.__struct_fields__) - MUTABLE_FIELDS:
        with pytest.raises(Conflict, match=f"^Cannot modify immutable fields: {field}$"):
            amend(**{field: 1})


def test_inv_002_refused_fields_are_named_in_record_order() -> None:
    with pytest.raises(Conflict, match=r"^Cannot modify immutable fields: id, job, worker, started_at, mood$"):
        amend(mood=1, started_at=1, status="FAILED", worker="local/2", id=9, job=9)


@pytest.mark.parametrize(
    ("end", "intent", "reason"),
    [
        (RunEnd(ended_by="stop"), StopIntent(stop_requested="cancelled by ann"), f"cancelled by ann; {UNVERIFIED}"),
        (RunEnd(ended_by="timeout"), LIMITED, f"timed out after 2m; {UNVERIFIED}"),
        (RunEnd(was_watched=False), NO_INTENT, CRASH_RECOVERY),
        (RunEnd(ended_by="stop"), StopIntent(stop_requested=STOPPED_BY_SHUTDOWN), STOPPED_BY_SHUTDOWN),
    ],
)
def test_unverified_process_tree_is_noted_in_the_error(end: RunEnd, intent: StopIntent, reason: str) -> None:
    result = conclude(msgspec.structs.replace(end, is_verified=False), intent)
    assert result.reason == reason
    assert result.error is not None
    assert UNVERIFIED in result.error
