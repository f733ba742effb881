"""Parsing of workflow files, and the positions of faults in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.workflows.document import MAX_BYTES, WorkflowDocument, decode_text, guess_syntax
from rota.workflows.scalars import Fault, InvalidWorkflow, as_json, format_faults, format_path
from rota.workflows.workflow import Workflow


def format_all_faults(text: str | bytes, syntax: str | None = None) -> str:
    """Return all faults of the file as `rota apply` prints them."""
    document: WorkflowDocument | None = None
    try:
        decoded = decode_text(text if isinstance(text, bytes) else text.encode())
        document = WorkflowDocument(decoded, syntax or guess_syntax(decoded))
        Workflow(document.data, "/desk")
    except Fault as fault:
        return format_faults("f", [fault], {})
    except InvalidWorkflow as error:
        return format_faults("f", error.faults, {} if document is None else document.positions())
    return ""


def parse_to_json(text: str, syntax: str = "yaml") -> Any:
    return as_json(WorkflowDocument(text, syntax).data)


def test_yaml_scalars_follow_the_core_schema() -> None:
    text = "{a: no, b: on, c: 1.2.3, d: 12, e: 0x1f, f: 0o17, g: 1e3, h: true, i: ~, j: '5', k: 2026-11-16, l: 1_000}"
    assert parse_to_json(text) == {
        "a": "no",
        "b": "on",
        "c": "1.2.3",
        "d": 12,
        "e": 31,
        "f": 15,
        "g": 1000.0,
        "h": True,
        "i": None,
        "j": "5",
        "k": "2026-11-16",
        "l": "1_000",
    }


def test_anchors_aliases_and_merge_keys_work() -> None:
    text = "base: &b {x: 1, y: 2}\none: {<<: *b, y: 3}\ntwo: {<<: [*b, {z: 4}]}\nthree: *b\n"
    document = parse_to_json(text)
    assert document["one"] == {"x": 1, "y": 3}
    assert document["two"] == {"x": 1, "y": 2, "z": 4}
    assert document["three"] == {"x": 1, "y": 2}


def test_alias_expansion_is_limited() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "values with all aliases expanded" in format_all_faults("\n".join(lines))


def test_json_escapes_that_yaml_lacks_are_accepted() -> None:
    text = json.dumps({"jobs": {"a": {"command": ["echo", "\U0001f600", "a/b"]}}}, indent="\t").replace("/", "\\/")
    assert parse_to_json(text)["jobs"]["a"]["command"] == ["echo", "\U0001f600", "a/b"]
    invalid = json.dumps({"jobs": {"\U0001f600": {"command": ["x"], "priority": "high"}}}, indent="\t")
    assert format_all_faults(invalid).startswith("f:7:4: jobs.\U0001f600.priority")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "jobs:\n  a: [1\n",
            "f:3:1: not YAML: did not find expected ',' or ']' (while parsing a flow sequence, started",
        ),
        ("jobs:\n\ta: 1\n", "f:2:1: not YAML: found character that cannot start any token"),
        ("jobs: \x07\n", "f:1:7: the character U+0007 is not allowed in YAML; remove it"),
        ("jobs:\n  a: {command: [x]}\n  a: {command: [y]}\n", "f:3:3: jobs: duplicate key 'a', first in line 2;"),
        ('{"jobs": {"a": {},\n "a": {}}}', "f:2:2: jobs: duplicate key 'a', first in line 1;"),
        ("jobs: !!python/object/apply:os.system [x]\n", "f:1:7: jobs: the tag !!python/object/apply:os.system is"),
        ("jobs: *x\n", "f:1:7: jobs: no complete anchor &x above this alias"),
        ("jobs: &x {a: *x}\n", "f:1:14: jobs.a: no complete anchor &x above this alias"),
        ("a: 1\n---\nb: 2\n", "f:2:1: a second document starts here"),
        ("? [a]\n: 1\n", "f:1:3: a key must be a word, not a list, a map or an alias"),
        ("[" * 5000, "f:1:101: nested more than 100 levels deep"),
        ("<<: 5\njobs: {}\n", "f:1:5: <<: << merges maps"),
    ],
)
def test_yaml_fault_has_line_and_column(text: str, expected: str) -> None:
    assert format_all_faults(text, "yaml").startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[jobs\n", "f:1:6: not TOML: Expected ']' at the end of a table declaration"),
        ("[jobs.a]\ncommand = ['x']\n[jobs.a]\n", "f:3:"),
        ("a = " + "[" * 5000, "f: nested too deeply"),
        ("[jobs.a]\ncommand = ['x']\npriority = 'high'\n", "f:3:1: jobs.a.priority: expected a whole number"),
        ('[jobs."a.b"]\ncommand = ["""\n[x]\ny = 1\n"""]\nafter = ["q"]\n', "f:6:1: jobs.a.b.after[0]: no job"),
        ("jobs.a.command = ['x']\njobs.a.colour = 'red'\n", "f:2:1: jobs.a.colour: unknown key 'colour'"),
        ("[jobs]\na = {command = ['x'], retries = true}\n", "f:2:1: jobs.a.retries: expected a whole number"),
        ("[jobs.a]\ncommand = [\n  'x', # = [\n  'y',\n]\nflow = 1979-05-27\n", "f:6:1: jobs.a.flow: expected text"),
    ],
)
def test_toml_fault_has_line_and_column(text: str, expected: str) -> None:
    assert format_all_faults(text, "toml").startswith(expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "f: the file is empty"),
        (b"# nothing\n", "f: the file is empty"),
        (b"- a\n", "f: a workflow is a map with jobs:, not a list"),
        (b"hello", "f: a workflow is a map with jobs:, not 'hello'"),
        (b"\xff\xfej\x00", "f: encoded as UTF-16; save it as UTF-8"),
        (b"jobs:\n  a: \xe9\n", "f:2: not UTF-8: byte 0xe9; save it as UTF-8"),
        (b"\x7fELF\n\x00", "f:2: has a NUL character"),
        (b"a" * (MAX_BYTES + 1), "f: larger than 32 MiB"),
        (b"jobs: {}\n", "f:1:1: jobs: a workflow needs jobs"),
        (b"group: {}\n", "f: jobs: a workflow needs jobs"),
        (b"jobs: [a]\n", "f:1:1: jobs: expected a map, not a list"),
    ],
)
def test_file_that_is_not_a_workflow_is_refused(content: bytes, expected: str) -> None:
    assert format_all_faults(content, "yaml").startswith(expected)


def test_byte_order_mark_and_dos_line_ends_are_accepted() -> None:
    text = decode_text(
        "\ufeffjobs:\r\n  a:\r\n    command: [x]\r\n    skip_if: |\r\n      one\r\n      two\r\n".encode()
    )
    assert parse_to_json(text)["jobs"]["a"]["skip_if"] == "one\ntwo\n"


def test_syntax_is_guessed_from_text() -> None:
    assert guess_syntax("# a\n\n[jobs.a]\n") == "toml"
    assert guess_syntax('jobs.a.command = ["x"]\n') == "toml"
    assert guess_syntax("# a = b\njobs:\n  a: {command: [x]}\n") == "yaml"
    assert guess_syntax('{"jobs": {}}') == "yaml"


def test_line_break_in_key_is_escaped_in_path() -> None:
    assert format_path(("jobs", "a\nb", "after", 0)) == "jobs.a\\nb.after[0]"
