"""A damaged workflow file is stored as a whole or not at all."""

from __future__ import annotations

import random

from rota.errors import RotaError
from rota.workflows.document import WorkflowDocument
from rota.workflows.scalars import Fault, InvalidWorkflow
from rota.workflows.workflow import Workflow
from tests.harness import Scheduler, SqlRunner

TEXT = """\
group: {name: demo, on_failure: stop}
jobs:
  plan: {command: [sh, -c, "echo plan"], timeout: 10m, retries: 1}
  build:
    command: [sleep, 0.5]
    after: [plan]
    locks: ["repo:shared", {key: x, mode: shared}]
    pools: {resource/gpu: 1}
  merge: {command: [make], after: [build, "plan:finished"], flow: f, phase: p, env: {A: b}}
"""
WORDS = ("", "job-9", "plan", "merge", "soon", "0s", "-1", "a b", "[]", "{}", "~", "x" * 300)
FIELDS = (
    "after: [job-9]",
    "after: [plan]",
    "after: [merge]",
    "timeout: 0s",
    "retry: never",
    "locks: ['']",
    "phase: a/b",
    "priority: 99999999",
    "pools: {x: 1}",
    "type: a b",
    "retries: -1",
    "cwd: /tmp",
    "skip_if: ' '",
    "env: {'': x}",
)
"""Fields that the reader accepts; only the scheduler can refuse some of them."""


def damage_file(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return TEXT + f"  more: {{command: [x], {chance.choice(FIELDS)}}}\n"
    words = TEXT.split(" ")
    words[chance.randrange(len(words))] = chance.choice((*WORDS, chance.choice(words)))
    return " ".join(words)


def test_damaged_file_is_stored_whole_or_not_at_all(scheduler: Scheduler, run_sql: SqlRunner) -> None:
    chance, stored, refused = random.Random(7), 0, 0
    for _ in range(200):
        try:
            workflow = Workflow(WorkflowDocument(damage_file(chance), "yaml").data, "/")
        except (Fault, InvalidWorkflow):
            continue
        before = run_sql("SELECT count(*) FROM job")[0][0]
        members = [{**job, "after": [edge["job"] for edge in job.get("after", ())]} for job in workflow.jobs]
        try:
            scheduler.submit_group(*members, **workflow.group)
        except RotaError:
            refused += 1
        else:
            before, stored = before + len(members), stored + 1
        assert run_sql("SELECT count(*) FROM job") == [(before,)]
    assert stored > 10
    assert refused > 10
