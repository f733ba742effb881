"""What can be said of a template, what is stored of it and what is shown have the same fields."""

from __future__ import annotations

from rota.command.template_wanted import TemplateFields
from rota.core.template import TemplateBody
from rota.wire.template import TemplateForm

_OWN = {"id", "name", "created_at", "changed_at", "archived_at"}


def test_no_field_is_forgotten() -> None:
    stored = TemplateBody.__struct_fields__
    assert TemplateFields.__struct_fields__ == stored
    assert {*TemplateForm.__struct_fields__} == {*stored, *_OWN}
