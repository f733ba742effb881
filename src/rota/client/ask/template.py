"""Templates: named defaults for jobs of one kind."""

from __future__ import annotations

from rota.client.ask import Ask, query, quote
from rota.client.ask.given import in_form, key_of, mapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from rota.client.ask import Json
    from rota.client.ask.wanted import NewTemplate, TemplateChange


def add_template(template: NewTemplate | Json, *, key: str | None = None) -> Ask:
    """One more: a document with its name, its command and what else its jobs are asked for."""
    return Ask("POST", "/api/job-templates", body=in_form(mapped("template", template)), key=key_of(key))


def list_templates(*, all: bool = False, limit: int | None = None, cursor: str | None = None) -> Ask:  # noqa: A002
    """Those in use, or archived ones too."""
    return Ask("GET", f"/api/job-templates{query(('all', all or None), ('limit', limit), ('cursor', cursor))}")


def get_template(template: str) -> Ask:
    """One, by name or id."""
    return Ask("GET", f"/api/job-templates/{quote(template)}")


def change_template(template: str, /, **changes: Unpack[TemplateChange]) -> Ask:
    """Change what is named; jobs that exist keep what they have."""
    return Ask("PATCH", f"/api/job-templates/{quote(template)}", body=in_form(changes))


def replace_template(template: str, whole: TemplateChange | Json) -> Ask:
    """The same of all of it: what the document does not name is as in a new one."""
    return Ask("PUT", f"/api/job-templates/{quote(template)}", body=in_form(mapped("template", whole)))


def archive_template(template: str) -> Ask:
    """No more jobs are made of it."""
    return Ask("POST", f"/api/job-templates/{quote(template)}/archive")


def unarchive_template(template: str) -> Ask:
    """Take it back into use."""
    return Ask("POST", f"/api/job-templates/{quote(template)}/unarchive")
