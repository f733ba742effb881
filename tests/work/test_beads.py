"""Exports of `bd`: forms of the file, fields of an issue, and lines that cannot be read."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rota.work.beads import BeadsSource, Route
from rota.work.model import Board, Item, ItemDependency, SourceView
from rota.work.source import SourceError, SourceItems
from tests.work.town import bead, make_town, write_beads

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def read(repository: Path, content: str | bytes) -> SourceItems:
    """Write the export, read it, and check that no byte has changed."""
    file = write_beads(repository)
    data = content.encode() if isinstance(content, str) else content
    file.write_bytes(data)
    result = BeadsSource("town", repository).items()
    assert file.read_bytes() == data
    assert sorted(path.name for path in file.parent.iterdir()) == ["issues.jsonl"]
    return result


def read_one(repository: Path, **fields: Any) -> Item:
    (item,) = read(repository, json.dumps({"id": "gt-1", **fields})).items
    return item


def test_town_of_200_beads(tmp_path: Path) -> None:
    beads = make_town()
    write_beads(tmp_path, *beads)
    source = BeadsSource("town", tmp_path)
    result = source.items()
    assert len(result.items) == len(beads) == 200
    assert (result.warnings, result.is_partial) == ((), False)
    board = Board([SourceView("town", result.items)], NOW)
    assert board.warnings == ()
    ready = [item for item in board.items if board.is_ready(item)]
    assert all(item.status == "open" and not board.blockers(item) for item in ready)
    assert 20 < len(ready) < 120
    by_status = Counter(item.status for item in board.items)
    assert by_status == Counter(str(issue["status"]) for issue in beads)
    assert list(source.tracked("hq-cv-abc")) == ["gt-0", "gt-10", "gt-20", "gt-30", "gt-40"]
    assert len(source.children("gt-e1")) == sum(
        edge["depends_on_id"] == "gt-e1" for issue in beads for edge in issue.get("dependencies", ())
    )
    assert source.show("gt-d0") == board.find("gt-d0")
    assert source.show("gt-none") is None


def test_fields_of_an_issue(tmp_path: Path) -> None:
    issue = bead(
        "gt-1",
        title="Make it faster",
        description="The parser is slow.\n",
        design="Use a table.",
        acceptance_criteria="- [ ] 10 ms",
        notes="See gt-3.",
        priority=1,
        issue_type="enhancement",
        labels=["backend"],
        assignee="ada",
        close_reason="",
        comments=[{"id": 7, "text": "old form"}],
        metadata={"anything": [1, None]},
        timeout=3_600_000_000_000,
        depends=[("gt-2", "blocks"), ("gt-9", "parent-child")],
        defer_until="2026-03-01T13:00:00+02:00",
    )
    (item,) = read(tmp_path, json.dumps(issue)).items
    assert item == Item(
        id="gt-1",
        source="town",
        title="Make it faster",
        kind="feature",
        priority=1,
        job_priority=3,
        labels=("backend",),
        prompt="Make it faster\n\nThe parser is slow.\n\nDesign:\nUse a table.\n\nAcceptance criteria:\n- [ ] 10 ms"
        "\n\nNotes:\nSee gt-3.",
        depends=(ItemDependency(id="gt-2"), ItemDependency(id="gt-9", kind="parent-child")),
        parent="gt-9",
        assignee="ada",
        defer_until=datetime(2026, 3, 1, 11, tzinfo=UTC),
        line=1,
    )


def test_missing_fields_have_defaults(tmp_path: Path) -> None:
    item = read_one(tmp_path)
    assert (item.title, item.status, item.kind, item.priority, item.job_priority) == ("gt-1", "open", "task", 0, 4)
    assert (item.prompt, item.depends, item.parent, item.defer_until) == ("gt-1", (), None, None)
    assert read_one(tmp_path, title=None, dependencies=None, labels=None, priority=None, pinned=None) == item


@pytest.mark.parametrize(("priority", "job_priority"), [(0, 4), (2, 2), (4, 0), (9, 0), (-1, 4)])
def test_priority_of_jobs_is_reversed(tmp_path: Path, priority: int, job_priority: int) -> None:
    item = read_one(tmp_path, priority=priority)
    assert (item.priority, item.job_priority) == (priority, job_priority)


ISSUES = [{"id": "gt-1", "title": "One"}, {"id": "gt-2", "title": "Two"}]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("\n".join(map(json.dumps, ISSUES)), [1, 2]),
        ("\ufeff" + "\r\n".join(map(json.dumps, ISSUES)) + "\r\n", [1, 2]),
        ("\n\n" + "\n\n".join(map(json.dumps, ISSUES)), [3, 5]),
        (json.dumps(ISSUES), [1, 1]),
        (json.dumps(ISSUES, indent=2), [2, 6]),
        (json.dumps({"schema_version": 1, "data": ISSUES}), [1, 1]),
        (json.dumps({"schema_version": 1, "data": ISSUES}, indent=1), [4, 8]),
        ("\n".join(json.dumps({"schema_version": 1, "data": issue}) for issue in ISSUES), [1, 2]),
        ("\n".join(json.dumps({"schema_version": 1, **issue}) for issue in ISSUES), [1, 2]),
        ("\n".join(json.dumps({"_type": "issue", **issue}) for issue in ISSUES), [1, 2]),
    ],
)
def test_forms_of_the_file(tmp_path: Path, content: str, lines: list[int]) -> None:
    result = read(tmp_path, content)
    assert [(item.id, item.title) for item in result.items] == [("gt-1", "One"), ("gt-2", "Two")]
    assert [item.line for item in result.items] == lines
    assert result.warnings == ()


def test_single_object_is_an_issue(tmp_path: Path) -> None:
    for content in (json.dumps(ISSUES[0], indent=2), json.dumps({"schema_version": 1, "data": ISSUES[0]}, indent=2)):
        assert [item.id for item in read(tmp_path, content).items] == ["gt-1"]


def test_dependencies_as_full_issues(tmp_path: Path) -> None:
    depends = [{"id": "gt-2", "title": "Two", "status": "open", "dependency_type": "blocks"}]
    assert read_one(tmp_path, dependencies=depends).depends == (ItemDependency(id="gt-2"),)


def test_parent_without_a_dependency(tmp_path: Path) -> None:
    assert read_one(tmp_path, parent="gt-9").parent == "gt-9"


@pytest.mark.parametrize(
    ("metadata", "is_any"),
    [
        ('{"gate":"any-children","spawner_id":"gt-2"}', True),
        ({"gate": "any-children"}, True),
        ('{"gate":"all-children"}', False),
        ("not json", False),
        ("[]", False),
        (None, False),
    ],
)
def test_gate_of_waits_for(tmp_path: Path, metadata: object, is_any: bool) -> None:
    depends = [{"depends_on_id": "gt-2", "type": "waits-for", "metadata": metadata}]
    assert read_one(tmp_path, dependencies=depends).depends == (
        ItemDependency(id="gt-2", kind="waits-for", is_any=is_any),
    )


def test_memory_lines_are_no_items(tmp_path: Path) -> None:
    lines = [{"_type": "memory", "key": "style", "value": "short"}, {"_type": "other"}, {"id": "gt-1"}]
    result = read(tmp_path, "\n".join(map(json.dumps, lines)))
    assert [item.id for item in result.items] == ["gt-1"]
    assert result.warnings == ()


def test_tombstone_counts_as_closed(tmp_path: Path) -> None:
    assert read_one(tmp_path, status="tombstone").is_closed


@pytest.mark.parametrize(
    ("config", "status", "is_closed"),
    [
        ('status:\n  custom: "shipped:done,triage:active"\n', "shipped", True),
        ('status.custom: "shipped:done"\n', "shipped", True),
        ("status:\n  custom: [shipped:done, triage]\n", "shipped", True),
        ('status:\n  custom: "shipped:done,triage:active"\n', "triage", False),
        ('status:\n  custom: "shipped"\n', "shipped", False),
        ("status: [", "shipped", False),
        ("- status", "shipped", False),
    ],
)
def test_custom_status(tmp_path: Path, config: str, status: str, is_closed: bool) -> None:
    write_beads(tmp_path, bead("gt-1", status=status, issue_type="rig-thing"))
    (tmp_path / ".beads/config.yaml").write_text(config)
    (item,) = BeadsSource("town", tmp_path).items().items
    assert (item.is_closed, item.kind) == (is_closed, "rig-thing")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON: Input data was truncated"),
        ("<<<<<<< HEAD", "not JSON: JSON is malformed: invalid character (byte 0)"),
        ("{}", "not an issue: no id"),
        ("3", "not an issue: Expected `object`, got `int`"),
        ('{"id": ""}', "not an issue: '' cannot be an id"),
        ('{"id": "a b"}', "not an issue: 'a b' cannot be an id"),
        ('{"id": 7}', "not an issue: Expected `str`, got `int` - at `$.id`"),
        ('{"id": "x", "status": 3}', "not an issue: Expected `str | null`, got `int` - at `$.status`"),
        (
            '{"id": "x", "dependencies": "gt-2"}',
            "not an issue: Expected `array | null`, got `str` - at `$.dependencies`",
        ),
        ('{"id": "x", "dependencies": [{"type": "blocks"}]}', "not an issue: a dependency has no depends_on_id"),
        ('{"id": "x", "defer_until": "soon"}', "not an issue: Invalid RFC3339 encoded datetime - at `$.defer_until`"),
        ('{"error": "no database", "schema_version": 1}', "not an issue: no id"),
    ],
)
def test_malformed_line_is_named_and_skipped(tmp_path: Path, line: str, problem: str) -> None:
    result = read(tmp_path, f'{{"id": "gt-1"}}\n{line}\n{{"id": "gt-3"}}\n')
    assert [item.id for item in result.items] == ["gt-1", "gt-3"]
    assert result.is_partial
    assert result.warnings == (f"issues.jsonl:2: {problem}",)


def test_path_names_the_repository_its_directory_or_the_file(tmp_path: Path) -> None:
    file = write_beads(tmp_path, bead("gt-1"))
    for path in (tmp_path, file.parent, file):
        assert [item.id for item in BeadsSource("town", path).items().items] == ["gt-1"]
    file.rename(file.with_name("beads.jsonl"))
    for path in (tmp_path, file.parent):
        assert [item.id for item in BeadsSource("town", path).items().items] == ["gt-1"]


def test_missing_repository_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nowhere/\.beads/issues\.jsonl does not exist"):
        BeadsSource("town", tmp_path / "nowhere").items()


def test_pipe_and_directory_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(SourceError, match="is not a regular file"):
        BeadsSource("town", tmp_path / "pipe.jsonl").items()
    (tmp_path / "directory.jsonl").mkdir()
    with pytest.raises(SourceError, match="is not a regular file"):
        BeadsSource("town", tmp_path / "directory.jsonl").items()


def test_routes(tmp_path: Path) -> None:
    file = write_beads(tmp_path, bead("gt-1"))
    lines = [
        "# rigs",
        "",
        '{"prefix": "gt-", "path": "old"}',
        '{"prefix": "gt-", "path": "gastown/mayor/rig"}',
        '{"prefix": "bd-", "path": "/srv/beads"}',
        '{"prefix": "x-"}',
        "nonsense",
        "[]",
    ]
    file.with_name("routes.jsonl").write_text("\n".join(lines))
    routes, warnings = BeadsSource("town", tmp_path).routes()
    assert routes == (Route("gt-", tmp_path / "gastown/mayor/rig"), Route("bd-", Path("/srv/beads")))
    assert [warning.partition(": ")[0] for warning in warnings] == [
        "routes.jsonl:6",
        "routes.jsonl:7",
        "routes.jsonl:8",
    ]
    file.with_name("routes.jsonl").unlink()
    assert BeadsSource("town", tmp_path).routes() == ((), ())
