"""The same workflow as YAML, TOML and JSON is the same request; and no text at all makes the reader fall over."""

from __future__ import annotations

import json
import re
from typing import Any

import tomlkit
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.names import is_name
from rota.workflow.document import Document, guess
from rota.workflow.fault import Fault, Unusable, show_faults
from rota.workflow.workflow import Workflow
from sample import sample

WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Co", "Cn")), min_size=1, max_size=12)
NAMES = WORDS.filter(lambda name: is_name(name) and ":" not in name and not name.startswith("job-"))
NUMBERS = st.integers(-(2**53), 2**53)
ONLY_NEW = re.compile(r"(?<![\w\"'])[-+]?(?:0[ox\d]|\.?\d[\d.]*[eE])")
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
            jobs[name]["after"] = [draw(st.sampled_from([each, f"{each}:finished"])) for each in after]
    group = draw(
        st.fixed_dictionaries({}, optional={"name": WORDS, "mode": st.sampled_from(["parallel", "sequential"])})
    )
    return {"group": group, "jobs": jobs}


def request(text: str, form: str) -> tuple[object, object]:
    flow = Workflow(Document(text, form).data, "/desk")
    return flow.group, flow.jobs


@given(workflows())
def test_three_forms_one_request(flow: dict[str, Any]) -> None:
    """Written by three libraries, none of which is ours."""
    as_json = request(json.dumps(flow), "yaml")
    assert request(json.dumps(flow, ensure_ascii=False, indent=2), "yaml") == as_json
    for style in (True, False):
        text = yaml.safe_dump(flow, allow_unicode=True, sort_keys=False, default_flow_style=style)
        # PyYAML quotes what YAML 1.1 would take for something else, and not what only 1.2 does.
        if not ONLY_NEW.search(text):
            assert request(text, "yaml") == as_json
    assert request(tomlkit.dumps(flow), "toml") == as_json


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
def spoilt(draw: st.DrawFn) -> tuple[str, str]:
    """A good file in which something was cut out, put twice, or put in."""
    form = draw(st.sampled_from(["yaml", "toml"]))
    text = VALID if form == "yaml" else VALID_TOML
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = draw(st.integers(begin, min(len(text), begin + 12)))
        new = draw(
            st.sampled_from(["", text[begin:end] * 2, "\n", " ", "{", "]", ":", "*d", "&x ", '"', "- ", "# "]) | WORDS
        )
        text = text[:begin] + new + text[end:]
    return text, form


def judged(text: str, form: str) -> str:
    """Either a workflow, or words about it."""
    document: Document | None = None
    try:
        document = Document(text, form)
        Workflow(document.data, "/desk")
    except Fault as fault:
        return show_faults("f", [fault], {})
    except Unusable as error:
        return show_faults("f", error.faults, {} if document is None else document.marks())
    document.marks()
    return ""


@settings(max_examples=sample(100))
@given(spoilt())
def test_a_spoilt_file_is_read_or_refused_in_words(case: tuple[str, str]) -> None:
    said = judged(*case)
    assert all(line.startswith(("f:", "… and")) for line in said.split("\n") if said)


@settings(max_examples=sample(100))
@given(st.text(), st.sampled_from(["yaml", "toml", "guess"]))
def test_any_text_is_read_or_refused_in_words(text: str, form: str) -> None:
    said = judged(text, guess(text) if form == "guess" else form)
    assert said.startswith("f:") or not said
