"""Templates from their making to what their jobs run: checked whole, and no job is touched by a change (INV-005)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from harness import Raw, Scheduler
from rota.command import template as command
from rota.command.edit import Edit, Edited, edit
from rota.command.expand import expand_all, find
from rota.command.slot import SlotWanted, expand_slot
from rota.command.submission import Submission, Surroundings
from rota.command.submit import Answer, Submitted, submit
from rota.core.lock import Lock, LockMode
from rota.core.status import Status
from rota.core.template import Template
from rota.errors import Conflict, InvalidInput, NotFound
from rota.ids import JobId

pytestmark = pytest.mark.usefixtures("whole_at_the_end")

STORY: dict[str, Any] = {
    "name": "story",
    "command": ["write", "--model={model}", "--", "{prompt}"],
    "default_params": {"model": "small", "n": 1},
    "params_schema": {"required": ["prompt"], "properties": {"prompt": {"type": "string"}, "n": {"type": "integer"}}},
}


def add(scheduler: Scheduler, **fields: Any) -> command.Stored:
    name, body = command.parse_new({**STORY, **fields})
    stored: command.Stored = scheduler.do(lambda work: command.add(work, name, body, actor="ann"))
    return stored


def change(scheduler: Scheduler, asked: str, *, is_whole: bool = False, **changes: Any) -> command.Stored:
    stored: command.Stored = scheduler.do(
        lambda work: command.change(work, asked, changes, is_whole=is_whole, actor="bob")
    )
    return stored


def archive(scheduler: Scheduler, asked: str) -> None:
    scheduler.do(lambda work: command.archive(work, asked, actor="bob"))


def unarchive(scheduler: Scheduler, asked: str) -> None:
    scheduler.do(lambda work: command.unarchive(work, asked, actor="bob"))


def template(scheduler: Scheduler, asked: str) -> Template:
    return find(scheduler.reader, asked)


def answered(scheduler: Scheduler, *bodies: dict[str, Any]) -> Answer:
    """As a submit over HTTP."""
    asked = [msgspec.convert(body, Submission) for body in bodies]
    around = Surroundings(cwd="/", variables={"PATH": "/bin", "A": "scheduler"})
    made = expand_all(scheduler.reader, asked)
    told: Answer = scheduler.do(
        lambda work: submit(work, made.wanted, around, actor="ann", warnings=made.warnings, origins=made.origins)
    )
    return told


def submitted(scheduler: Scheduler, asked: str = "story", **fields: Any) -> JobId:
    told = answered(scheduler, {"template": asked, "params": {"prompt": "a tale"}, **fields})
    assert isinstance(told, Submitted)
    return told.jobs[0]


def edited(scheduler: Scheduler, job: JobId, **changes: Any) -> Edited:
    told: Edited = scheduler.do(lambda work: edit(work, job, msgspec.convert(changes, Edit), actor="ann"))
    return told


def test_a_job_of_a_template_has_its_places_filled_and_its_params_whole(wide: Scheduler) -> None:
    add(wide)
    job = submitted(wide, params={"prompt": "--x {model} $(y)\n", "more": [1]})
    spec = wide.job(job).spec
    assert spec.command == ("write", "--model=small", "--", "--x {model} $(y)\n")
    assert spec.params == {"model": "small", "n": 1, "prompt": "--x {model} $(y)\n", "more": [1]}
    assert wide.executor.starts[0].argv == spec.command
    assert wide.show(job).template == "template-1"


def test_dec_007_a_job_of_a_template_is_tried_again_three_times_unless_it_says_otherwise(closed: Scheduler) -> None:
    def retries(asked: str, **fields: Any) -> int | None:
        policy = closed.job(submitted(closed, asked, **fields)).spec.retry
        return None if policy is None else policy.max_retries

    add(closed)
    add(closed, name="patient", retries=7)
    add(closed, name="once", retries=0)
    add(closed, name="named", retry="fleet", retries=9)
    assert [retries("story"), retries("story", retries=0), retries("patient"), retries("once")] == [3, 0, 7, 0]
    assert [retries("once", retries=2), retries("story", flow="f"), retries("named")] == [2, 5, 9]
    assert retries("named", retry="default") == 3


EVERYTHING = {
    **STORY, "default_params": {"model": "m", "who": "ann"}, "job_name": "for {who}", "type": "t", "priority": 3,
    "pools": {"resource/a": 1, "resource/b": 2}, "locks": ["door/{who}", {"key": "wall", "mode": "shared"}],
    "flow": "f-{who}", "phase": "p", "target": "t-{who}", "unique": "u/{who}", "timeout": "1h", "idle_timeout": "5m",
    "skip_if": "false {}", "env": {"A": "template", "B": "template"},
}  # fmt: skip


def test_everything_a_template_says_reaches_the_job(closed: Scheduler) -> None:
    add(closed, **EVERYTHING)
    job = closed.job(submitted(closed))
    spec = job.spec
    assert (spec.name, spec.type, job.priority, spec.flow, spec.phase) == ("for ann", "t", 3, "f-ann", "p")
    assert (spec.target, job.unique, spec.skip_if) == ("t-ann", "u/ann", "false {}")
    assert spec.pools == {"resource/a": 1, "resource/b": 2}
    assert {lock.key for lock in spec.locks} == {"door/ann", "wall", "phase/p/f-ann"}
    assert (str(spec.timeout), str(spec.idle_timeout)) == ("1:00:00", "0:05:00")


def test_what_the_submit_says_itself_wins_and_lists_are_joined(closed: Scheduler) -> None:
    add(closed, **EVERYTHING)
    job = closed.job(submitted(
        closed, name="mine {who}", type="o", priority=0, flow="g", phase="q", parallelizable=True, target="x",
        unique="y", timeout="2h", idle_timeout="6m", skip_if="true", pools={"resource/b": 5, "resource/c": 1},
        locks=[{"key": "wall"}, {"key": "roof"}],
    ))  # fmt: skip
    spec = job.spec
    assert (spec.name, spec.type, job.priority, spec.flow, spec.phase) == ("mine {who}", "o", 0, "g", "q")
    assert (spec.target, job.unique, spec.skip_if, str(spec.timeout)) == ("x", "y", "true", "2:00:00")
    assert spec.pools == {"resource/a": 1, "resource/b": 5, "resource/c": 1}
    assert spec.locks == tuple(Lock(key=key, mode=LockMode.EXCLUSIVE) for key in ("door/ann", "roof", "wall"))


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, {"A": "template", "B": "template", "PATH": "/bin"}),
        ({"env": {"A": "submit"}}, {"A": "submit", "B": "template", "PATH": "/bin"}),
        ({"env": {"A": "shell", "C": "shell"}, "inherit_env": False}, {"A": "template", "B": "template", "C": "shell"}),
        ({"env": {"A": "asked", "B": "shell"}, "inherit_env": False, "env_given": ["A"]},
         {"A": "asked", "B": "template"}),
    ],
)  # fmt: skip
def test_its_environment_is_above_the_callers_and_below_what_is_asked_for(
    closed: Scheduler, raw: Raw, fields: dict[str, Any], found: dict[str, str]
) -> None:
    add(closed, env={"A": "template", "B": "template"})
    spec = closed.job(submitted(closed, **fields)).spec
    ((text,),) = raw(f"SELECT variables FROM surroundings WHERE id = {spec.surroundings}")
    assert json.loads(text) == found


def test_inv_005_no_change_of_a_template_touches_a_job_that_exists(make_scheduler: Callable[..., Scheduler]) -> None:
    scheduler = make_scheduler(**{"global": 1})
    add(scheduler, retries=2, timeout="1h")
    running, waiting = submitted(scheduler), submitted(scheduler, delay="1d")
    before = scheduler.job(running).spec
    change(scheduler, "story", command=["other"], params_schema=None, retries=0, timeout=None, default_params={"z": 1})
    archive(scheduler, "story")
    assert scheduler.job(waiting).spec == before
    scheduler.end(running, 1)
    scheduler.clock.advance(minutes=10)
    scheduler.turn()
    retried = scheduler.executor.starts[-1]
    assert (retried.argv, retried.timeout) == (before.command, 3600.0)
    assert scheduler.job(retried.job).retry_of == running
    assert scheduler.job(retried.job).spec == before
    scheduler.end(retried.job, 0)
    scheduler.rewind(retried.job)
    assert scheduler.job(retried.job).spec == before


def test_inv_005_an_edit_checks_the_schema_of_then_and_fills_the_command_of_then(closed: Scheduler) -> None:
    add(closed, job_name="{prompt}!")
    job = submitted(closed)
    change(closed, "story", is_whole=True, command=["other", "{prompt}"], default_params={"prompt": 1})
    with pytest.raises(InvalidInput, match=r'^params\.prompt: 5 is not of type "string"$'):
        edited(closed, job, set_params={"prompt": 5})
    with pytest.raises(InvalidInput, match="required property"):
        edited(closed, job, unset_params=["prompt"])
    assert closed.job(job).spec.command == ("write", "--model=small", "--", "a tale")
    told = edited(closed, job, set_params={"prompt": "{n}", "model": "big"})
    assert (told.fields, told.warnings) == (["command", "name", "params"], [])
    assert closed.job(job).spec.command == ("write", "--model=big", "--", "{n}")
    assert closed.job(job).spec.name == "{n}!"


def test_what_is_written_by_hand_follows_the_params_no_more(closed: Scheduler) -> None:
    add(closed, job_name="{prompt}!")
    job = submitted(closed)
    assert edited(closed, job, command=["hand"], name="mine").fields == ["command", "name"]
    told = edited(closed, job, set_params={"prompt": "new"})
    assert told.fields == ["params"]
    assert told.warnings == ["its command was written by hand, so its params do not change it"]
    with pytest.raises(InvalidInput, match=r"params\.prompt"):
        edited(closed, job, params={"prompt": 1})


def test_a_param_in_what_is_fixed_at_submit_cannot_be_edited(closed: Scheduler) -> None:
    add(closed, locks=["model/{model}"])
    job = submitted(closed)
    with pytest.raises(InvalidInput, match="param model has a place in its locks, which is fixed at submit"):
        edited(closed, job, set_params={"model": "big"})
    assert edited(closed, job, set_params={"prompt": "x"}).fields == ["command", "params"]


def test_after_dispatch_an_edit_names_what_was_asked_for(wide: Scheduler) -> None:
    add(wide)
    job = submitted(wide)
    with pytest.raises(Conflict, match=r"^Cannot modify params after dispatch"):
        edited(wide, job, set_params={"prompt": "x"})


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ({"template": "stroy"}, NotFound, "no such template: stroy; did you mean story?"),
        ({"template": "template-9"}, NotFound, "no such template: template-9"),
        ({"template": "story"}, InvalidInput, 'params: "prompt" is a required property'),
        ({"template": "story", "params": {"prompt": 5}}, InvalidInput, 'params.prompt: 5 is not of type "string"'),
        ({"template": "story", "command": ["x"], "params": {"prompt": ""}}, InvalidInput, "brings its own command"),
        ({"template": "old"}, Conflict, "template old is archived (since 2026-01-01 00:00 UTC); unarchive it with"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_is_stored(
    closed: Scheduler, body: dict[str, Any], kind: type[Exception], text: str
) -> None:
    add(closed)
    add(closed, name="old")
    archive(closed, "old")
    with pytest.raises(kind) as refused:
        answered(closed, {"template": "story", "params": {"prompt": "good"}}, body)
    assert text in str(refused.value)
    assert closed.reader.counts() == {}


def test_a_param_that_nobody_declared_is_only_said(closed: Scheduler) -> None:
    add(closed)
    told = answered(closed, {"template": "story", "params": {"prompt": "x", "modle": "y"}})
    assert isinstance(told, Submitted)
    assert "template story declares no param modle (did you mean model?)" in told.warnings


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"handler": "x:y"}, "no field handler: handlers in Python come later; write a command"),
        ({"comand": []}, "no field comand: did you mean command?"),
        ({"zzz": 1}, "no field zzz: known are name, description, command"),
        ({"name": "a b"}, "not a usable name of a template: 'a b'"),
        ({"name": "template-1"}, "not a usable name"),
        ({"name": "a/b"}, "not a usable name"),
        ({"name": None}, "a template needs a name"),
        ({"command": []}, "a template needs a command"),
        ({"command": "x"}, "the template cannot be used: Expected `array`, got `str` - at `$.command`"),
        ({"skip_if": "test {model} = x"}, "skip_if has a place {model}, but it is a shell's text"),
        ({"timeout": "soon"}, "soon"),
        ({"pools": {"ollama": 1}}, "not a pool name: 'ollama'"),
        ({"retry": "neet"}, "unknown retry policy: 'neet'"),
        ({"phase": "p"}, "name the `flow` too"),
        ({"needs": ["plan.md"]}, "plan.md"),
        ({"base": "main"}, "add worktree = true"),
        ({"priority": 10**9}, "priority 1000000000 is out of range"),
        ({"env": {"A=B": "x"}}, "not a usable environment variable"),
        ({"locks": [{"key": ""}]}, "not a usable lock key"),
        ({"params_schema": {"properties": {"a": {"type": "strin"}}}}, "params_schema.properties.a.type"),
        ({"params_schema": {"$ref": "http://x/y"}}, "nothing is fetched"),
    ],
)  # fmt: skip
def test_a_template_that_could_make_no_job_is_refused_whole(
    closed: Scheduler, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        add(closed, **fields)
    assert text in refused.value.message
    assert closed.reader.templates(with_archived=True) == []


def test_what_is_only_strange_is_said(closed: Scheduler) -> None:
    stored = add(closed, command=["x", "{promt}", "{print}"], default_params={"n": "1"})
    assert stored.warnings == [
        "'{promt}' is no place and stays as it is: no param promt is declared, but prompt is",
        'default_params.n: "1" is not of type "integer"',
    ]


def test_a_name_is_of_one_template_in_use(closed: Scheduler) -> None:
    add(closed)
    with pytest.raises(Conflict, match="there is a template story already: `rota template change story`"):
        add(closed)
    archive(closed, "story")
    archive(closed, "story")
    assert [event.kind for event in closed.events] == ["template.created", "template.archived"]
    second = add(closed).template
    assert template(closed, "story").id == second
    with pytest.raises(Conflict, match="already"):
        unarchive(closed, "template-1")
    add(closed, name="other")
    with pytest.raises(Conflict, match="already"):
        change(closed, "other", name="story")
    change(closed, "story", name="tale")
    unarchive(closed, "template-1")
    assert (template(closed, "story").id, template(closed, "tale").id) == (1, second)


def test_a_change_is_of_what_it_names_or_of_the_whole(closed: Scheduler) -> None:
    add(closed, timeout="1h", type="t")
    assert change(closed, "story", timeout=None, set_default_params={"n": 2}).fields == ["default_params", "timeout"]
    body = template(closed, "story").body
    assert (body.timeout, body.type, body.default_params) == (None, "t", {"model": "small", "n": 2})
    assert change(closed, "story", type="t").fields == []
    assert change(closed, "template-1", is_whole=True, command=["x"]).fields == [
        "command", "default_params", "params_schema", "type",
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="skip_if has a place"):
        change(closed, "story", default_params={"a": 1}, skip_if="{a}")
    assert template(closed, "story").body.skip_if is None
    kinds = [event.kind for event in closed.events]
    assert kinds == ["template.created", "template.changed", "template.changed"]
    assert closed.events[-1].actor == "bob"


def test_a_direct_execution_draws_like_a_job_of_its_template(wide: Scheduler) -> None:
    add(wide, **EVERYTHING)
    wanted = expand_slot(wide.reader, SlotWanted(template="story", params={"prompt": "x"}, locks=[]))
    assert wanted.command == ["write", "--model=m", "--", "x"]
    assert (wanted.type, wanted.flow, wanted.target, wanted.timeout) == ("t", "f-ann", "t-ann", "1h")
    assert [lock.key for lock in wanted.locks] == ["door/ann", "wall", "phase/p/f-ann"]
    assert wanted.params == {"model": "m", "who": "ann", "prompt": "x"}


@pytest.mark.parametrize(("field", "text"), [("worktree", "in a worktree of its own"), ("patch", "with a patch")])
def test_a_direct_execution_has_no_worktree_so_it_is_refused(closed: Scheduler, field: str, text: str) -> None:
    add(closed, **{field: True})
    with pytest.raises(InvalidInput, match=f"{text}.*submit it instead"):
        expand_slot(closed.reader, SlotWanted(template="story", params={"prompt": "x"}))


def test_many_of_one_template_are_looked_up_once(closed: Scheduler) -> None:
    add(closed)
    told = answered(
        closed, *({"template": "story", "params": {"prompt": str(n)}} for n in range(200)), {"command": ["x"]}
    )
    assert isinstance(told, Submitted)
    assert closed.job(told.jobs[199]).spec.command[-1] == "199"
    by_hand = closed.job(told.jobs[200]).spec
    assert (by_hand.template, by_hand.retry, by_hand.recipe) == (None, None, None)
    assert closed.job(told.jobs[0]).status is Status.QUEUED


def test_params_of_the_submit_win_by_key(closed: Scheduler) -> None:
    add(closed, default_params={"model": {"a": 1}, "n": 1})
    job = submitted(closed, params={"prompt": "x", "model": {"b": 2}})
    assert closed.job(job).spec.params == {"prompt": "x", "model": {"b": 2}, "n": 1}


@pytest.mark.parametrize(
    ("fields", "worktree", "base"),
    [
        ({}, True, "main"),
        ({"base": "other"}, True, "other"),
        ({"worktree": True}, True, "main"),
        ({"worktree": False}, False, None),
    ],
)
def test_a_worktree_is_the_submits_or_the_templates(
    closed: Scheduler, fields: dict[str, Any], worktree: bool, base: str | None
) -> None:
    add(closed, worktree=True, base="main", patch=True)
    wanted = Submission(template="story", params={"prompt": "x"}, **fields)
    (made,) = expand_all(closed.reader, [wanted]).wanted
    assert (made.worktree, made.base, made.patch) == (worktree, base, True)


def test_artifacts_have_places_and_are_joined(closed: Scheduler) -> None:
    add(closed, needs=["file:{model}.in"], produces=["file:{model}.out"])
    wanted = Submission(template="story", params={"prompt": "x"}, needs=["file:b", "file:small.in"])
    (made,) = expand_all(closed.reader, [wanted]).wanted
    assert (made.needs, made.produces) == (["file:b", "file:small.in"], ["file:small.out"])
