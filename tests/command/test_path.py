"""A refusal says where in the request it is, by local names where there are any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from harness import Raw, Scheduler
from rota.errors import InvalidInput, NotFound, RotaError

GOOD = {"local": "good"}
BAD: list[tuple[dict[str, Any], type[RotaError], str, str]] = [
    ({"timeout": "soon"}, InvalidInput, ".jobs[1].timeout", "not a duration: 'soon'"),
    ({"idle_timeout": "0s"}, InvalidInput, ".jobs[1].idle_timeout", "idle_timeout must be longer"),
    ({"delay": "5"}, InvalidInput, ".jobs[1].delay", "not a duration"),
    ({"command": [""]}, InvalidInput, ".jobs[1].command", "the command is empty"),
    ({"command": ["x", "a" * 131072]}, InvalidInput, ".jobs[1].command[1]", "put the text in a file"),
    ({"priority": 10**7}, InvalidInput, ".jobs[1].priority", "out of range"),
    ({"pools": {"x": 1}}, InvalidInput, ".jobs[1].pools", "not a pool name"),
    ({"type": "a b"}, InvalidInput, ".jobs[1].type", "not a usable type"),
    ({"phase": "p"}, InvalidInput, ".jobs[1].phase", "name the `flow` too"),
    ({"locks": [{"key": "a"}, {"key": ""}]}, InvalidInput, ".jobs[1].locks[1]", "not a usable lock key"),
    ({"cwd": "here"}, InvalidInput, ".jobs[1].cwd", "absolute"),
    ({"env": {"": "x"}}, InvalidInput, ".jobs[1].env", "not a usable environment variable"),
    ({"retry": "never"}, InvalidInput, ".jobs[1].retry", "unknown retry policy"),
    ({"retries": -1}, InvalidInput, ".jobs[1].retries", "retries go from 0"),
    ({"after": ["good", "job-99"]}, NotFound, ".jobs[1].after[1]", "unknown --after job id: job-99"),
    ({"after": ["god"]}, InvalidInput, ".jobs[1].after[0]", "not a job id: 'god'"),
    ({"after": ["good", "other"], "local": "other"}, InvalidInput, ".jobs[1].after[1]", "self dependency: other"),
    ({"needs": ["file:a", "plan_doc:"]}, InvalidInput, ".jobs[1].needs[1]", "plan_doc"),
    ({"produces": ["file:a", "x"]}, InvalidInput, ".jobs[1].produces[1]", "unknown artifact type"),
    ({"pin": "main@xyz"}, InvalidInput, ".jobs[1].pin", "malformed pin"),
    ({"needs": ["command_patch:job-9"]}, NotFound, ".jobs[1].needs[0]", "unknown job in `needs` command_patch:job-9"),
    ({"unique": ""}, InvalidInput, ".jobs[1].unique", "not a usable unique key"),
    ({"webhooks": ["http://a/", "ftp://x"]}, InvalidInput, ".jobs[1].webhooks[1]", "not a usable URL: ftp://x"),
    ({"webhooks": ["http://169.254.169.254/"]}, InvalidInput, ".jobs[1].webhooks[0]", "169.254.169.254 is refused"),
    ({"webhook_events": ["job.run.ended"]}, InvalidInput, ".jobs[1].webhook_events[0]", "nobody is told of"),
    ({"local": "good"}, InvalidInput, ".jobs[1].local", "two jobs are called 'good'"),
    ({"local": "a b"}, InvalidInput, ".jobs[1].local", "not a usable local name"),
]


@pytest.mark.parametrize(("member", "kind", "path", "text"), BAD, ids=[case[2] + case[3] for case in BAD])
def test_a_refusal_of_a_batch_names_the_place(
    scheduler: Scheduler, raw: Raw, member: Mapping[str, Any], kind: type[RotaError], path: str, text: str
) -> None:
    with pytest.raises(kind) as caught:
        scheduler.submit_group(GOOD, member)
    assert (caught.value.path, text in caught.value.message) == (path, True), caught.value.message
    assert raw("SELECT count(*) FROM job") == raw("SELECT count(*) FROM job_group") == [(0,)]


def test_a_key_that_two_ask_for_is_found_at_the_second(scheduler: Scheduler) -> None:
    with pytest.raises(InvalidInput, match="have one unique key") as caught:
        scheduler.submit_group({"unique": "k"}, {}, {"unique": "k"})
    assert caught.value.path == ".jobs[2].unique"


@pytest.mark.parametrize(
    ("group", "path"), [({"name": "a b"}, ".group.name"), ({"on_failure": "never"}, ".group.on_failure")]
)
def test_what_is_wrong_with_the_group_itself(scheduler: Scheduler, group: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        scheduler.submit_group({}, **group)
    assert caught.value.path == path


def test_a_cycle_is_named_as_its_writer_named_the_jobs(scheduler: Scheduler) -> None:
    with pytest.raises(InvalidInput, match=r"^invalid --after cycle: a -> c -> b -> a$") as caught:
        scheduler.submit_group(
            {"local": "x"},
            {"local": "a", "after": ["c"]},
            {"local": "b", "after": ["a"]},
            {"local": "c", "after": ["b"]},
        )
    assert caught.value.path == ".jobs[1].after"


def test_a_ring_over_artifacts_too(scheduler: Scheduler) -> None:
    with pytest.raises(InvalidInput, match=r"^invalid `needs` cycle: (a -> b -> a|b -> a -> b)$") as caught:
        scheduler.submit_group(
            {"local": "a", "needs": ["file:/x"], "produces": ["file:/y"]},
            {"local": "b", "needs": ["file:/y"], "produces": ["file:/x"]},
        )
    assert caught.value.path == ".jobs[0].needs"


def test_a_refusal_says_the_place_once_though_the_turn_was_done_twice(scheduler: Scheduler) -> None:
    """A refusal that came with the survey is raised again when the turn's pieces are done one by one."""
    with pytest.raises(InvalidInput) as caught:
        scheduler.submit_group(GOOD, {"produces": ["command_patch:job-1"]})
    assert caught.value.path == ".jobs[1].produces[0]"


@pytest.mark.parametrize("shape", ["chain", "fan"])
def test_thousands_hang_together(scheduler: Scheduler, raw: Raw, shape: str) -> None:
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
    assert raw("SELECT count(*) FROM edge") == [(edges,)]
