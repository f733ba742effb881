"""Requests for templates: named defaults for jobs of one kind."""

from __future__ import annotations

from rota.client.requests import Request, build_query, quote
from rota.client.requests.arguments import as_idempotency_key, as_mapping, encode_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Unpack

    from rota.client.requests import Json
    from rota.client.requests.options import NewTemplateOptions, TemplateChangeOptions


def add_template(template: NewTemplateOptions | Json, *, key: str | None = None) -> Request:
    """Add a template: its name, its command and the other fields of its jobs."""
    return Request(
        "POST", "/api/job-templates", body=encode_fields(as_mapping("template", template)), key=as_idempotency_key(key)
    )


def list_templates(*, all: bool = False, limit: int | None = None, cursor: str | None = None) -> Request:  # noqa: A002
    """List templates in use. With `all`, include archived ones."""
    return Request(
        "GET", f"/api/job-templates{build_query(('all', all or None), ('limit', limit), ('cursor', cursor))}"
    )


def get_template(template: str) -> Request:
    """Return a template by name or id."""
    return Request("GET", f"/api/job-templates/{quote(template)}")


def change_template(template: str, /, **changes: Unpack[TemplateChangeOptions]) -> Request:
    """Change fields of a template. Existing jobs keep their values."""
    return Request("PATCH", f"/api/job-templates/{quote(template)}", body=encode_fields(changes))


def replace_template(template: str, document: TemplateChangeOptions | Json) -> Request:
    """Replace all fields of a template. Omitted fields get their defaults."""
    return Request("PUT", f"/api/job-templates/{quote(template)}", body=encode_fields(as_mapping("template", document)))


def archive_template(template: str) -> Request:
    """Archive a template. It creates no further jobs."""
    return Request("POST", f"/api/job-templates/{quote(template)}/archive")


def unarchive_template(template: str) -> Request:
    """Take an archived template back into use."""
    return Request("POST", f"/api/job-templates/{quote(template)}/unarchive")
