"""Realistic beads repositories, written by the tests themselves."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

Bead = dict[str, Any]


def bead(item_id: str, **fields: Any) -> Bead:
    """Return an issue as `bd` exports it. `depends` are pairs of an id and a kind of dependency."""
    depends = fields.pop("depends", ())
    issue: Bead = {
        "_type": "issue",
        "id": item_id,
        "title": f"Do {item_id}",
        "status": "open",
        "priority": 2,
        "issue_type": "task",
        "created_at": "2026-04-18T16:19:12Z",
        "updated_at": "2026-04-18T16:30:16Z",
        **fields,
    }
    if depends:
        issue["dependencies"] = [
            {"issue_id": item_id, "depends_on_id": other, "type": kind, "created_at": issue["created_at"]}
            for other, kind in depends
        ]
    return issue


def write_beads(repository: Path, *beads: Bead) -> Path:
    """Replace the export of the repository and return its path."""
    file = repository / ".beads" / "issues.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(issue)}\n" for issue in beads))
    return file


def make_town(seed: int = 0) -> list[Bead]:
    """Return 200 beads: epics with children, blockers, closed, deferred and pinned ones, messages and a convoy."""
    rng = random.Random(seed)
    beads = [bead(f"gt-e{n}", issue_type="epic", title=f"Epic {n}", priority=1) for n in range(10)]
    for n in range(170):
        depends = [(f"gt-e{n % 10}", "parent-child")] if n % 3 else []
        depends += [(f"gt-{n - rng.randint(1, 20)}", rng.choice(["blocks", "related", "waits-for"]))] if n > 20 else []
        status = rng.choice(["open"] * 6 + ["in_progress", "hooked", "blocked", "deferred", "closed", "closed"])
        fields: Bead = {"closed_at": "2026-05-01T10:00:00Z", "close_reason": "done"} if status == "closed" else {}
        beads.append(
            bead(
                f"gt-{n}",
                status=status,
                depends=depends,
                priority=rng.randint(0, 4),
                issue_type=rng.choice(["task", "bug", "feature", "chore", "spike"]),
                description=f"Make part {n} of the parser faster.\n\nKeep its errors.",
                acceptance_criteria="All tests pass." if n % 5 == 0 else "",
                labels=["backend"] if n % 2 else ["frontend", "urgent"],
                comments=[{"id": "c1", "issue_id": f"gt-{n}", "author": "ada", "text": "Yes.", "created_at": "x"}],
                **fields,
            )
        )
    beads += [bead(f"gt-m{n}", issue_type="message", ephemeral=True, sender="mayor") for n in range(10)]
    beads += [bead(f"gt-p{n}", pinned=True, status="pinned") for n in range(5)]
    beads += [bead(f"gt-d{n}", defer_until="2099-01-01T00:00:00Z") for n in range(4)]
    tracked = [(f"gt-{n}", "tracks") for n in range(0, 50, 10)]
    return [*beads, bead("hq-cv-abc", issue_type="convoy", title="Release", depends=tracked)]
