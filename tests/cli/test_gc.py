"""What `rota gc` says."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rota.cli import gc
from rota.cli.main import main
from rota.client.ask import Ask
from rota.client.session import Session
from rota.errors import Conflict, Unavailable


def answer(*, dry_run: bool = False, kept: dict[str, int] | None = None, **removed: int) -> dict[str, Any]:
    counts = {"jobs": 0, "runs": 0, "events": 0, "bytes": 0, **removed}
    rest = {"kept": kept or {}, "given_up": 0, "stays": [], "left": [], "jobs": []}
    return {"dry_run": dry_run, "removed": counts, **rest}


KEPT = "; kept 1 that others refer to, 2 with a worktree, 3 whose files cannot be removed"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            answer(jobs=120, runs=118, events=1204, bytes=3_400_000, kept={"referenced": 4}),
            "removed 120 jobs (118 runs, 1,204 events, 3.4 MB of files); kept 4 that others refer to",
        ),
        (
            answer(dry_run=True, jobs=1, runs=1, events=1, bytes=1),
            "would remove 1 job (1 run, 1 event, 1 byte of files)",
        ),
        (
            answer(kept={"referenced": 1, "worktree": 2, "files": 3}),
            "removed 0 jobs (0 runs, 0 events, 0 bytes of files)" + KEPT,
        ),
        (
            {**answer(kept={"referenced": 1, "worktree": 2, "files": 3}), "given_up": 1_284},
            "removed 0 jobs (0 runs, 0 events, 0 bytes of files); gave up 1,284 messages that nobody took" + KEPT,
        ),
        (
            {**answer(dry_run=True), "given_up": 1},
            "would remove 0 jobs (0 runs, 0 events, 0 bytes of files); would give up 1 message that nobody took",
        ),
    ],
)
def test_the_counts_in_a_line(given: dict[str, Any], said: str) -> None:
    assert gc.summary(given) == said


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB")],
)
def test_sizes(count: int, text: str) -> None:
    assert gc.size(count) == text


def test_who_waits_is_told_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = threading.Event()
    progress: list[Any] = [Unavailable("not now"), {"under_way": None}, {"under_way": {"jobs": 12_400, "bytes": 5}}]

    def collected() -> dict[str, Any]:
        assert asked.wait(10)
        return answer(jobs=3)

    def how_far() -> dict[str, Any]:
        said = progress.pop(0)
        if not progress:
            asked.set()
            progress.append(said)
        if isinstance(said, Exception):
            raise said
        return dict(said)

    monkeypatch.setattr(gc, "_QUIET", 0.001)
    monkeypatch.setattr(Session, "ask", lambda _, ask: collected() if ask.method == "POST" else how_far())
    assert main(["gc"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert set(lines[:-1]) == {"rota: removed 12,400 jobs so far, 5 bytes of files"}
    assert lines[-1] == "rota: removed 3 jobs (0 runs, 0 events, 0 bytes of files)"


def test_a_refusal_is_the_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(_session: Session, _ask: Ask) -> dict[str, Any]:
        raise Conflict("a collection is under way already")

    monkeypatch.setattr(Session, "ask", refused)
    assert main(["gc"]) == 4
    assert capsys.readouterr().err == "rota: a collection is under way already\n"


def test_what_stays_and_what_is_left_is_named_up_to_a_point(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stays = [{"job": f"job-{n}", "why": "files", "detail": "its files"} for n in range(23)]
    given = {**answer(), "stays": stays, "left": ["jobs/.removed/1: busy"]}
    monkeypatch.setattr(Session, "ask", lambda _session, _ask: given)
    assert main(["gc"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "rota: kept job-0: its files"
    assert lines[-2:] == ["rota: and 3 more; --json has them", "rota: left behind: jobs/.removed/1: busy"]
