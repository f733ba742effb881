"""Paths of errors in a submit, and their use of local names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rota.errors import InvalidInput, NotFound, RotaError
from tests.harness import Scheduler, SqlRunner

VALID_JOB = {"local": "good"}
INVALID_JOBS: list[tuple[dict[str, Any], type[RotaError], str, str]] = [
    ({"timeout": "soon"}, InvalidInput, ".jobs[1].timeout", "not a duration: 'soon'"),
    ({"idle_timeout": "0s"}, InvalidInput, ".jobs[1].idle_timeout", "idle_timeout must be longer"),
    ({"delay": "5"}, InvalidInput, ".jobs[1].delay", "not a duration"),
    ({"command": [""]}, InvalidInput, ".jobs[1].command", "the command is empty"),
    ({"command": ["x", "a" * 131072]}, InvalidInput, ".jobs[1].command[1]", "put the text in a file"),
    ({"priority": 10**7}, InvalidInput, ".jobs[1].priority", "out of range"),
    ({"pools": {"x": 1}}, InvalidInput, ".jobs[1].pools", "not a pool name"),
    ({"type": "a b"}, InvalidInput, ".jobs[1].type", "not a usable type"),
    ({"phase": "p"}, InvalidInput, ".jobs[1].phase", "set `flow` too"),
    ({"locks": [{"key": "a"}, {"key": ""}]}, InvalidInput, ".jobs[1].locks[1]", "not a usable lock key"),
    ({"cwd": "here"}, InvalidInput, ".jobs[1].cwd", "absolute"),
    ({"env": {"": "x"}}, InvalidInput, ".jobs[1].env", "not a usable environment variable"),
    ({"retry": "never"}, InvalidInput, ".jobs[1].retry", "unknown retry policy"),
    ({"retries": -1}, InvalidInput, ".jobs[1].retries", "retries must be from 0"),
    ({"after": ["good", "job-99"]}, NotFound, ".jobs[1].after[1]", "no such job: job-99 (--after)"),
    ({"after": ["god"]}, InvalidInput, ".jobs[1].after[0]", "not a job id: 'god'"),
    ({"after": ["good", "other"], "local": "other"}, InvalidInput, ".jobs[1].after[1]", "self dependency: other"),
    ({"needs": ["file:a", "plan_doc:"]}, InvalidInput, ".jobs[1].needs[1]", "plan_doc"),
    ({"produces": ["file:a", "x"]}, InvalidInput, ".jobs[1].produces[1]", "unknown artifact type"),
    ({"pin": "main@xyz"}, InvalidInput, ".jobs[1].pin", "malformed pin"),
    ({"needs": ["command_patch:job-9"]}, NotFound, ".jobs[1].needs[0]", "unknown job in `needs` command_patch:job-9"),
    ({"unique": ""}, InvalidInput, ".jobs[1].unique", "not a usable unique key"),
    ({"webhooks": ["http://a/", "ftp://x"]}, InvalidInput, ".jobs[1].webhooks[1]", "not a usable URL: ftp://x"),
    ({"webhooks": ["http://169.254.169.254/"]}, InvalidInput, ".jobs[1].webhooks[0]", "169.254.169.254 is refused"),
    ({"webhook_events": ["job.run.ended"]}, InvalidInput, ".jobs[1].webhook_events[0]", "unknown event kind"),
    ({"local": "good"}, InvalidInput, ".jobs[1].local", "two jobs have the local name 'good'"),
    ({"local": "a b"}, InvalidInput, ".jobs[1].local", "not a usable local name"),
]


@pytest.mark.parametrize(
    ("member", "kind", "path", "text"), INVALID_JOBS, ids=[case[2] + case[3] for case in INVALID_JOBS]
)
def test_batch_error_has_path_of_field(
    scheduler: Scheduler, run_sql: SqlRunner, member: Mapping[str, Any], kind: type[RotaError], path: str, text: str
) -> None:
    with pytest.raises(kind) as caught:
        scheduler.submit_group(VALID_JOB, member)
    assert (caught.value.path, text in caught.value.message) == (path, True), caught.value.message
    assert run_sql("SELECT count(*) FROM job") == run_sql("SELECT count(*) FROM job_group") == [(0,)]


def test_duplicate_unique_key_error_points_at_second_job(scheduler: Scheduler) -> None:
    with pytest.raises(InvalidInput, match="have the same unique key") as caught:
        scheduler.submit_group({"unique": "k"}, {}, {"unique": "k"})
    assert caught.value.path == ".jobs[2].unique"


@pytest.mark.parametrize(
    ("group", "path"), [({"name": "a b"}, ".group.name"), ({"on_failure": "never"}, ".group.on_failure")]
)
def test_group_error_has_path_in_group(scheduler: Scheduler, group: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        scheduler.submit_group({}, **group)
    assert caught.value.path == path


def test_cycle_error_uses_local_names(scheduler: Scheduler) -> None:
    with pytest.raises(InvalidInput, match=r"^invalid --after cycle: a -> c -> b -> a$") as caught:
        scheduler.submit_group(
            {"local": "x"},
            {"local": "a", "after": ["c"]},
            {"local": "b", "after": ["a"]},
            {"local": "c", "after": ["b"]},
        )
    assert caught.value.path == ".jobs[1].after"


def test_artifact_cycle_error_uses_local_names(scheduler: Scheduler) -> None:
    with pytest.raises(InvalidInput, match=r"^invalid `needs` cycle: (a -> b -> a|b -> a -> b)$") as caught:
        scheduler.submit_group(
            {"local": "a", "needs": ["file:/x"], "produces": ["file:/y"]},
            {"local": "b", "needs": ["file:/y"], "produces": ["file:/x"]},
        )
    assert caught.value.path == ".jobs[0].needs"


def test_error_path_is_set_once_when_turn_is_repeated(scheduler: Scheduler) -> None:
    """A preflight error is raised again when the requests of a turn are run one by one."""
    with pytest.raises(InvalidInput) as caught:
        scheduler.submit_group(VALID_JOB, {"produces": ["command_patch:job-1"]})
    assert caught.value.path == ".jobs[1].produces[0]"


@pytest.mark.parametrize("shape", ["chain", "fan"])
def test_batch_of_thousands_of_dependent_jobs_is_stored(scheduler: Scheduler, run_sql: SqlRunner, shape: str) -> None:
    count = 2_000
    members: list[dict[str, Any]]
    if shape == "chain":
        members = [{"local": f"n{n}", "after": [f"n{n - 1}"] if n else []} for n in range(count)]
    else:
        middle = [{"local": f"n{n}", "after": ["first"]} for n in range(count - 2)]
        last = {"local": "last", "after": [member["local"] for member in middle]}
        members = [{"local": "first", "after": []}, *middle, last]
    scheduler.submit_group(*members)
    edges = count - 1 if shape == "chain" else 2 * (count - 2)
    assert run_sql("SELECT count(*) FROM edge") == [(edges,)]
