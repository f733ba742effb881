"""Templates as people and programs see them."""

from __future__ import annotations

from collections.abc import Iterable

from rota.ids import TemplateId
from rota.store.session import Reader
from rota.wire.template import TemplatesForm, template_form


def listing(reader: Reader, *, after: TemplateId, limit: int, with_archived: bool) -> TemplatesForm:
    found = reader.templates(after=after, limit=limit + 1, with_archived=with_archived)
    forms = [template_form(template) for template in found[:limit]]
    return TemplatesForm(templates=forms, next=forms[-1].id if len(found) > limit else None)


def lost_routes(reader: Reader, routes: Iterable[tuple[str, str]]) -> list[str]:
    """Routes that no template answers."""
    known = set(reader.template_names())
    return [
        f'direct.routes "{path}" names the template {name}, which is not there or is archived'
        for path, name in routes
        if name not in known
    ]
