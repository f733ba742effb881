"""Conversion of workflow files to requests: jobs, defaults, and all faults at once."""

from __future__ import annotations

from typing import Any

import pytest

from rota.workflows.document import WorkflowDocument
from rota.workflows.workflow import Workflow
from tests.workflows.test_document import format_all_faults


def read_workflow(text: str, syntax: str = "yaml") -> Workflow:
    return Workflow(WorkflowDocument(text, syntax).data, "/desk")


def read_job(text: str) -> dict[str, Any]:
    """Return the request of one job with these fields."""
    job = read_workflow(f"jobs:\n  first: {{command: [a]}}\n  other: {{{text}}}\n").jobs[1]
    assert (job.pop("local"), job.pop("name")) == ("other", "other")
    return job


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("command: [sleep, 5, 0.50, true, 0x10]", {"command": ["sleep", "5", "0.50", "true", "0x10"]}),
        (
            "template: agent, params: {n: 5, t: '5', deep: [1, {a: ~}]}",
            {"template": "agent", "params": {"n": 5, "t": "5", "deep": [1, {"a": None}]}},
        ),
        ("command: [x], after: first", {"command": ["x"], "after": [{"job": "first", "policy": "success"}]}),
        (
            "command: [x], after: ['first:finished', {job: job-12, policy: failed}, job-3]",
            {
                "command": ["x"],
                "after": [
                    {"job": "first", "policy": "finished"},
                    {"job": "job-12", "policy": "failed"},
                    {"job": "job-3", "policy": "success"},
                ],
            },
        ),
        (
            "command: [x], locks: [repo, 'a:b', 'r:shared', {key: 'k:shared', mode: exclusive}]",
            {
                "command": ["x"],
                "locks": [
                    {"key": "repo", "mode": "exclusive"},
                    {"key": "a:b", "mode": "exclusive"},
                    {"key": "r", "mode": "shared"},
                    {"key": "k:shared", "mode": "exclusive"},
                ],
            },
        ),
        ("command: [x], pools: {resource/gpu: 2}", {"command": ["x"], "pools": {"resource/gpu": 2}}),
        (
            "command: [x], pools: [resource/gpu=2, global]",
            {"command": ["x"], "pools": {"resource/gpu": 2, "global": 1}},
        ),
        ("command: [x], env: {A: 1, B: no, C: true}", {"command": ["x"], "env": {"A": "1", "B": "no", "C": "true"}}),
        ("command: [x], cwd: sub/../there", {"command": ["x"], "cwd": "/desk/there"}),
        ("command: [x], cwd: /abs", {"command": ["x"], "cwd": "/abs"}),
        (
            "command: [x], webhook: 'http://a', webhooks: ['http://b']",
            {"command": ["x"], "webhooks": ["http://b", "http://a"]},
        ),
        (
            "command: [x], flow: ~, priority: -3, worktree: true, retries: 0",
            {"command": ["x"], "priority": -3, "worktree": True, "retries": 0},
        ),
    ],
)
def test_fields_of_a_job_are_converted(text: str, expected: dict[str, Any]) -> None:
    assert read_job(text) == expected


def test_defaults_are_merged_into_jobs() -> None:
    workflow = read_workflow(
        "defaults: {timeout: 5m, env: {A: 1, B: 2}, template: agent, after: [gate], locks: [repo]}\n"
        "jobs:\n"
        "  gate: {command: ['true'], locks: []}\n"
        "  one: {env: {B: 3}, params: {x: 1}}\n"
        "  two: {command: [y], after: [], timeout: 1h}\n"
    )
    gate, one, two = workflow.jobs
    assert gate == {
        "local": "gate",
        "name": "gate",
        "command": ["true"],
        "timeout": "5m",
        "env": {"A": "1", "B": "2"},
        "after": [],
        "locks": [],
    }
    assert one["env"] == {"A": "1", "B": "3"}
    assert (one["template"], one["after"]) == ("agent", [{"job": "gate", "policy": "success"}])
    assert (two["command"], two["after"], two["timeout"]) == (["y"], [], "1h")
    assert "template" not in two


def test_group_fields_are_kept() -> None:
    assert read_workflow("group: {name: n, mode: sequential, on_failure: skip}\njobs: {a: {command: [x]}}").group == {
        "name": "n",
        "mode": "sequential",
        "on_failure": "skip",
    }
    assert read_workflow("jobs: {a: {command: [x]}}").group == {}


def test_all_faults_are_reported_in_file_order() -> None:
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
    assert format_all_faults(text).split("\n") == [
        "f:1:9: group.mode: expected parallel or sequential, not 'paralel'",
        "f:2:12: defaults.timeout: not a duration: 'soon'; write it like 300ms, 1.5s, 2m30s or 1h",
        "f:5:5: jobs.plan.comand: unknown key 'comand'; did you mean command?",
        (
            "f:7:5: jobs.build.command: expected a list of words, not text: "
            'write [make, all], or [sh, -c, "make all"] for a shell'
        ),
        "f:9:9: jobs.build.after[0]: no job is called 'plna'; did you mean 'plan'?",
        "f:10:9: jobs.build.after[1]: unknown policy 'done'; known policies: success, finished, failed",
        "f:11:3: jobs.x: a job is a map with a command or a template, not '5'",
        "f:12:3: jobs.y: the job has neither a command nor a template; write command: [make, test]",
        (
            "f:13:3: jobs.job-7: invalid job name 'job-7'; use 1 to 200 characters without spaces or *, not "
            "starting with /, without :, and not in the form of a job id"
        ),
        "f:14:1: jbos: unknown key 'jbos'; did you mean jobs?",
    ]


def test_at_most_twenty_faults_are_shown() -> None:
    lines = format_all_faults("jobs:\n" + "".join(f"  a{n}: {{colour: red}}\n" for n in range(50))).split("\n")
    assert len(lines) == 21
    assert lines[-1] == "… and 30 more"


def test_too_many_jobs_are_refused() -> None:
    text = "jobs:\n" + "".join(f"  a{n}: {{command: [x]}}\n" for n in range(10_001))
    assert format_all_faults(text) == "f:1:1: jobs: 10001 jobs; the maximum per file is 10000"


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ("$.jobs[1].locks[0]", ("jobs", "b", "locks", 0)),
        ("$.jobs[0].timeout", ("defaults", "timeout")),
        ("$.jobs[1].timeout", ("jobs", "b", "timeout")),
        ("$.jobs[1]", ("jobs", "b")),
        ("$.group.mode", ("group", "mode")),
        ("$.jobs[9]", ("jobs",)),
    ],
)
def test_request_path_maps_to_document_path(requested: str, expected: tuple[object, ...]) -> None:
    workflow = read_workflow(
        "defaults: {timeout: 1s}\njobs: {a: {command: [x]}, b: {command: [x], timeout: 2s, locks: [r]}}"
    )
    assert workflow.document_path(requested) == expected
