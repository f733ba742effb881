"""Property tests: YAML, TOML and JSON give the same request, and no text crashes the reader."""

from __future__ import annotations

import json
import re
from typing import Any

import tomlkit
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.naming import is_name
from rota.workflows.document import WorkflowDocument, guess_syntax
from rota.workflows.scalars import Fault, InvalidWorkflow, format_faults
from rota.workflows.workflow import Workflow
from tests.sample import sample

WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Co", "Cn")), min_size=1, max_size=12)
NAMES = WORDS.filter(lambda name: is_name(name) and ":" not in name and not name.startswith("job-"))
NUMBERS = st.integers(-(2**53), 2**53)
ONLY_YAML_1_2 = re.compile(r"(?<![\w\"'])[-+]?(?:0[ox\d]|\.?\d[\d.]*[eE])")
VALUES = st.recursive(
    st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
)
LOCKS = st.lists(
    WORDS | st.fixed_dictionaries({"key": WORDS, "mode": st.sampled_from(["shared", "exclusive"])}), max_size=3
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "params": st.dictionaries(WORDS, VALUES, max_size=3),
    "priority": NUMBERS,
    "locks": LOCKS,
    "env": st.dictionaries(WORDS, WORDS | NUMBERS | st.booleans(), max_size=3),
    "pools": st.dictionaries(WORDS, st.integers(1, 9), max_size=2),
    "needs": st.lists(WORDS, max_size=2),
    "worktree": st.booleans(),
    "timeout": st.sampled_from(["1s", "2m30s", "300ms"]),
    "type": WORDS,
}
JOBS = st.fixed_dictionaries({"command": st.lists(WORDS | NUMBERS, min_size=1, max_size=4)}, optional=FIELDS)


@st.composite
def workflows(draw: st.DrawFn) -> dict[str, Any]:
    jobs = draw(st.dictionaries(NAMES, JOBS, min_size=1, max_size=4))
    names = list(jobs)
    for name in names:
        after = draw(st.lists(st.sampled_from(names), max_size=2))
        if after:
            jobs[name]["after"] = [draw(st.sampled_from([job, f"{job}:finished"])) for job in after]
    group = draw(
        st.fixed_dictionaries({}, optional={"name": WORDS, "mode": st.sampled_from(["parallel", "sequential"])})
    )
    return {"group": group, "jobs": jobs}


def build_request(text: str, syntax: str) -> tuple[object, object]:
    workflow = Workflow(WorkflowDocument(text, syntax).data, "/desk")
    return workflow.group, workflow.jobs


@given(workflows())
def test_yaml_toml_and_json_give_the_same_request(workflow: dict[str, Any]) -> None:
    """Serialize with three libraries that Rota does not use for reading."""
    from_json = build_request(json.dumps(workflow), "yaml")
    assert build_request(json.dumps(workflow, ensure_ascii=False, indent=2), "yaml") == from_json
    for style in (True, False):
        text = yaml.safe_dump(workflow, allow_unicode=True, sort_keys=False, default_flow_style=style)
        # PyYAML quotes text that is not text in YAML 1.1, but not text that is a number only in YAML 1.2.
        if not ONLY_YAML_1_2.search(text):
            assert build_request(text, "yaml") == from_json
    assert build_request(tomlkit.dumps(workflow), "toml") == from_json


VALID = """\
group: {name: demo, on_failure: stop}
defaults: &d {timeout: 10m, env: {A: 1}}
jobs:
  plan:   {command: [sh, -c, "echo plan"], produces: ["file:plan.md"]}
  build:
    <<: *d
    command: [sleep, 0.5]
    after: [plan]
    locks: ["repo:shared", {key: x, mode: shared}]
  merge:  {template: agent, params: {a: [1, 2]}, after: [build, "plan:finished"]}
"""
VALID_TOML = """\
[group]
name = "demo"
[jobs.plan]
command = ["sh", "-c", \"\"\"echo
plan\"\"\"]
[jobs.build]
command = ["sleep", 0.5]
after = ["plan"]
locks = ["repo:shared", {key = "x", mode = "shared"}]
"""


@st.composite
def damaged_files(draw: st.DrawFn) -> tuple[str, str]:
    """Generate a valid file with parts that are removed, duplicated or inserted."""
    syntax = draw(st.sampled_from(["yaml", "toml"]))
    text = VALID if syntax == "yaml" else VALID_TOML
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = draw(st.integers(begin, min(len(text), begin + 12)))
        new = draw(
            st.sampled_from(["", text[begin:end] * 2, "\n", " ", "{", "]", ":", "*d", "&x ", '"', "- ", "# "]) | WORDS
        )
        text = text[:begin] + new + text[end:]
    return text, syntax


def read_or_format_faults(text: str, syntax: str) -> str:
    """Return the faults of the file, or an empty text for a valid workflow."""
    document: WorkflowDocument | None = None
    try:
        document = WorkflowDocument(text, syntax)
        Workflow(document.data, "/desk")
    except Fault as fault:
        return format_faults("f", [fault], {})
    except InvalidWorkflow as error:
        return format_faults("f", error.faults, {} if document is None else document.positions())
    document.positions()
    return ""


@settings(max_examples=sample(100))
@given(damaged_files())
def test_damaged_file_is_read_or_refused_with_faults(case: tuple[str, str]) -> None:
    output = read_or_format_faults(*case)
    assert all(line.startswith(("f:", "… and")) for line in output.split("\n") if output)


@settings(max_examples=sample(100))
@given(st.text(), st.sampled_from(["yaml", "toml", "guess"]))
def test_any_text_is_read_or_refused_with_faults(text: str, syntax: str) -> None:
    output = read_or_format_faults(text, guess_syntax(text) if syntax == "guess" else syntax)
    assert output.startswith("f:") or not output
