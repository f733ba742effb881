"""Storage of templates, on both databases."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from rota.ids import JobId, TemplateId
from rota.kernel.job import Spec, TemplateSnapshot
from rota.kernel.locks import LockMode
from rota.templates.model import LockTemplate, Template, TemplateBody
from tests.db.harness import NOW, StoreHarness, add_job
from tests.harness import SchemaRefused

BODY = TemplateBody(
    command=("say", "{what}", ""),
    default_params={"what": "é", "n": [1, None]},
    retries=0,
    worktree=True,
    params_schema={"properties": {"what": {}}},
    locks=("a", LockTemplate(key="b", mode=LockMode.SHARED)),
    pools={"resource/x": 2},
    env={"A": "1"},
)


def add(harness: StoreHarness, name: str, body: TemplateBody = BODY) -> TemplateId:
    with harness.transaction() as session:
        return session.templates.add(name, body, NOW, "ann")


def archive(harness: StoreHarness, template: TemplateId, *, is_restored: bool = False) -> None:
    record = harness.reader.templates.find_all([template])[template]
    with harness.transaction() as session:
        session.templates.archive(record, None if is_restored else NOW, NOW, "ann")


def test_added_template_is_found_by_name_and_id(harness: StoreHarness) -> None:
    first, second = add(harness, "one"), add(harness, "two", TemplateBody(command=("x",)))
    assert (first, second) == (1, 2)
    assert harness.reader.templates.find_named(["one", "none"]) == {
        "one": Template(id=first, name="one", body=BODY, created_at=NOW, changed_at=NOW)
    }
    assert [record.name for record in harness.reader.templates.find_all([second, TemplateId(9)]).values()] == ["two"]
    assert [record.name for record in harness.reader.templates.list_all()] == ["one", "two"]
    assert sorted(harness.reader.templates.names()) == ["one", "two"]
    assert [(event.kind, event.cause, event.actor, event.data) for event in harness.events] == [
        ("template.created", "template", "ann", {"template": "template-2", "name": "two"})
    ]


def test_active_template_name_is_unique(harness: StoreHarness) -> None:
    add(harness, "one")
    with pytest.raises((SchemaRefused, Exception), match=r"(?i)unique"), harness.transaction() as session:
        session.templates.add("one", BODY, NOW, None)
    assert len(harness.reader.templates.list_all(with_archived=True)) == 1


def test_archived_template_frees_its_name(harness: StoreHarness) -> None:
    first = add(harness, "one")
    archive(harness, first)
    assert harness.events[0].kind == "template.archived"
    assert harness.reader.templates.list_all() == []
    assert harness.reader.templates.names() == []
    assert harness.reader.templates.find_named(["one"])["one"].archived_at == NOW
    second = add(harness, "one")
    assert harness.reader.templates.find_named(["one"])["one"].id == second
    assert [record.id for record in harness.reader.templates.list_all(with_archived=True)] == [first, second]
    archive(harness, second)
    archive(harness, first, is_restored=True)
    assert harness.events[0].kind == "template.unarchived"
    assert harness.reader.templates.find_named(["one"])["one"].id == first


def test_change_template_replaces_everything_but_the_id(harness: StoreHarness) -> None:
    template = add(harness, "one")
    record = harness.reader.templates.find_all([template])[template]
    later = NOW + timedelta(days=1)
    with harness.transaction() as session:
        session.templates.change(
            msgspec.structs.replace(record, name="uno", body=TemplateBody(command=("y",))), later, "bob"
        )
    assert harness.reader.templates.list_all() == [
        Template(id=template, name="uno", body=TemplateBody(command=("y",)), created_at=NOW, changed_at=later)
    ]
    assert harness.events[0].kind == "template.changed"


def test_template_snapshot_is_shared_with_retries(harness: StoreHarness) -> None:
    template = add(harness, "one")
    snapshot = TemplateSnapshot(
        declared=("a",), schema={"type": "object"}, command=("x", "{a}"), fixed_params={"a": "locks"}
    )
    with harness.transaction() as session:
        environment = session.jobs.environment_id({})
        add_job(
            session,
            spec=Spec(
                command=("x", "1"), cwd="/", environment=environment, template=template, template_snapshot=snapshot
            ),
        )
    harness.claim()
    harness.finish(JobId(1))
    with harness.transaction() as session:
        session.chains.retry(JobId(1), retries=0, not_before=None, now=NOW, cause="retry")
    for number in (1, 2):
        job = harness.reader.jobs.find(JobId(number))
        assert job is not None
        assert (job.spec.template, job.spec.template_snapshot) == (template, snapshot)


def test_unreadable_template_hides_no_other(harness: StoreHarness) -> None:
    add(harness, "one")
    add(harness, "two")
    harness.run_sql("""UPDATE template SET body = '{"from": "the future"}' WHERE id = 1""")
    assert [(record.name, record.body.command) for record in harness.reader.templates.list_all()] == [
        ("one", ()),
        ("two", BODY.command),
    ]


def test_old_archived_template_is_removed_if_unused(harness: StoreHarness) -> None:
    used, idle, named, young, in_use = (add(harness, name) for name in ("used", "idle", "named", "young", "in-use"))
    with harness.transaction() as session:
        environment = session.jobs.environment_id({})
        add_job(session, spec=Spec(command=("x",), cwd="/", environment=environment, template=used))
    for template in (used, idle, named):
        archive(harness, template)
    record = harness.reader.templates.find_all([young])[young]
    with harness.transaction() as session:
        session.templates.archive(record, NOW + timedelta(days=2), NOW, None)
    harness.run_sql(
        "INSERT INTO schedule (id, name, cron, zone, catch_up, overlap, body, is_enabled, since, created_at,"
        """ changed_at) VALUES (1, 's', '@daily', 'UTC', 'latest', 'allow', '{"template":"named"}', 1, 0, 0, 0)"""
    )
    until = NOW + timedelta(days=1)
    assert harness.reader.templates.old(until) == [idle]
    with harness.transaction() as session:
        assert session.templates.remove([used, idle, in_use]) == 1
    assert [record.id for record in harness.reader.templates.list_all(with_archived=True)] == [
        used,
        named,
        young,
        in_use,
    ]


def test_template_page_starts_after_the_previous_one(harness: StoreHarness) -> None:
    templates = [add(harness, name) for name in ("d", "c", "b", "a")]
    archive(harness, templates[1])
    assert [record.id for record in harness.reader.templates.list_all(after=templates[0], limit=2)] == templates[2:]
    with_archived = harness.reader.templates.list_all(after=templates[0], limit=2, with_archived=True)
    assert [record.id for record in with_archived] == templates[1:3]
    assert harness.reader.templates.list_all(after=templates[3], limit=2) == []


def test_template_id_is_not_reused(harness: StoreHarness) -> None:
    template = add(harness, "one")
    archive(harness, template)
    with harness.transaction() as session:
        session.templates.remove([template])
    assert harness.reader.templates.list_all(with_archived=True) == []
    assert add(harness, "one") == 2
