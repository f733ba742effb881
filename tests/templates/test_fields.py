"""Request, stored record and view of a template have the same fields."""

from __future__ import annotations

from rota.templates.commands import TemplateFields
from rota.templates.model import TemplateBody
from rota.templates.schemas import TemplateView

_OWN = {"id", "name", "created_at", "changed_at", "archived_at"}


def test_request_record_and_view_have_the_same_fields() -> None:
    stored = TemplateBody.__struct_fields__
    assert TemplateFields.__struct_fields__ == stored
    assert {*TemplateView.__struct_fields__} == {*stored, *_OWN}
