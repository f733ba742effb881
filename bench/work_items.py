"""Reading and joining of work items."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from rota.config import SourceConfig
from rota.work.reader import WorkReader

COUNT = 10_000
_DESCRIPTION = "Make the parser faster, and keep its errors as they are. " * 8


def make_cases(directory: Path) -> dict[str, Callable[[], float]]:
    """Write the sources and return measurements in milliseconds."""
    beads = directory / "town" / ".beads" / "issues.jsonl"
    beads.parent.mkdir(parents=True)
    beads.write_text("".join(f"{json.dumps(_make_bead(n))}\n" for n in range(COUNT)))
    listed = directory / "prompts.yaml"
    listed.write_text("".join(f"- id: p-{n}\n  prompt: Fix it.\n  depends: [gt-{n}]\n" for n in range(COUNT)))
    town = SourceConfig(path="town")
    both = {"town": town, "prompts": SourceConfig(path="prompts.yaml", kind="list")}
    unchanged = WorkReader(both, directory)
    unchanged.sync()
    return {
        f"read and join {COUNT:,} beads": lambda: _measure_read({"town": town}, directory),
        f"read and join {COUNT:,} beads and {COUNT:,} items of a YAML list": lambda: _measure_read(both, directory),
        "the same, unchanged": lambda: _measure(unchanged.board),
    }


def _make_bead(number: int) -> dict[str, object]:
    depends = [(f"gt-{number // 10 * 10}", "parent-child")] if number % 10 else []
    depends += [(f"gt-{number - 7}", "blocks")] if number % 3 == 0 and number > 7 else []
    return {
        "_type": "issue",
        "id": f"gt-{number}",
        "title": f"Part {number}",
        "description": _DESCRIPTION,
        "status": "open" if number % 4 else "closed",
        "priority": number % 5,
        "issue_type": "task",
        "labels": ["backend"],
        "dependencies": [{"issue_id": f"gt-{number}", "depends_on_id": on, "type": kind} for on, kind in depends],
    }


def _measure_read(sources: dict[str, SourceConfig], directory: Path) -> float:
    """Read the sources and decide for each item whether it is ready."""

    def read() -> None:
        board = WorkReader(sources, directory).board()
        sum(map(board.is_ready, board.items))

    return _measure(read)


def _measure(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000
