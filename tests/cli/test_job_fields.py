"""Text of single fields of a job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from rota.cli.rendering import format_cell, format_line, label, mark
from rota.columns import FIELDS, known_fields
from rota.kernel.status import Status

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
AT = "2026-03-01T11:00:00.25Z"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        (
            "after",
            [{"job": "job-3", "policy": "success"}, {"job": "job-4", "policy": "finished"}],
            "job-3, job-4:finished",
        ),
        ("locks", [{"key": "repo", "mode": "exclusive"}, {"key": "db", "mode": "shared"}], "repo, db:shared"),
        ("needs", ["plan_doc:foo (draft/foo)", "file:/x"], "plan_doc:foo (draft/foo), file:/x"),
        ("produces", ["custom:report:weekly"], "custom:report:weekly"),
        ("pools", {"global": 1, "resource/gpu": 2}, "global=1, resource/gpu=2"),
        ("pinned_head", {"branch": "main", "oid": "1a2b3c4d5e6f7890"}, "main@1a2b3c4"),
        ("wait", {"kind": "locks", "detail": "waiting on locks", "topics": ["lock:repo"]}, "waiting on locks"),
        ("waited_on", ["dependencies", "locks"], "dependencies, locks"),
        ("command", ["sh", "-c", "a b"], "sh -c 'a b'"),
        ("params", {"n": 3, "t": "é"}, '{"n": 3, "t": "é"}'),
        ("created_at", AT, "2026-03-01 11:00:00"),
        ("not_before", AT, "2026-03-01 11:00:00"),
        ("exit_code", 0, "0"),
        ("permanently_failed", True, "yes"),
        ("permanently_failed", False, "no"),
        ("run", {"id": "run-3", "status": "FAILED"}, "run-3 FAILED"),
        ("run", {"id": "run-3", "status": None}, "run-3"),
        ("needs", [], ""),
        ("params", {}, ""),
        ("pinned_head", None, ""),
    ],
)
def test_cell_text_of_a_field(field: str, value: Any, text: str) -> None:
    assert format_cell({"status": "QUEUED", field: value}, field, now=NOW, zone=UTC) == text


RUN = {"exit_code": 3, "log_paths": {"stdout": "/o", "stderr": "/e"}, "started_at": AT, "superseded": False}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("run.exit_code", "3"),
        ("run.log_paths", "stdout=/o, stderr=/e"),
        ("run.started_at", "2026-03-01 11:00:00"),
        ("run.superseded", "no"),
        ("wait.kind", "locks"),
        ("params.a.b", "1"),
        ("params.c", ""),
        ("pinned_head.oid", ""),
    ],
)
def test_cell_text_of_a_nested_field(field: str, text: str) -> None:
    job = {"run": RUN, "wait": {"kind": "locks"}, "params": {"a.b": 1}, "pinned_head": None}
    assert format_cell(job, field, now=NOW, zone=UTC) == text


def test_times_use_the_zone_with_daylight_saving() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    summer = {"created_at": "2026-07-01T12:00:00Z"}
    assert format_cell(summer, "created_at", now=NOW, zone=berlin) == "2026-07-01 14:00:00"
    assert (
        format_line({"created_at": AT}, "created_at", now=NOW, zone=berlin) == "2026-03-01 12:00:00 +0100 (59m59s ago)"
    )
    assert format_line(summer, "created_at", now=NOW, zone=berlin) == "2026-07-01 14:00:00 +0200 (in 122d00h)"


def test_line_shows_kind_and_topics_of_a_wait() -> None:
    job = {"wait": {"kind": "capacity", "detail": "waiting on pool global (1/1)", "topics": ["pool:global"]}}
    assert format_line(job, "wait", now=NOW) == "capacity: waiting on pool global (1/1) (on pool:global)"


def test_fields_are_printable() -> None:
    evil = "\033[2J\r\n\u202e"
    job: dict[str, Any] = dict.fromkeys(FIELDS, evil) | {
        "status": "FAILED",
        "command": [evil],
        "after": [{"job": evil, "policy": evil}],
        "needs": [evil],
        "locks": [{"key": evil, "mode": evil}],
        "pools": {evil: 1},
        "params": {evil: evil},
        "run": {"error": evil},
        "pinned_head": {"branch": evil, "oid": evil},
        "wait": {"kind": evil, "detail": evil, "topics": [evil]},
    }
    for field in known_fields():
        if not field.endswith("_at") and field not in ("not_before", "time"):
            assert format_line(job, field, now=NOW).isprintable(), field
    assert label(job).isprintable()


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        ("RUNNING", None, "*"),
        ("QUEUED", None, "+"),
        ("QUEUED", "capacity", "+"),
        ("QUEUED", "delay", "-"),
        ("QUEUED", "paused", "-"),
        ("WAITING_ON_DEPS", "dependencies", "-"),
        ("WAITING_ON_DEPS", None, "-"),
        ("WAITING_ON_LOCKS", "locks", "-"),
        ("COMPLETED", None, "."),
        ("BLOCKED_BY_DEPENDENCY", "dependencies", "."),
    ],
)
def test_mark_of_each_status(status: str, kind: str | None, expected: str) -> None:
    assert Status(status)
    assert mark({"status": status, "wait": kind and {"kind": kind, "detail": "…", "topics": []}}) == expected
