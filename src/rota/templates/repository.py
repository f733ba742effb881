"""Storage of templates. The name of an active template is unique; archived templates may share it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from rota.db.database import Database, Row
from rota.db.decoding import from_micros, optional_from_micros, optional_to_micros, to_micros
from rota.db.events import Events
from rota.db.ids import Ids
from rota.ids import TemplateId, format_template_id
from rota.kernel.events import Event
from rota.templates.model import Template, TemplateBody

NO_LIMIT = 2**62
_encode = msgspec.json.Encoder(order="sorted").encode


class TemplateRecords:
    def __init__(self, database: Database) -> None:
        self._db = database

    def list_all(self, *, after: int = 0, limit: int = NO_LIMIT, with_archived: bool = False) -> list[Template]:
        """Return the templates after `after`, by id."""
        statement = "all_templates" if with_archived else "templates"
        return [_template_from_row(row) for row in self._db.rows(statement, after=after, limit=limit)]

    def find_all(self, ids: Sequence[TemplateId]) -> dict[TemplateId, Template]:
        rows = self._db.rows("templates_by_id", ids=list(ids)) if ids else ()
        return {TemplateId(row[0]): _template_from_row(row) for row in rows}

    def find_named(self, names: Sequence[str]) -> dict[str, Template]:
        """Return the active template of each name, or else the one that was archived last."""
        templates: dict[str, Template] = {}
        for row in self._db.rows("templates_by_name", names=list(names)) if names else ():
            templates.setdefault(row[1], _template_from_row(row))
        return templates

    def names(self) -> list[str]:
        """Return the names of the active templates."""
        return [name for (name,) in self._db.rows("template_names")]

    def old(self, until: datetime) -> list[TemplateId]:
        """Return the templates that were archived before `until` and that no stored job or schedule refers to."""
        old = self._db.rows("old_templates", until=to_micros(until))
        bodies = [body for (body,) in self._db.rows("schedule_bodies")] if old else []
        return [
            TemplateId(number)
            for number, name in old
            if not any(
                _encode(reference).decode() in body
                for body in bodies
                for reference in (name, format_template_id(number))
            )
        ]


class Templates(TemplateRecords):
    def __init__(self, database: Database, ids: Ids, events: Events) -> None:
        super().__init__(database)
        self._ids = ids
        self._events = events

    def add(self, name: str, body: TemplateBody, now: datetime, actor: str | None) -> TemplateId:
        template = TemplateId(self._ids.allocate("template", 1))
        self._db.run("add_template", id=template, name=name, body=_encode(body).decode(), now=to_micros(now))
        self._emit("created", template, name, now, actor)
        return template

    def change(self, template: Template, now: datetime, actor: str | None) -> None:
        """Store the name and the body of this template."""
        body = _encode(template.body).decode()
        self._db.run("change_template", id=template.id, name=template.name, body=body, now=to_micros(now))
        self._emit("changed", template.id, template.name, now, actor)

    def archive(self, template: Template, at: datetime | None, now: datetime, actor: str | None) -> None:
        """Archive a template at a time, or restore it with None."""
        self._db.run("archive_template", id=template.id, at=optional_to_micros(at))
        self._emit("unarchived" if at is None else "archived", template.id, template.name, now, actor)

    def remove(self, ids: Sequence[TemplateId]) -> int:
        """Remove the templates among these that are still archived and that no job refers to."""
        if not ids:
            return 0
        self._ids.retire("template", max(ids))
        return self._db.run("remove_templates", ids=list(ids))

    def _emit(self, kind: str, template: TemplateId, name: str, now: datetime, actor: str | None) -> None:
        data = {"template": format_template_id(template), "name": name}
        self._events.emit(Event(kind=f"template.{kind}", at=to_micros(now), cause="template", actor=actor, data=data))


def _template_from_row(row: Row) -> Template:
    return Template(
        id=TemplateId(row[0]),
        name=row[1],
        body=_decode_body(row[2]),
        created_at=from_micros(row[3]),
        changed_at=from_micros(row[4]),
        archived_at=optional_from_micros(row[5]),
    )


def _decode_body(text: str) -> TemplateBody:
    """Return the body. If it is unreadable, it has no command and its description is the error, so that lists still
    work."""
    try:
        return msgspec.json.decode(text, type=TemplateBody)
    except msgspec.DecodeError as error:
        return TemplateBody(description=f"its record cannot be read: {error}")
