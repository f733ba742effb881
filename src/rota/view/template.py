"""Templates as people and programs see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from rota.core.template import Template, TemplateBody
from rota.ids import show_template
from rota.store.session import Reader


def form(template: Template) -> dict[str, Any]:
    """All fields, also empty ones. Of the environment the names: values are never shown."""
    body = template.body
    fields = {name: getattr(body, name) for name in TemplateBody.__struct_fields__}
    return {
        "id": show_template(template.id),
        "name": template.name,
        **{name: msgspec.to_builtins(value) for name, value in fields.items() if name != "env"},
        "env": sorted(body.env),
        "created_at": template.created_at,
        "changed_at": template.changed_at,
        "archived_at": template.archived_at,
    }


def listing(reader: Reader, *, with_archived: bool) -> list[dict[str, Any]]:
    return [form(template) for template in reader.templates(with_archived=with_archived)]


def lost_routes(reader: Reader, routes: Iterable[tuple[str, str]]) -> list[str]:
    """Routes that no template answers."""
    known = set(reader.template_names())
    return [
        f'direct.routes "{path}" names the template {name}, which is not there or is archived'
        for path, name in routes
        if name not in known
    ]
