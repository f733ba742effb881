"""Templates as the store keeps them, on both databases."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from harness import SchemaRefused
from rota.core.job import Spec
from rota.core.lock import LockMode
from rota.core.template import LockPlace, Recipe, Template, TemplateBody
from rota.ids import JobId, TemplateId
from store.desk import NOW, Desk, add_job

BODY = TemplateBody(
    command=("say", "{what}", ""), default_params={"what": "é", "n": [1, None]}, retries=0, worktree=True,
    params_schema={"properties": {"what": {}}}, locks=("a", LockPlace(key="b", mode=LockMode.SHARED)),
    pools={"resource/x": 2}, env={"A": "1"},
)  # fmt: skip


def add(desk: Desk, name: str, body: TemplateBody = BODY) -> TemplateId:
    with desk.writing() as session:
        return session.add_template(name, body, NOW, "ann")


def archive(desk: Desk, template: TemplateId, *, back: bool = False) -> None:
    found = desk.reader.templates_by_id([template])[template]
    with desk.writing() as session:
        session.archive_template(found, None if back else NOW, NOW, "ann")


def test_what_is_added_is_found_by_name_and_by_id(desk: Desk) -> None:
    first, second = add(desk, "one"), add(desk, "two", TemplateBody(command=("x",)))
    assert (first, second) == (1, 2)
    assert desk.reader.templates_by_name(["one", "none"]) == {
        "one": Template(id=first, name="one", body=BODY, created_at=NOW, changed_at=NOW)
    }
    assert [each.name for each in desk.reader.templates_by_id([second, TemplateId(9)]).values()] == ["two"]
    assert [each.name for each in desk.reader.templates()] == ["one", "two"]
    assert sorted(desk.reader.template_names()) == ["one", "two"]
    assert [(event.kind, event.cause, event.actor, event.data) for event in desk.events] == [
        ("template.created", "template", "ann", {"template": "template-2", "name": "two"})
    ]


def test_a_name_in_use_is_of_one(desk: Desk) -> None:
    add(desk, "one")
    with pytest.raises((SchemaRefused, Exception), match=r"(?i)unique"), desk.writing() as session:
        session.add_template("one", BODY, NOW, None)
    assert len(desk.reader.templates(with_archived=True)) == 1


def test_an_archived_one_leaves_its_name_and_is_the_second_choice(desk: Desk) -> None:
    first = add(desk, "one")
    archive(desk, first)
    assert desk.events[0].kind == "template.archived"
    assert desk.reader.templates() == []
    assert desk.reader.template_names() == []
    assert desk.reader.templates_by_name(["one"])["one"].archived_at == NOW
    second = add(desk, "one")
    assert desk.reader.templates_by_name(["one"])["one"].id == second
    assert [each.id for each in desk.reader.templates(with_archived=True)] == [first, second]
    archive(desk, second)
    archive(desk, first, back=True)
    assert desk.events[0].kind == "template.unarchived"
    assert desk.reader.templates_by_name(["one"])["one"].id == first


def test_a_change_is_of_all_but_the_id(desk: Desk) -> None:
    template = add(desk, "one")
    found = desk.reader.templates_by_id([template])[template]
    later = NOW + timedelta(days=1)
    with desk.writing() as session:
        session.change_template(
            msgspec.structs.replace(found, name="uno", body=TemplateBody(command=("y",))), later, "bob"
        )
    assert desk.reader.templates() == [
        Template(id=template, name="uno", body=TemplateBody(command=("y",)), created_at=NOW, changed_at=later)
    ]
    assert desk.events[0].kind == "template.changed"


def test_a_recipe_goes_with_the_job_and_to_its_retries(desk: Desk) -> None:
    template = add(desk, "one")
    recipe = Recipe(declared=("a",), schema={"type": "object"}, command=("x", "{a}"), settled={"a": "locks"})
    with desk.writing() as session:
        around = session.surroundings({})
        add_job(session, spec=Spec(command=("x", "1"), cwd="/", surroundings=around, template=template, recipe=recipe))
    desk.claim()
    desk.finish(JobId(1))
    with desk.writing() as session:
        session.add_retry(JobId(1), retries=0, not_before=None, now=NOW, cause="retry")
    for number in (1, 2):
        found = desk.reader.job(JobId(number))
        assert found is not None
        assert (found.spec.template, found.spec.recipe) == (template, recipe)


def test_a_record_that_cannot_be_read_hides_no_other(desk: Desk) -> None:
    add(desk, "one")
    add(desk, "two")
    desk.raw("""UPDATE template SET body = '{"from": "the future"}' WHERE id = 1""")
    assert [(each.name, each.body.command) for each in desk.reader.templates()] == [("one", ()), ("two", BODY.command)]


def test_an_archived_one_goes_with_age_when_no_job_has_it(desk: Desk) -> None:
    used, idle, named, young, in_use = (add(desk, name) for name in ("used", "idle", "named", "young", "in-use"))
    with desk.writing() as session:
        around = session.surroundings({})
        add_job(session, spec=Spec(command=("x",), cwd="/", surroundings=around, template=used))
    for template in (used, idle, named):
        archive(desk, template)
    found = desk.reader.templates_by_id([young])[young]
    with desk.writing() as session:
        session.archive_template(found, NOW + timedelta(days=2), NOW, None)
    desk.raw(
        "INSERT INTO schedule (id, name, cron, zone, catch_up, overlap, body, is_enabled, since, created_at,"
        """ changed_at) VALUES (1, 's', '@daily', 'UTC', 'latest', 'allow', '{"template":"named"}', 1, 0, 0, 0)"""
    )
    until = NOW + timedelta(days=1)
    assert desk.reader.old_templates(until) == [idle]
    with desk.writing() as session:
        assert session.remove_templates([used, idle, in_use]) == 1
    assert [each.id for each in desk.reader.templates(with_archived=True)] == [used, named, young, in_use]


def test_a_page_begins_behind_the_one_before(desk: Desk) -> None:
    numbers = [add(desk, name) for name in ("d", "c", "b", "a")]
    archive(desk, numbers[1])
    assert [each.id for each in desk.reader.templates(after=numbers[0], limit=2)] == numbers[2:]
    assert [each.id for each in desk.reader.templates(after=numbers[0], limit=2, with_archived=True)] == numbers[1:3]
    assert desk.reader.templates(after=numbers[3], limit=2) == []


def test_a_number_is_not_used_again(desk: Desk) -> None:
    template = add(desk, "one")
    archive(desk, template)
    with desk.writing() as session:
        session.remove_templates([template])
    assert desk.reader.templates(with_archived=True) == []
    assert add(desk, "one") == 2
