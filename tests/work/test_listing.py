"""Files that list items: YAML, JSON, JSONL and the output of `gh`, and errors with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.work.listing import ListSource
from rota.work.model import Item, ItemDependency
from rota.work.source import SourceError, SourceItems


def read(directory: Path, text: str, name: str = "prompts.yaml") -> SourceItems:
    file = directory / name
    file.write_text(text)
    result = ListSource("mine", file).items()
    assert file.read_text() == text
    return result


COMPLETE = Item(
    id="login",
    source="mine",
    title="Log in",
    status="in_progress",
    priority=5,
    job_priority=5,
    labels=("web", "2"),
    target="shop",
    prompt="Add a login page.\n",
    depends=(ItemDependency(id="schema"), ItemDependency(id="12")),
    line=2,
)

YAML = """\
items:
  - id: login
    title: Log in
    status: in_progress
    priority: 5
    labels: [web, 2]
    target: shop
    prompt: |
      Add a login page.
    depends: [schema, 12]
  - {id: schema, prompt: "Write the schema.\\nAll of it."}
"""


def test_yaml_list(tmp_path: Path) -> None:
    result = read(tmp_path, YAML)
    schema = Item(
        id="schema", source="mine", title="Write the schema.", prompt="Write the schema.\nAll of it.", line=11
    )
    assert result == SourceItems(items=(COMPLETE, schema))
    assert read(tmp_path, "\n".join(line[2:] for line in YAML.splitlines()[1:])).items[0].id == "login"


JSON_ITEMS: list[dict[str, Any]] = [
    {
        "id": "login",
        "title": "Log in",
        "status": "in_progress",
        "priority": 5,
        "labels": ["web", 2],
        "target": "shop",
        "prompt": "Add a login page.\n",
        "depends": ["schema", 12],
    },
    {"id": "schema", "prompt": None, "title": "\N{GRINNING FACE} < >"},
]


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("p.json", json.dumps(JSON_ITEMS), (1, 1)),
        ("p.json", json.dumps(JSON_ITEMS, indent=0), (2, 18)),
        ("p.json", json.dumps({"items": JSON_ITEMS}), (1, 1)),
        ("p.jsonl", "\n".join(map(json.dumps, JSON_ITEMS)), (1, 2)),
        ("p.txt", "\n\n".join(json.dumps(item, ensure_ascii=False) for item in JSON_ITEMS), (1, 3)),
    ],
)
def test_json_and_jsonl(tmp_path: Path, name: str, text: str, lines: tuple[int, int]) -> None:
    login, schema = read(tmp_path, text, name).items
    assert (login.line, schema.line) == lines
    assert (login.id, login.depends, login.labels) == ("login", COMPLETE.depends, COMPLETE.labels)
    assert (schema.title, schema.prompt) == ("\N{GRINNING FACE} < >", "\N{GRINNING FACE} < >")


def test_flow_style_yaml_begins_like_json(tmp_path: Path) -> None:
    assert [item.id for item in read(tmp_path, "[{id: a, prompt: do it}, {id: b, prompt: that}]").items] == ["a", "b"]


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "[]", "items: []", "[]\n"])
def test_empty_list(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == SourceItems()


def test_output_of_gh(tmp_path: Path) -> None:
    issues = [
        {
            "number": 12,
            "title": "Crash at start",
            "body": "It crashes.\r\n",
            "state": "OPEN",
            "labels": [{"id": "x", "name": "bug", "color": "red", "description": ""}],
        },
        {"number": 13, "title": "Typo", "body": "", "state": "CLOSED", "labels": [], "url": "https://x"},
    ]
    first, second = read(tmp_path, json.dumps(issues), "issues.json").items
    assert (first.id, first.title, first.status, first.labels) == ("12", "Crash at start", "open", ("bug",))
    assert first.prompt == "Crash at start\n\nIt crashes."
    assert (second.id, second.is_closed, second.prompt, second.priority) == ("13", True, "Typo", None)


@pytest.mark.parametrize(
    ("status", "stored"), [("done", "closed"), ("Completed", "closed"), ("todo", "open"), ("", "open")]
)
def test_names_of_statuses(tmp_path: Path, status: str, stored: str) -> None:
    (item,) = read(tmp_path, f"- {{id: a, status: {status}}}").items
    assert item.status == stored


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{prompt: x}", "the item has no id; add one that stays the same, such as id: fix-login"),
        ("{id: a b}", "id: 'a b' cannot be an id; use 1 to 200 characters without spaces or /"),
        ("{id: a/b}", "id: 'a/b' cannot be an id; use 1 to 200 characters without spaces or /"),
        ("{id: [a]}", "id: expected text, not a list"),
        ("{id: a, prompts: x}", "prompts: unknown key 'prompts'; did you mean prompt?"),
        ("{id: a, priority: high}", "priority: expected a whole number, not 'high'"),
        ("{id: a, priority: 1.5}", "priority: expected a whole number, not '1.5'"),
        ("{id: a, depends: {b: c}}", "depends: expected a list, not a map"),
        (
            "{id: a, status: finished}",
            "status: unknown status 'finished'; known: open, in_progress, hooked, blocked, deferred, closed",
        ),
        ("just a prompt", "expected an item with id and prompt, not 'just a prompt'"),
    ],
)
def test_invalid_item_is_named_with_file_and_line(tmp_path: Path, entry: str, problem: str) -> None:
    result = read(tmp_path, f"# my list\n- id: first\n- {entry}\n- id: last\n")
    assert [item.id for item in result.items] == ["first", "last"]
    assert result.warnings == (f"prompts.yaml:3: {problem}",)
    assert result.is_partial


def test_invalid_line_of_jsonl_is_named(tmp_path: Path) -> None:
    result = read(tmp_path, '{"id": "a"}\n{"id": "b"\n3\n{"id": "d", "depend": []}\n', "p.jsonl")
    assert [item.id for item in result.items] == ["a"]
    assert result.warnings == (
        "p.jsonl:2: not JSON: Input data was truncated",
        "p.jsonl:3: expected an item, which is a JSON object",
        "p.jsonl:4: depend: unknown key 'depend'; did you mean depends?",
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"- id: a\n  prompt: [\n", r"prompts\.yaml:3: not YAML"),
        (b"- id: a\n  id: b\n", r"prompts\.yaml:2: duplicate key 'id'"),
        (b"jobs: {}\n", r"prompts\.yaml: expected a list of items, not a map"),
        (b"hello\n", r"prompts\.yaml: expected a list of items, not 'hello'"),
        (b"- id: a\n- \xff\n", r"prompts\.yaml:2: not UTF-8"),
        (b"\x00", r"prompts\.yaml:1: has a NUL character"),
        (b'[{"id": "a"', r"prompts\.yaml:2: not YAML"),
    ],
)
def test_invalid_file_is_refused_with_file_and_line(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "prompts.yaml"
    file.write_bytes(content)
    with pytest.raises(SourceError, match=problem):
        ListSource("mine", file).items()


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"prompts\.yaml does not exist"):
        ListSource("mine", tmp_path / "prompts.yaml").items()
