"""A workflow as a request: its jobs, what they share, and all that is wrong with them at once."""

from __future__ import annotations

from typing import Any

import pytest

from rota.workflow.document import Document
from rota.workflow.workflow import Workflow
from workflow.test_document import said


def read(text: str, form: str = "yaml") -> Workflow:
    return Workflow(Document(text, form).data, "/desk")


def job(text: str) -> dict[str, Any]:
    """One job with these fields."""
    found = read(f"jobs:\n  first: {{command: [a]}}\n  other: {{{text}}}\n").jobs[1]
    assert (found.pop("local"), found.pop("name")) == ("other", "other")
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("command: [sleep, 5, 0.50, true, 0x10]", {"command": ["sleep", "5", "0.50", "true", "0x10"]}),
        ("template: agent, params: {n: 5, t: '5', deep: [1, {a: ~}]}",
         {"template": "agent", "params": {"n": 5, "t": "5", "deep": [1, {"a": None}]}}),
        ("command: [x], after: first", {"command": ["x"], "after": [{"job": "first", "policy": "success"}]}),
        ("command: [x], after: ['first:finished', {job: job-12, policy: failed}, job-3]",
         {"command": ["x"], "after": [{"job": "first", "policy": "finished"}, {"job": "job-12", "policy": "failed"},
                                      {"job": "job-3", "policy": "success"}]}),
        ("command: [x], locks: [repo, 'a:b', 'r:shared', {key: 'k:shared', mode: exclusive}]",
         {"command": ["x"], "locks": [{"key": "repo", "mode": "exclusive"}, {"key": "a:b", "mode": "exclusive"},
                                      {"key": "r", "mode": "shared"}, {"key": "k:shared", "mode": "exclusive"}]}),
        ("command: [x], pools: {resource/gpu: 2}", {"command": ["x"], "pools": {"resource/gpu": 2}}),
        ("command: [x], pools: [resource/gpu=2, global]",
         {"command": ["x"], "pools": {"resource/gpu": 2, "global": 1}}),
        ("command: [x], env: {A: 1, B: no, C: true}", {"command": ["x"], "env": {"A": "1", "B": "no", "C": "true"}}),
        ("command: [x], cwd: sub/../there", {"command": ["x"], "cwd": "/desk/there"}),
        ("command: [x], cwd: /abs", {"command": ["x"], "cwd": "/abs"}),
        ("command: [x], webhook: 'http://a', webhooks: ['http://b']",
         {"command": ["x"], "webhooks": ["http://b", "http://a"]}),
        ("command: [x], flow: ~, priority: -3, worktree: true, retries: 0",
         {"command": ["x"], "priority": -3, "worktree": True, "retries": 0}),
    ],
)  # fmt: skip
def test_a_job_is_sent_as_it_is_written(text: str, expected: dict[str, Any]) -> None:
    assert job(text) == expected


def test_what_jobs_share_is_said_once() -> None:
    flow = read(
        "defaults: {timeout: 5m, env: {A: 1, B: 2}, template: agent, after: [gate], locks: [repo]}\n"
        "jobs:\n"
        "  gate: {command: ['true'], locks: []}\n"
        "  one: {env: {B: 3}, params: {x: 1}}\n"
        "  two: {command: [y], after: [], timeout: 1h}\n"
    )
    gate, one, two = flow.jobs
    assert gate == {
        "local": "gate", "name": "gate", "command": ["true"], "timeout": "5m", "env": {"A": "1", "B": "2"},
        "after": [], "locks": [],
    }  # fmt: skip
    assert one["env"] == {"A": "1", "B": "3"}
    assert (one["template"], one["after"]) == ("agent", [{"job": "gate", "policy": "success"}])
    assert (two["command"], two["after"], two["timeout"]) == (["y"], [], "1h")
    assert "template" not in two


def test_the_group_is_as_it_is_written() -> None:
    assert read("group: {name: n, mode: sequential, on_failure: skip}\njobs: {a: {command: [x]}}").group == {
        "name": "n", "mode": "sequential", "on_failure": "skip",
    }  # fmt: skip
    assert read("jobs: {a: {command: [x]}}").group == {}


def test_all_that_is_wrong_is_said_at_once_in_the_order_of_the_file() -> None:
    text = (
        "group: {mode: paralel}\n"
        "defaults: {timeout: soon}\n"
        "jobs:\n"
        "  plan:\n"
        "    comand: [a]\n"
        "  build:\n"
        "    command: make all\n"
        "    after:\n"
        "      - plna\n"
        "      - plan:done\n"
        "  x: 5\n"
        "  y: {}\n"
        "  job-7: {command: [a]}\n"
        "jbos: 1\n"
    )
    assert said(text).split("\n") == [
        "f:1:9: group.mode: it is parallel or sequential, not 'paralel'",
        "f:2:12: defaults.timeout: not a duration: 'soon'; write it like 300ms, 1.5s, 2m30s or 1h",
        "f:5:5: jobs.plan.comand: there is no 'comand' here; did you mean command?",
        (
            "f:7:5: jobs.build.command: a list of words is wanted here, not one text: "
            'write [make, all], or [sh, -c, "make all"] for a shell'
        ),
        "f:9:9: jobs.build.after[0]: no job is called 'plna'; did you mean 'plan'?",
        "f:10:9: jobs.build.after[1]: the policy is one of success, finished, failed, not 'done'",
        "f:11:3: jobs.x: a job is a map with a command or a template, not '5'",
        "f:12:3: jobs.y: it has neither a command nor a template; write command: [make, test]",
        (
            "f:13:3: jobs.job-7: not a usable name of a job: 'job-7'; use 1 to 200 characters without spaces or *, not "
            "starting with /, without :, and not like a job's id"
        ),
        "f:14:1: jbos: there is no 'jbos' here; did you mean jobs?",
    ]


def test_of_many_faults_twenty_are_shown() -> None:
    lines = said("jobs:\n" + "".join(f"  a{n}: {{colour: red}}\n" for n in range(50))).split("\n")
    assert len(lines) == 21
    assert lines[-1] == "… and 30 more"


def test_more_than_fit_one_submit_are_refused() -> None:
    text = "jobs:\n" + "".join(f"  a{n}: {{command: [x]}}\n" for n in range(10_001))
    assert said(text) == "f:1:1: jobs: 10001 jobs; one file has at most 10000"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("$.jobs[1].locks[0]", ("jobs", "b", "locks", 0)),
        ("$.jobs[0].timeout", ("defaults", "timeout")),
        ("$.jobs[1].timeout", ("jobs", "b", "timeout")),
        ("$.jobs[1]", ("jobs", "b")),
        ("$.group.mode", ("group", "mode")),
        ("$.jobs[9]", ("jobs",)),
    ],
)
def test_a_place_in_the_request_is_found_in_the_file(asked: str, expected: tuple[object, ...]) -> None:
    flow = read("defaults: {timeout: 1s}\njobs: {a: {command: [x]}, b: {command: [x], timeout: 2s, locks: [r]}}")
    assert flow.path_of(asked) == expected
