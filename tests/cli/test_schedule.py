"""Output of `rota schedule`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rota.cli.main import main
from rota.schedules.cli import caret, schedule_table

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "message", "expected"),
    [
        ("61 * * * *", 'cron "61 * * * *": minute 61 is out of range 0-59', "^^"),
        ("0 0 * 13 *", 'cron "0 0 * 13 *": month 13 is out of range 1-12', "      ^^"),
        (" 1,2,77  * * * *", 'cron " 1,2,77 …": minute 77 is out of range 0-59', "     ^^"),
        ("0 0 * * x-y", 'cron "0 0 * * x-y": day-of-week x-y is not understood; write', "        ^^^"),
        ("1, * * * *", 'cron "1, * * * *": minute (empty list item) is not understood', "^^"),
        ("* * *", 'cron "* * *": 3 fields; expected five: minute hour day-of-month month', None),
        ("0 0 30 2 *", 'cron "0 0 30 2 *" never fires', None),
    ],
)
def test_caret_marks_the_wrong_field(cron: str, message: str, expected: str | None) -> None:
    assert caret(cron, message) == expected


def schedule_record(**fields: Any) -> dict[str, Any]:
    return {
        "id": "schedule-1",
        "name": "n",
        "cron": "0 3 * * *",
        "tz": "UTC",
        "enabled": True,
        "next_at": "2026-01-01T03:00:00Z",
        "last_fire": None,
        "unreadable": None,
        **fields,
    }


def fire_record(**fields: Any) -> dict[str, Any]:
    return {
        "at": "2025-12-31T23:00:00Z",
        "state": "fired",
        "job": "job-7",
        "status": "FAILED",
        "reason": None,
        "count": 1,
        **fields,
    }


@pytest.mark.parametrize(
    ("schedule", "following", "last"),
    [
        (schedule_record(), "in 3h00m", ""),
        (schedule_record(last_fire=fire_record()), "in 3h00m", "1h00m ago, job-7 FAILED"),
        (schedule_record(last_fire=fire_record(status=None)), "in 3h00m", "1h00m ago, job-7 removed"),
        (
            schedule_record(
                last_fire=fire_record(state="missed", job=None, count=3, reason="why"), next_at=None, enabled=False
            ),
            "",
            "1h00m ago, missed (3 times): why",
        ),
        (schedule_record(next_at="2025-12-31T23:59:00Z"), "due", ""),
    ],
)
def test_schedule_table_shows_next_and_last_fire(schedule: dict[str, Any], following: str, last: str) -> None:
    _, line = schedule_table([schedule], now=NOW, width=None)
    cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
    expected = [following, last, "yes" if schedule["enabled"] else "no"]
    assert cells == ["schedule-1", "n", "0 3 * * *", "UTC", *(cell for cell in expected if cell)]


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["add", "n", "--cron", "@daily"], "there is no command to schedule"),
        (["add", "n", "--", "true"], "--cron; see `rota schedule add --help`"),
        (["add", "n", "--cron", "@daily", "--bogus"], "unknown option --bogus; see `rota schedule add --help`"),
        (["next"], "NAME; see `rota schedule next --help`"),
        (["change", "n"], "no change given"),
        (["enable", "n", "--", "true"], "takes no command"),
        (["trigger", "n", "--param", "x"], "write it as NAME=TEXT"),
    ],
)
def test_usage_error_exits_with_2(words: list[str], output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", *words]) == 2
    assert output in capsys.readouterr().err


def test_help_names_the_action(capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("next", "add", "change", "show"):
        assert main(["schedule", action, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: rota schedule {action} ")
