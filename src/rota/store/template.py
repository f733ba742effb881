"""Stores templates. A name is that of one template in use; archived ones keep theirs beside it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.core.event import Event
from rota.core.template import Template, TemplateBody
from rota.ids import TemplateId, show_template
from rota.store.database import Database, Row
from rota.store.event import Emitting
from rota.store.moment import from_stored, maybe_from_stored, maybe_to_stored, to_stored

ALL = 2**62

_encode = msgspec.json.Encoder(order="sorted").encode


class TemplateRecords:
    _db: Database

    def templates(self, *, after: int = 0, limit: int = ALL, with_archived: bool = False) -> list[Template]:
        """By number."""
        statement = "all_templates" if with_archived else "templates"
        return [_template(row) for row in self._db.rows(statement, after=after, limit=limit)]

    def templates_by_id(self, ids: Sequence[TemplateId]) -> dict[TemplateId, Template]:
        rows = self._db.rows("templates_by_id", ids=list(ids)) if ids else ()
        return {TemplateId(row[0]): _template(row) for row in rows}

    def templates_by_name(self, names: Sequence[str]) -> dict[str, Template]:
        """Of each name the one in use; where there is none, the one that was archived last."""
        found: dict[str, Template] = {}
        for row in self._db.rows("templates_by_name", names=list(names)) if names else ():
            found.setdefault(row[1], _template(row))
        return found

    def template_names(self) -> list[str]:
        """Of those in use."""
        return [name for (name,) in self._db.rows("template_names")]

    def old_templates(self, until: datetime) -> list[TemplateId]:
        """Archived before that, and named by no job or schedule that is kept."""
        old = self._db.rows("old_templates", until=to_stored(until))
        bodies = [body for (body,) in self._db.rows("schedule_bodies")] if old else []
        return [
            TemplateId(number)
            for number, name in old
            if not any(_encode(each).decode() in body for body in bodies for each in (name, show_template(number)))
        ]


class Templating(Emitting, TemplateRecords):
    def add_template(self, name: str, body: TemplateBody, now: datetime, actor: str | None) -> TemplateId:
        template = TemplateId(self.take("template", 1))
        self._db.run("add_template", id=template, name=name, body=_encode(body).decode(), now=to_stored(now))
        self._tell_of_template("created", template, name, now, actor)
        return template

    def change_template(self, template: Template, now: datetime, actor: str | None) -> None:
        """To what it is here."""
        body = _encode(template.body).decode()
        self._db.run("change_template", id=template.id, name=template.name, body=body, now=to_stored(now))
        self._tell_of_template("changed", template.id, template.name, now, actor)

    def archive_template(self, template: Template, at: datetime | None, now: datetime, actor: str | None) -> None:
        """Since then; none takes it back."""
        self._db.run("archive_template", id=template.id, at=maybe_to_stored(at))
        self._tell_of_template("unarchived" if at is None else "archived", template.id, template.name, now, actor)

    def remove_templates(self, ids: Sequence[TemplateId]) -> int:
        """Those of them that are still archived and of no job."""
        if not ids:
            return 0
        self.spend("template", max(ids))
        return self._db.run("remove_templates", ids=list(ids))

    def _tell_of_template(self, what: str, template: TemplateId, name: str, now: datetime, actor: str | None) -> None:
        data = {"template": show_template(template), "name": name}
        self.emit(Event(kind=f"template.{what}", at=to_stored(now), cause="template", actor=actor, data=data))


def _template(row: Row) -> Template:
    return Template(
        id=TemplateId(row[0]),
        name=row[1],
        body=_body(row[2]),
        created_at=from_stored(row[3]),
        changed_at=from_stored(row[4]),
        archived_at=maybe_from_stored(row[5]),
    )


def _body(text: str) -> TemplateBody:
    """One that cannot be read makes no jobs, and hides no other from a list."""
    try:
        return msgspec.json.decode(text, type=TemplateBody)
    except msgspec.DecodeError as error:
        return TemplateBody(description=f"its record cannot be read: {error}")
