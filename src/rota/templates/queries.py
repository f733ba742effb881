"""Templates as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable

from rota.db.session import Reader
from rota.ids import TemplateId
from rota.templates.schemas import TemplatePage, render_template


def list_templates(reader: Reader, *, after: TemplateId, limit: int, with_archived: bool) -> TemplatePage:
    templates = reader.templates.list_all(after=after, limit=limit + 1, with_archived=with_archived)
    views = [render_template(template) for template in templates[:limit]]
    return TemplatePage(templates=views, next=views[-1].id if len(templates) > limit else None)


def find_broken_routes(reader: Reader, routes: Iterable[tuple[str, str]]) -> list[str]:
    """Return an error for each route that names a missing template."""
    known = set(reader.templates.names())
    return [
        f'direct.routes "{path}" names the template {name}, which does not exist or is archived'
        for path, name in routes
        if name not in known
    ]
