"""Rendered text for fixed data and widths."""

from __future__ import annotations

from datetime import UTC, datetime
from textwrap import dedent
from typing import Any

import pytest

from rota.cli import table
from rota.cli.rendering import (
    JobTable,
    breaker_text,
    format_elapsed,
    job_block,
    job_table,
    pool_table,
    recovery_lines,
    status_block,
)
from rota.webhooks.cli import delivery_lines

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def job(number: int, status: str, **fields: Any) -> dict[str, Any]:
    plain = {"name": None, "command": ["true"], "priority": 0, "wait": None, "reason": None, "exit_code": None}
    times = {"created_at": "2026-03-01T11:00:00Z", "queued_at": None, "started_at": None, "finished_at": None}
    return {"id": f"job-{number}", "status": status, **plain, **times, **fields}


JOBS = [
    job(3, "RUNNING", name="build", started_at="2026-03-01T11:57:55Z"),
    job(
        12,
        "WAITING_ON_DEPS",
        name="merge",
        wait={"kind": "dependencies", "detail": "waiting on job job-3", "topics": []},
    ),
    job(
        104,
        "QUEUED",
        command=["sh", "-c", "echo a | tr a b"],
        priority=-5,
        queued_at="2026-03-01T11:59:57.5Z",
        wait={"kind": "capacity", "detail": "waiting on pool global (1/1)", "topics": ["pool:global"]},
    ),
    job(
        1,
        "FAILED",
        name="test",
        reason="exit code 2",
        exit_code=2,
        started_at="2026-03-01T11:00:00Z",
        finished_at="2026-03-01T11:00:04Z",
    ),
    job(2, "CANCELLED", name="evil\033[2J\nname", reason="cancelled"),
]


def lines(text: str) -> list[str]:
    return dedent(text).strip("\n").split("\n")


def test_table_without_terminal_is_not_cut() -> None:
    assert job_table(JOBS, now=NOW, width=None) == lines(
        r"""
        ID       STATUS           NAME/COMMAND             PRIO  WAIT/REASON                   TIME
        job-3    RUNNING          build                    0                                   2m05s
        job-12   WAITING_ON_DEPS  merge                    0     waiting on job job-3          1h00m
        job-104  QUEUED           sh -c 'echo a | tr a b'  -5    waiting on pool global (1/1)  2s
        job-1    FAILED           test                     0     exit code 2                   4.0s
        job-2    CANCELLED        evil\x1b[2J\nname        0     cancelled
        """
    )


def test_table_fits_its_terminal() -> None:
    assert job_table(JOBS, now=NOW, width=72) == lines(
        r"""
        ID       STATUS           NAME/COMMAND     PRIO  WAIT/REASON       TIME
        job-3    RUNNING          build            0                       2m05s
        job-12   WAITING_ON_DEPS  merge            0     waiting on job …  1h00m
        job-104  QUEUED           sh -c 'echo a …  -5    waiting on pool…  2s
        job-1    FAILED           test             0     exit code 2       4.0s
        job-2    CANCELLED        evil\x1b[2J\nn…  0     cancelled
        """
    )


def test_columns_do_not_shrink_between_parts_of_a_table() -> None:
    table = JobTable(("id", "title"), now=NOW, width=None)
    assert table.lines([job(1, "QUEUED", name="a")]) == ["ID     NAME/COMMAND", "job-1  a"]
    assert table.lines([job(1000, "QUEUED", name="b"), job(2, "QUEUED", name="c")]) == ["job-1000  b", "job-2     c"]
    assert table.lines([job(3, "QUEUED", name="d")]) == ["job-3     d"]
    assert table.lines([]) == []


def test_table_has_a_minimum_width() -> None:
    narrow = job_table(JOBS, now=NOW, width=10)
    assert narrow == job_table(JOBS, now=NOW, width=50) != job_table(JOBS, now=NOW, width=51)
    assert narrow[2] == "job-12   WAITING…  merge     0     waiting…  1h00m"


def test_statuses_are_cut_before_texts_are_unreadable() -> None:
    blocked = job(9, "BLOCKED_BY_DEPENDENCY", name="a name of many words", reason="dependency failed for job job-1")
    assert job_table([JOBS[1], blocked], now=NOW, width=66) == lines(
        """
        ID      STATUS           NAME/COMMAND   PRIO  WAIT/REASON    TIME
        job-12  WAITING_ON_DEPS  merge          0     waiting on j…  1h00m
        job-9   BLOCKED_BY_DEP…  a name of ma…  0     dependency f…
        """
    )


def test_table_shows_selected_fields() -> None:
    fields = ("id", "mark", "after", "locks", "created_at", "run.exit_code")
    jobs = [{**JOBS[0], "after": [{"job": "job-1", "policy": "success"}], "run": {"exit_code": 0}}, JOBS[1]]
    assert job_table(jobs, fields, now=NOW, width=None, zone=UTC) == lines(
        """
        ID         AFTER  LOCKS  CREATED_AT           RUN.EXIT_CODE
        job-3   *  job-1         2026-03-01 11:00:00  0
        job-12  -                2026-03-01 11:00:00
        """
    )


def test_long_cell_is_whole_in_a_pipe_and_widens_no_other_line() -> None:
    prompt = "word " * 1000
    shown = job_table([job(1, "QUEUED", name=prompt), JOBS[0]], ("name", "id"), now=NOW, width=None)
    assert shown[1] == f"{prompt}  job-1"
    assert shown[2] == f"{'build':<100}  job-3"
    assert job_table([job(1, "QUEUED", name=prompt)], ("name", "id"), now=NOW, width=20)[1] == "word word wo…  job-1"


def test_ids_numbers_and_times_are_not_cut() -> None:
    fields = ("id", "created_at", "priority", "status")
    shown = job_table([job(123456789, "QUEUED", priority=-1_000_000)], fields, now=NOW, width=10, zone=UTC)
    assert shown[1] == "job-123456789  2026-03-01 11:00:00  -1000000  QUEUED"


def test_colors_do_not_move_columns() -> None:
    plain = job_table(JOBS, now=NOW, width=72)
    colored = job_table(JOBS, now=NOW, width=72, color=True)
    assert colored[1].replace("\033[36m", "").replace("\033[0m", "") == plain[1]
    assert "\033[36mRUNNING" in colored[1]
    assert colored[0] == plain[0]


def test_block_omits_empty_fields() -> None:
    full = {
        **JOBS[0],
        "type": "story",
        "params": {"n": 3, "t": "é"},
        "after": [{"job": "job-1", "policy": "success"}, {"job": "job-2", "policy": "finished"}],
        "needs": [],
        "locks": [{"key": "repo", "mode": "shared"}],
        "pools": {"global": 1, "resource/gpu": 2},
        "waited_on": ["dependencies", "locks"],
        "attempt": 1,
        "permanently_failed": False,
        "dispatch_failures": 0,
        "cwd": "/work",
        "wait": {"kind": "locks", "detail": "waiting on locks", "topics": ["lock:repo"]},
        "run": {"id": "run-3", "status": None, "exit_code": 0, "log_paths": {"stdout": "/h/out"}, "superseded": False},
        "from_a_newer_server": {"a": 1},
    }
    assert job_block(full, now=NOW, zone=UTC) == lines(
        """
        id                 job-3
        name               build
        type               story
        status             RUNNING
        wait               locks: waiting on locks (on lock:repo)
        waited_on          dependencies, locks
        command            true
        params             {"n": 3, "t": "é"}
        priority           0
        created_at         2026-03-01 11:00:00 +0000 (1h00m ago)
        started_at         2026-03-01 11:57:55 +0000 (2m05s ago)
        after              job-1, job-2:finished
        locks              repo:shared
        pools              global=1, resource/gpu=2
        attempt            1
        cwd                /work
        run
          id                 run-3
          exit_code          0
          log_paths          stdout=/h/out
        from_a_newer_server {"a": 1}
        """
    )


def test_webhook_row_is_aligned_with_the_other_rows() -> None:
    delivery: dict[str, Any] = {
        "id": "delivery-1",
        "state": "PENDING",
        "attempts": [],
        "type": "job.failed",
        "url": "http://x",
        "reason": None,
    }
    (row,) = delivery_lines([delivery])
    (name,) = job_block(job(1, "FAILED", name="merge"), ["name"], now=NOW)
    assert row.index("delivery-1") == name.index("merge")


def test_block_of_selected_fields_shows_empty_ones() -> None:
    failed = job(1, "FAILED", run={"error": "exit code 2\nlast \033[1mwords", "status": "FAILED"}, needs=[])
    fields = ("mark", "needs", "run.error", "run.worker", "run", "params.plan")
    assert job_block(failed, fields, now=NOW) == lines(
        r"""
        mark               . ended
        needs              -
        run.error          exit code 2
                           last \x1b[1mwords
        run.worker         -
        run
          error              exit code 2
                             last \x1b[1mwords
          status             FAILED
        params.plan        -
        """
    )


STATUS = {
    "mode": "deferred",
    "paused": True,
    "paused_by": "ada",
    "paused_at": "2026-03-01T11:00:00Z",
    "pauses": [
        {"scope": "flow/x", "by": "bob", "at": "2026-03-01T11:30:00Z"},
        {"scope": "global", "by": "ada", "at": "2026-03-01T11:00:00Z"},
    ],
    "hold_reason": "maintenance until noon",
    "depth": {"total": 5, "soft": 8, "hard": 16, "by_flow": {"x": 2}},
    "queued": 5,
    "ready": 2,
    "running": 1,
    "waiting": {"locks": 1, "dependencies": 2, "delay": 0},
    "idle_reason": None,
    "finished": 9,
    "pools": {"global": {"size": 1, "used": 1}, "flow/x": {"size": -1, "used": 0}},
    "last_dispatch_at": "2026-03-01T11:59:00Z",
    "started_at": "2026-02-27T08:00:00Z",
    "home": "/h",
    "socket": "/h/rota.sock",
    "pid": 7,
    "supervisor_pid": 8,
    "version": "0.1.0",
    "errors": ["TCP is off: port 7682 is taken"],
    "recovery": {"running_jobs_adopted": 2, "requeued": 0},
}


def test_status_block_shows_all_parts() -> None:
    assert status_block(STATUS, now=NOW) == lines(
        """
        mode           deferred
        paused         flow/x by bob since 2026-03-01T11:30:00Z
        paused         by ada since 2026-03-01T11:00:00Z
        held           maintenance until noon
        jobs           1 running, 5 queued (2 ready), 9 finished
        waiting        locks 1, dependencies 2
        depth          5 (soft 8, hard 16, flow x 2)
        last dispatch  2026-03-01T11:59:00Z (1m00s ago)
        up since       2026-02-27T08:00:00Z (2d04h ago)
        home           /h
        socket         /h/rota.sock
        pid            7 (supervisor 8)
        version        0.1.0
        pool           global 1/1
        pool           flow/x 0/no limit
        error          TCP is off: port 7682 is taken
        recovered      running jobs adopted: 2
        """
    )


def test_status_block_of_a_minimal_status() -> None:
    assert status_block({"mode": "deferred"}, now=NOW) == [
        "mode           deferred",
        "jobs           0 running, 0 queued (0 ready)",
    ]


def test_pool_table_shows_sizes() -> None:
    assert pool_table(STATUS["pools"], {"flow": 2}, width=80) == lines(  # type: ignore[arg-type]
        """
        POOL    USED  SIZE
        global  1     1
        flow/x  0     no limit
        flow/*        2 each
        """
    )


def test_recovery_omits_zero_counts() -> None:
    assert recovery_lines({"requeued": 0, "retries_created": 3}) == ["retries created: 3"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (0.9, "0s"), (59, "59s"), (60, "1m00s"), (3599, "59m59s"), (3661, "1h01m"), (90_000, "1d01h")],
)
def test_elapsed_time_format(seconds: float, text: str) -> None:
    assert format_elapsed(seconds) == text


def test_wide_characters_keep_columns() -> None:
    assert table.fit("日本語", 4) == "日… "
    assert table.display_width("日本e\u0301") == 5
    assert table.display_width("\u2713\ufe0f") == 1, "a variation selector has no width"
    assert table.render([["A", "B"], ["日本", "x"]]) == ["A     B", "日本  x"]


@pytest.mark.parametrize(
    ("state", "fields", "text"),
    [
        ("open", {"probe_at": "2026-03-01T12:00:00Z"}, "type/x open until 2026-03-01T12:00:00Z"),
        ("half-open", {"probe_job": "job-9"}, "type/x half-open, job-9 is the probe"),
        ("half-open", {"probe_job": None}, "type/x half-open, the next job is the probe"),
    ],
)
def test_breaker_in_the_status(state: str, fields: dict[str, Any], text: str) -> None:
    breaker = {"key": "type/x", "state": state, **fields}
    assert breaker_text(breaker) == text
    assert f"breaker        {text}" in status_block({"mode": "direct", "breakers": [breaker]}, now=NOW)
