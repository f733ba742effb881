"""A workflow file's text: what it says, and where what is wrong in it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.workflow.document import MOST_BYTES, Document, decode, guess
from rota.workflow.fault import Fault, Unusable, show_faults
from rota.workflow.scalar import value_of
from rota.workflow.workflow import Workflow


def said(text: str | bytes, form: str | None = None) -> str:
    """All that is wrong with it, as `rota apply` prints it."""
    document: Document | None = None
    try:
        decoded = decode(text if isinstance(text, bytes) else text.encode())
        document = Document(decoded, form or guess(decoded))
        Workflow(document.data, "/desk")
    except Fault as fault:
        return show_faults("f", [fault], {})
    except Unusable as error:
        return show_faults("f", error.faults, {} if document is None else document.marks())
    return ""


def data(text: str, form: str = "yaml") -> Any:
    return value_of(Document(text, form).data)


def test_yaml_is_read_as_its_core_schema_has_it() -> None:
    text = "{a: no, b: on, c: 1.2.3, d: 12, e: 0x1f, f: 0o17, g: 1e3, h: true, i: ~, j: '5', k: 2026-11-16, l: 1_000}"
    assert data(text) == {
        "a": "no", "b": "on", "c": "1.2.3", "d": 12, "e": 31, "f": 15, "g": 1000.0, "h": True, "i": None, "j": "5",
        "k": "2026-11-16", "l": "1_000",
    }  # fmt: skip


def test_anchors_aliases_and_merge_keys_work() -> None:
    text = "base: &b {x: 1, y: 2}\none: {<<: *b, y: 3}\ntwo: {<<: [*b, {z: 4}]}\nthree: *b\n"
    found = data(text)
    assert found["one"] == {"x": 1, "y": 3}
    assert found["two"] == {"x": 1, "y": 2, "z": 4}
    assert found["three"] == {"x": 1, "y": 2}


def test_a_short_text_cannot_become_an_endless_one() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "with its aliases written out" in said("\n".join(lines))


def test_json_is_read_though_yaml_has_other_escapes() -> None:
    text = json.dumps({"jobs": {"a": {"command": ["echo", "\U0001f600", "a/b"]}}}, indent="\t").replace("/", "\\/")
    assert data(text)["jobs"]["a"]["command"] == ["echo", "\U0001f600", "a/b"]
    wrong = json.dumps({"jobs": {"\U0001f600": {"command": ["x"], "priority": "high"}}}, indent="\t")
    assert said(wrong).startswith("f:7:4: jobs.\U0001f600.priority")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jobs:\n  a: [1\n", "f:3:1: not YAML: did not find expected ',' or ']' (while parsing a flow sequence, begun"),
        ("jobs:\n\ta: 1\n", "f:2:1: not YAML: found character that cannot start any token"),
        ("jobs: \x07\n", "f:1:7: the character U+0007 cannot stand in YAML; remove it"),
        ("jobs:\n  a: {command: [x]}\n  a: {command: [y]}\n", "f:3:3: jobs: 'a' stands here twice, first in line 2;"),
        ('{"jobs": {"a": {},\n "a": {}}}', "f:2:2: jobs: 'a' stands here twice, first in line 1;"),
        ("jobs: !!python/object/apply:os.system [x]\n", "f:1:7: jobs: the tag !!python/object/apply:os.system makes"),
        ("jobs: *x\n", "f:1:7: jobs: no anchor &x stands whole above this alias"),
        ("jobs: &x {a: *x}\n", "f:1:14: jobs.a: no anchor &x stands whole above this alias"),
        ("a: 1\n---\nb: 2\n", "f:2:1: a second document begins here"),
        ("? [a]\n: 1\n", "f:1:3: a key is a word, not a list, a map or an alias"),
        ("[" * 5000, "f:1:101: nested more than 100 deep"),
        ("<<: 5\njobs: {}\n", "f:1:5: <<: << takes in maps"),
    ],
)
def test_wrong_yaml_is_said_with_its_line(text: str, expected: str) -> None:
    assert said(text, "yaml").startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[jobs\n", "f:1:6: not TOML: Expected ']' at the end of a table declaration"),
        ("[jobs.a]\ncommand = ['x']\n[jobs.a]\n", "f:3:"),
        ("a = " + "[" * 5000, "f: nested too deep"),
        ("[jobs.a]\ncommand = ['x']\npriority = 'high'\n", "f:3:1: jobs.a.priority: a whole number is wanted here"),
        ('[jobs."a.b"]\ncommand = ["""\n[x]\ny = 1\n"""]\nafter = ["q"]\n', "f:6:1: jobs.a.b.after[0]: no job"),
        ("jobs.a.command = ['x']\njobs.a.colour = 'red'\n", "f:2:1: jobs.a.colour: there is no 'colour' here"),
        ("[jobs]\na = {command = ['x'], retries = true}\n", "f:2:1: jobs.a.retries: a whole number"),
        ("[jobs.a]\ncommand = [\n  'x', # = [\n  'y',\n]\nflow = 1979-05-27\n", "f:6:1: jobs.a.flow: text is wanted"),
    ],
)
def test_wrong_toml_is_said_with_its_line(text: str, expected: str) -> None:
    assert said(text, "toml").startswith(expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "f: the file is empty"),
        (b"# nothing\n", "f: the file is empty"),
        (b"- a\n", "f: a workflow is a map with jobs:, not a list"),
        (b"hello", "f: a workflow is a map with jobs:, not 'hello'"),
        (b"\xff\xfej\x00", "f: written as UTF-16; save it as UTF-8"),
        (b"jobs:\n  a: \xe9\n", "f:2: not UTF-8: byte 0xe9; save it as UTF-8"),
        (b"\x7fELF\n\x00", "f:2: has a NUL character"),
        (b"a" * (MOST_BYTES + 1), "f: larger than 32 MiB"),
        (b"jobs: {}\n", "f:1:1: jobs: a workflow has jobs"),
        (b"group: {}\n", "f: jobs: a workflow has jobs"),
        (b"jobs: [a]\n", "f:1:1: jobs: jobs: is a map, not a list"),
    ],
)
def test_what_is_no_workflow_is_said_in_words(content: bytes, expected: str) -> None:
    assert said(content, "yaml").startswith(expected)


def test_a_mark_at_the_beginning_and_dos_lines_do_no_harm() -> None:
    text = decode("\ufeffjobs:\r\n  a:\r\n    command: [x]\r\n    skip_if: |\r\n      one\r\n      two\r\n".encode())
    assert data(text)["jobs"]["a"]["skip_if"] == "one\ntwo\n"


def test_the_form_is_guessed_where_no_name_tells_it() -> None:
    assert guess("# a\n\n[jobs.a]\n") == "toml"
    assert guess('jobs.a.command = ["x"]\n') == "toml"
    assert guess("# a = b\njobs:\n  a: {command: [x]}\n") == "yaml"
    assert guess('{"jobs": {}}') == "yaml"
