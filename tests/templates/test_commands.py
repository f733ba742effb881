"""Templates and their jobs: templates are checked completely, and a change affects no existing job (INV-005)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rota.direct.commands import ReservationRequest, expand_reservation
from rota.errors import Conflict, InvalidInput, NotFound
from rota.ids import JobId
from rota.jobs.edit import EditOutcome, EditRequest, edit
from rota.jobs.submission import DefaultEnvironment, Submission
from rota.jobs.submit import AcceptedSubmit, SubmitOutcome, submit
from rota.kernel.locks import Lock, LockMode
from rota.kernel.status import Status
from rota.templates import commands
from rota.templates.expand import expand_all, find_template
from rota.templates.model import Template
from tests.harness import Scheduler, SqlRunner

STORY: dict[str, Any] = {
    "name": "story",
    "command": ["write", "--model={model}", "--", "{prompt}"],
    "default_params": {"model": "small", "n": 1},
    "params_schema": {"required": ["prompt"], "properties": {"prompt": {"type": "string"}, "n": {"type": "integer"}}},
}


def add_template(scheduler: Scheduler, **fields: Any) -> commands.TemplateOutcome:
    name, body = commands.parse_template_document({**STORY, **fields})
    stored: commands.TemplateOutcome = scheduler.run_request(
        lambda tx: commands.add_template(tx, name, body, actor="ann")
    )
    return stored


def change_template(
    scheduler: Scheduler, template: str, *, is_replacement: bool = False, **changes: Any
) -> commands.TemplateOutcome:
    stored: commands.TemplateOutcome = scheduler.run_request(
        lambda tx: commands.change_template(tx, template, changes, is_replacement=is_replacement, actor="bob")
    )
    return stored


def archive_template(scheduler: Scheduler, template: str) -> None:
    scheduler.run_request(lambda tx: commands.archive_template(tx, template, actor="bob"))


def unarchive_template(scheduler: Scheduler, template: str) -> None:
    scheduler.run_request(lambda tx: commands.unarchive_template(tx, template, actor="bob"))


def read_template(scheduler: Scheduler, template: str) -> Template:
    return find_template(scheduler.reader, template)


def submit_bodies(scheduler: Scheduler, *bodies: dict[str, Any]) -> SubmitOutcome:
    """Submit like a request over HTTP."""
    request = [msgspec.convert(body, Submission) for body in bodies]
    environment = DefaultEnvironment(cwd="/", variables={"PATH": "/bin", "A": "scheduler"})
    expanded = expand_all(scheduler.reader, request)
    result: SubmitOutcome = scheduler.run_request(
        lambda tx: submit(
            tx, expanded.submissions, environment, actor="ann", warnings=expanded.warnings, origins=expanded.origins
        )
    )
    return result


def submit_from_template(scheduler: Scheduler, template: str = "story", **fields: Any) -> JobId:
    result = submit_bodies(scheduler, {"template": template, "params": {"prompt": "a tale"}, **fields})
    assert isinstance(result, AcceptedSubmit)
    return result.jobs[0]


def edit_job(scheduler: Scheduler, job: JobId, **changes: Any) -> EditOutcome:
    result: EditOutcome = scheduler.run_request(
        lambda tx: edit(tx, job, msgspec.convert(changes, EditRequest), actor="ann")
    )
    return result


def test_template_job_has_filled_placeholders_and_merged_params(unlimited_scheduler: Scheduler) -> None:
    add_template(unlimited_scheduler)
    job = submit_from_template(unlimited_scheduler, params={"prompt": "--x {model} $(y)\n", "more": [1]})
    spec = unlimited_scheduler.job(job).spec
    assert spec.command == ("write", "--model=small", "--", "--x {model} $(y)\n")
    assert spec.params == {"model": "small", "n": 1, "prompt": "--x {model} $(y)\n", "more": [1]}
    assert unlimited_scheduler.executor.starts[0].argv == spec.command
    assert unlimited_scheduler.show_job(job).template == "template-1"


def test_dec_007_template_job_has_three_retries_by_default(idle_scheduler: Scheduler) -> None:
    def retries(template: str, **fields: Any) -> int | None:
        policy = idle_scheduler.job(submit_from_template(idle_scheduler, template, **fields)).spec.retry
        return None if policy is None else policy.max_retries

    add_template(idle_scheduler)
    add_template(idle_scheduler, name="patient", retries=7)
    add_template(idle_scheduler, name="once", retries=0)
    add_template(idle_scheduler, name="named", retry="fleet", retries=9)
    assert [retries("story"), retries("story", retries=0), retries("patient"), retries("once")] == [3, 0, 7, 0]
    assert [retries("once", retries=2), retries("story", flow="f"), retries("named")] == [2, 5, 9]
    assert retries("named", retry="default") == 3


FULL_TEMPLATE = {
    **STORY,
    "default_params": {"model": "m", "who": "ann"},
    "job_name": "for {who}",
    "type": "t",
    "priority": 3,
    "pools": {"resource/a": 1, "resource/b": 2},
    "locks": ["door/{who}", {"key": "wall", "mode": "shared"}],
    "flow": "f-{who}",
    "phase": "p",
    "target": "t-{who}",
    "unique": "u/{who}",
    "timeout": "1h",
    "idle_timeout": "5m",
    "skip_if": "false {}",
    "env": {"A": "template", "B": "template"},
}


def test_job_gets_all_fields_of_template(idle_scheduler: Scheduler) -> None:
    add_template(idle_scheduler, **FULL_TEMPLATE)
    job = idle_scheduler.job(submit_from_template(idle_scheduler))
    spec = job.spec
    assert (spec.name, spec.type, job.priority, spec.flow, spec.phase) == ("for ann", "t", 3, "f-ann", "p")
    assert (spec.target, job.unique, spec.skip_if) == ("t-ann", "u/ann", "false {}")
    assert spec.pools == {"resource/a": 1, "resource/b": 2}
    assert {lock.key for lock in spec.locks} == {"door/ann", "wall", "phase/p/f-ann"}
    assert (str(spec.timeout), str(spec.idle_timeout)) == ("1:00:00", "0:05:00")


def test_submit_overrides_template_and_lists_are_merged(idle_scheduler: Scheduler) -> None:
    add_template(idle_scheduler, **FULL_TEMPLATE)
    job = idle_scheduler.job(
        submit_from_template(
            idle_scheduler,
            name="mine {who}",
            type="o",
            priority=0,
            flow="g",
            phase="q",
            parallelizable=True,
            target="x",
            unique="y",
            timeout="2h",
            idle_timeout="6m",
            skip_if="true",
            pools={"resource/b": 5, "resource/c": 1},
            locks=[{"key": "wall"}, {"key": "roof"}],
        )
    )
    spec = job.spec
    assert (spec.name, spec.type, job.priority, spec.flow, spec.phase) == ("mine {who}", "o", 0, "g", "q")
    assert (spec.target, job.unique, spec.skip_if, str(spec.timeout)) == ("x", "y", "true", "2:00:00")
    assert spec.pools == {"resource/a": 1, "resource/b": 5, "resource/c": 1}
    assert spec.locks == tuple(Lock(key=key, mode=LockMode.EXCLUSIVE) for key in ("door/ann", "roof", "wall"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"A": "template", "B": "template", "PATH": "/bin"}),
        ({"env": {"A": "submit"}}, {"A": "submit", "B": "template", "PATH": "/bin"}),
        ({"env": {"A": "shell", "C": "shell"}, "inherit_env": False}, {"A": "template", "B": "template", "C": "shell"}),
        (
            {"env": {"A": "asked", "B": "shell"}, "inherit_env": False, "explicit_env": ["A"]},
            {"A": "asked", "B": "template"},
        ),
    ],
)
def test_template_environment_overrides_caller_but_not_explicit_variables(
    idle_scheduler: Scheduler, run_sql: SqlRunner, fields: dict[str, Any], expected: dict[str, str]
) -> None:
    add_template(idle_scheduler, env={"A": "template", "B": "template"})
    spec = idle_scheduler.job(submit_from_template(idle_scheduler, **fields)).spec
    ((text,),) = run_sql(f"SELECT variables FROM environment WHERE id = {spec.environment}")
    assert json.loads(text) == expected


def test_inv_005_template_change_does_not_affect_existing_jobs(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 1})
    add_template(scheduler, retries=2, timeout="1h")
    running, waiting = submit_from_template(scheduler), submit_from_template(scheduler, delay="1d")
    before = scheduler.job(running).spec
    change_template(
        scheduler, "story", command=["other"], params_schema=None, retries=0, timeout=None, default_params={"z": 1}
    )
    archive_template(scheduler, "story")
    assert scheduler.job(waiting).spec == before
    scheduler.end_run(running, 1)
    scheduler.clock.advance(minutes=10)
    scheduler.run_turns()
    retried = scheduler.executor.starts[-1]
    assert (retried.argv, retried.timeout) == (before.command, 3600.0)
    assert scheduler.job(retried.job).retry_of == running
    assert scheduler.job(retried.job).spec == before
    scheduler.end_run(retried.job, 0)
    scheduler.rewind(retried.job)
    assert scheduler.job(retried.job).spec == before


def test_inv_005_edit_uses_schema_and_command_of_submit(idle_scheduler: Scheduler) -> None:
    add_template(idle_scheduler, job_name="{prompt}!")
    job = submit_from_template(idle_scheduler)
    change_template(
        idle_scheduler, "story", is_replacement=True, command=["other", "{prompt}"], default_params={"prompt": 1}
    )
    with pytest.raises(InvalidInput, match=r'^params\.prompt: 5 is not of type "string"$'):
        edit_job(idle_scheduler, job, set_params={"prompt": 5})
    with pytest.raises(InvalidInput, match="required property"):
        edit_job(idle_scheduler, job, unset_params=["prompt"])
    assert idle_scheduler.job(job).spec.command == ("write", "--model=small", "--", "a tale")
    result = edit_job(idle_scheduler, job, set_params={"prompt": "{n}", "model": "big"})
    assert (result.fields, result.warnings) == (["command", "name", "params"], [])
    assert idle_scheduler.job(job).spec.command == ("write", "--model=big", "--", "{n}")
    assert idle_scheduler.job(job).spec.name == "{n}!"


def test_command_set_by_hand_ignores_later_params(idle_scheduler: Scheduler) -> None:
    add_template(idle_scheduler, job_name="{prompt}!")
    job = submit_from_template(idle_scheduler)
    assert edit_job(idle_scheduler, job, command=["hand"], name="mine").fields == ["command", "name"]
    result = edit_job(idle_scheduler, job, set_params={"prompt": "new"})
    assert result.fields == ["params"]
    assert result.warnings == ["its command was set by hand, so its params do not change it"]
    with pytest.raises(InvalidInput, match=r"params\.prompt"):
        edit_job(idle_scheduler, job, params={"prompt": 1})


def test_param_used_in_fixed_field_cannot_be_edited(idle_scheduler: Scheduler) -> None:
    add_template(idle_scheduler, locks=["model/{model}"])
    job = submit_from_template(idle_scheduler)
    with pytest.raises(InvalidInput, match="param model has a placeholder in locks, which is fixed at submit"):
        edit_job(idle_scheduler, job, set_params={"model": "big"})
    assert edit_job(idle_scheduler, job, set_params={"prompt": "x"}).fields == ["command", "params"]


def test_edit_of_template_job_after_dispatch_names_params(unlimited_scheduler: Scheduler) -> None:
    add_template(unlimited_scheduler)
    job = submit_from_template(unlimited_scheduler)
    with pytest.raises(Conflict, match=r"^Cannot modify params after dispatch"):
        edit_job(unlimited_scheduler, job, set_params={"prompt": "x"})


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ({"template": "stroy"}, NotFound, "no such template: stroy; did you mean story?"),
        ({"template": "template-9"}, NotFound, "no such template: template-9"),
        ({"template": "story"}, InvalidInput, 'params: "prompt" is a required property'),
        ({"template": "story", "params": {"prompt": 5}}, InvalidInput, 'params.prompt: 5 is not of type "string"'),
        ({"template": "story", "command": ["x"], "params": {"prompt": ""}}, InvalidInput, "has its own command"),
        ({"template": "old"}, Conflict, "template old is archived (since 2026-01-01 00:00 UTC); unarchive it with"),
    ],
)
def test_unusable_template_is_refused_and_nothing_is_stored(
    idle_scheduler: Scheduler, body: dict[str, Any], kind: type[Exception], text: str
) -> None:
    add_template(idle_scheduler)
    add_template(idle_scheduler, name="old")
    archive_template(idle_scheduler, "old")
    with pytest.raises(kind) as refused:
        submit_bodies(idle_scheduler, {"template": "story", "params": {"prompt": "good"}}, body)
    assert text in str(refused.value)
    assert idle_scheduler.reader.jobs.count_by_status() == {}


def test_undeclared_param_is_a_warning(idle_scheduler: Scheduler) -> None:
    add_template(idle_scheduler)
    result = submit_bodies(idle_scheduler, {"template": "story", "params": {"prompt": "x", "modle": "y"}})
    assert isinstance(result, AcceptedSubmit)
    assert "template story declares no param modle (did you mean model?)" in result.warnings


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"handler": "x:y"}, "no field handler: Python handlers are not supported; use a command"),
        ({"comand": []}, "no field comand: did you mean command?"),
        ({"zzz": 1}, "no field zzz: known fields are name, description, command"),
        ({"name": "a b"}, "not a usable name of a template: 'a b'"),
        ({"name": "template-1"}, "not a usable name"),
        ({"name": "a\nb"}, "which has a line break"),
        ({"name": "a/b"}, "not a usable name"),
        ({"name": None}, "a template needs a name"),
        ({"command": []}, "a template needs a command"),
        ({"command": "x"}, "the template cannot be used: Expected `array`, got `str` - at `$.command`"),
        ({"skip_if": "test {model} = x"}, "skip_if has a placeholder {model}, but it is a shell script"),
        ({"timeout": "soon"}, "soon"),
        ({"pools": {"ollama": 1}}, "not a pool name: 'ollama'"),
        ({"retry": "neet"}, "unknown retry policy: 'neet'"),
        ({"phase": "p"}, "set `flow` too"),
        ({"needs": ["plan.md"]}, "plan.md"),
        ({"base": "main"}, "add worktree = true"),
        ({"priority": 10**9}, "priority 1000000000 is out of range"),
        ({"env": {"A=B": "x"}}, "not a usable environment variable"),
        ({"locks": [{"key": ""}]}, "not a usable lock key"),
        ({"params_schema": {"properties": {"a": {"type": "strin"}}}}, "params_schema.properties.a.type"),
        ({"params_schema": {"$ref": "http://x/y"}}, "nothing is fetched"),
    ],
)
def test_invalid_template_is_refused_completely(idle_scheduler: Scheduler, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        add_template(idle_scheduler, **fields)
    assert text in refused.value.message
    assert idle_scheduler.reader.templates.list_all(with_archived=True) == []


def test_template_warnings(idle_scheduler: Scheduler) -> None:
    stored = add_template(idle_scheduler, command=["x", "{promt}", "{print}"], default_params={"n": "1"})
    assert stored.warnings == [
        "'{promt}' is literal text, because no param promt is declared; did you mean {prompt}?",
        'default_params.n: "1" is not of type "integer"',
    ]


def test_template_name_is_unique_among_active_templates(idle_scheduler: Scheduler) -> None:
    add_template(idle_scheduler)
    with pytest.raises(Conflict, match="template story already exists: `rota template change story`"):
        add_template(idle_scheduler)
    archive_template(idle_scheduler, "story")
    archive_template(idle_scheduler, "story")
    assert [event.kind for event in idle_scheduler.events] == ["template.created", "template.archived"]
    second = add_template(idle_scheduler).template
    assert read_template(idle_scheduler, "story").id == second
    with pytest.raises(Conflict, match="already"):
        unarchive_template(idle_scheduler, "template-1")
    add_template(idle_scheduler, name="other")
    with pytest.raises(Conflict, match="already"):
        change_template(idle_scheduler, "other", name="story")
    change_template(idle_scheduler, "story", name="tale")
    unarchive_template(idle_scheduler, "template-1")
    assert (read_template(idle_scheduler, "story").id, read_template(idle_scheduler, "tale").id) == (1, second)


def test_change_updates_named_fields_or_replaces_template(idle_scheduler: Scheduler) -> None:
    add_template(idle_scheduler, timeout="1h", type="t")
    assert change_template(idle_scheduler, "story", timeout=None, set_default_params={"n": 2}).fields == [
        "default_params",
        "timeout",
    ]
    body = read_template(idle_scheduler, "story").body
    assert (body.timeout, body.type, body.default_params) == (None, "t", {"model": "small", "n": 2})
    assert change_template(idle_scheduler, "story", type="t").fields == []
    assert change_template(idle_scheduler, "template-1", is_replacement=True, command=["x"]).fields == [
        "command",
        "default_params",
        "params_schema",
        "type",
    ]
    with pytest.raises(InvalidInput, match="skip_if has a placeholder"):
        change_template(idle_scheduler, "story", default_params={"a": 1}, skip_if="{a}")
    assert read_template(idle_scheduler, "story").body.skip_if is None
    kinds = [event.kind for event in idle_scheduler.events]
    assert kinds == ["template.created", "template.changed", "template.changed"]
    assert idle_scheduler.events[-1].actor == "bob"


def test_reservation_has_demand_of_template_job(unlimited_scheduler: Scheduler) -> None:
    add_template(unlimited_scheduler, **FULL_TEMPLATE)
    request = expand_reservation(
        unlimited_scheduler.reader, ReservationRequest(template="story", params={"prompt": "x"}, locks=[])
    )
    assert request.command == ["write", "--model=m", "--", "x"]
    assert (request.type, request.flow, request.target, request.timeout) == ("t", "f-ann", "t-ann", "1h")
    assert [lock.key for lock in request.locks] == ["door/ann", "wall", "phase/p/f-ann"]
    assert request.params == {"model": "m", "who": "ann", "prompt": "x"}


@pytest.mark.parametrize(("field", "text"), [("worktree", "in a worktree of its own"), ("patch", "with a patch")])
def test_reservation_from_worktree_template_is_refused(idle_scheduler: Scheduler, field: str, text: str) -> None:
    add_template(idle_scheduler, **{field: True})
    with pytest.raises(InvalidInput, match=f"{text}.*submit it instead"):
        expand_reservation(idle_scheduler.reader, ReservationRequest(template="story", params={"prompt": "x"}))


def test_many_jobs_of_one_template_are_submitted_together(idle_scheduler: Scheduler) -> None:
    add_template(idle_scheduler)
    result = submit_bodies(
        idle_scheduler, *({"template": "story", "params": {"prompt": str(n)}} for n in range(200)), {"command": ["x"]}
    )
    assert isinstance(result, AcceptedSubmit)
    assert idle_scheduler.job(result.jobs[199]).spec.command[-1] == "199"
    by_hand = idle_scheduler.job(result.jobs[200]).spec
    assert (by_hand.template, by_hand.retry, by_hand.template_snapshot) == (None, None, None)
    assert idle_scheduler.job(result.jobs[0]).status is Status.QUEUED


def test_submit_params_override_defaults_by_key(idle_scheduler: Scheduler) -> None:
    add_template(idle_scheduler, default_params={"model": {"a": 1}, "n": 1})
    job = submit_from_template(idle_scheduler, params={"prompt": "x", "model": {"b": 2}})
    assert idle_scheduler.job(job).spec.params == {"prompt": "x", "model": {"b": 2}, "n": 1}


@pytest.mark.parametrize(
    ("fields", "worktree", "base"),
    [
        ({}, True, "main"),
        ({"base": "other"}, True, "other"),
        ({"worktree": True}, True, "main"),
        ({"worktree": False}, False, None),
    ],
)
def test_worktree_comes_from_submit_or_template(
    idle_scheduler: Scheduler, fields: dict[str, Any], worktree: bool, base: str | None
) -> None:
    add_template(idle_scheduler, worktree=True, base="main", patch=True)
    request = Submission(template="story", params={"prompt": "x"}, **fields)
    (expanded,) = expand_all(idle_scheduler.reader, [request]).submissions
    assert (expanded.worktree, expanded.base, expanded.patch) == (worktree, base, True)


def test_template_artifacts_are_filled_and_merged(idle_scheduler: Scheduler) -> None:
    add_template(idle_scheduler, needs=["file:{model}.in"], produces=["file:{model}.out"])
    request = Submission(template="story", params={"prompt": "x"}, needs=["file:b", "file:small.in"])
    (expanded,) = expand_all(idle_scheduler.reader, [request]).submissions
    assert (expanded.needs, expanded.produces) == (["file:b", "file:small.in"], ["file:small.out"])
