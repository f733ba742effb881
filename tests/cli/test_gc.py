"""Output of `rota gc`."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rota.cli.main import main
from rota.client.requests import Request
from rota.client.session import SchedulerSession
from rota.errors import Conflict, ServiceUnavailable
from rota.retention import cli


def gc_result(*, dry_run: bool = False, kept: dict[str, int] | None = None, **removed: int) -> dict[str, Any]:
    counts = {"jobs": 0, "runs": 0, "events": 0, "bytes": 0, **removed}
    rest = {"kept_counts": kept or {}, "abandoned": 0, "kept": [], "remaining": [], "jobs": []}
    return {"dry_run": dry_run, "removed": counts, **rest}


KEPT = "; kept 1 that others refer to, 2 with a worktree, 3 whose files cannot be removed"


@pytest.mark.parametrize(
    ("result", "output"),
    [
        (
            gc_result(jobs=120, runs=118, events=1204, bytes=3_400_000, kept={"referenced": 4}),
            "removed 120 jobs (118 runs, 1,204 events, 3.4 MB of files); kept 4 that others refer to",
        ),
        (
            gc_result(dry_run=True, jobs=1, runs=1, events=1, bytes=1),
            "would remove 1 job (1 run, 1 event, 1 byte of files)",
        ),
        (
            gc_result(kept={"referenced": 1, "worktree": 2, "files": 3}),
            "removed 0 jobs (0 runs, 0 events, 0 bytes of files)" + KEPT,
        ),
        (
            {**gc_result(kept={"referenced": 1, "worktree": 2, "files": 3}), "abandoned": 1_284},
            "removed 0 jobs (0 runs, 0 events, 0 bytes of files); abandoned 1,284 undelivered webhook messages" + KEPT,
        ),
        (
            {**gc_result(dry_run=True), "abandoned": 1},
            "would remove 0 jobs (0 runs, 0 events, 0 bytes of files); would abandon 1 undelivered webhook message",
        ),
    ],
)
def test_summary_of_counts(result: dict[str, Any], output: str) -> None:
    assert cli.format_summary(result) == output


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB")],
)
def test_size_format(count: int, text: str) -> None:
    assert cli.format_size(count) == text


def test_progress_is_printed_while_waiting(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    is_reported = threading.Event()
    progress: list[Any] = [
        ServiceUnavailable("not now"),
        {"in_progress": None},
        {"in_progress": {"jobs": 12_400, "bytes": 5}},
    ]

    def collect() -> dict[str, Any]:
        assert is_reported.wait(10)
        return gc_result(jobs=3)

    def next_progress() -> dict[str, Any]:
        status = progress.pop(0)
        if not progress:
            is_reported.set()
            progress.append(status)
        if isinstance(status, Exception):
            raise status
        return dict(status)

    monkeypatch.setattr(cli, "_PROGRESS_INTERVAL", 0.001)
    monkeypatch.setattr(
        SchedulerSession, "request_json", lambda _, message: collect() if message.method == "POST" else next_progress()
    )
    assert main(["gc"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert set(lines[:-1]) == {"rota: removed 12,400 jobs so far, 5 bytes of files"}
    assert lines[-1] == "rota: removed 3 jobs (0 runs, 0 events, 0 bytes of files)"


def test_refusal_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_session: SchedulerSession, _request: Request) -> dict[str, Any]:
        raise Conflict("a retention run is already in progress")

    monkeypatch.setattr(SchedulerSession, "request_json", refuse)
    assert main(["gc"]) == 4
    assert capsys.readouterr().err == "rota: a retention run is already in progress\n"


def test_kept_jobs_are_listed_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [{"job": f"job-{n}", "reason": "files", "detail": "its files"} for n in range(23)]
    result = {**gc_result(), "kept": kept, "remaining": ["jobs/.removed/1: busy"]}
    monkeypatch.setattr(SchedulerSession, "request_json", lambda _session, _request: result)
    assert main(["gc"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "rota: kept job-0: its files"
    assert lines[-2:] == ["rota: and 3 more; --json lists them", "rota: not removed: jobs/.removed/1: busy"]
