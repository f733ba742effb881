"""Fields for output, compared with the fields of the job's JSON."""

from __future__ import annotations

import pytest

from rota.columns import DEFAULT_COLUMNS, FIELDS, FORMATS, SUBFIELDS, check_fields, known_fields
from rota.config.section import DisplayFormat
from rota.errors import InvalidInput
from rota.jobs.schemas import JobView, RunView


def test_fields_equal_the_fields_of_the_json() -> None:
    assert sorted(FIELDS) == sorted(JobView.__struct_fields__)
    assert sorted(SUBFIELDS["run"]) == sorted(RunView.__struct_fields__)


def test_formats_equal_the_formats_of_the_configuration() -> None:
    assert DisplayFormat.__origin__.__args__ == FORMATS  # type: ignore[attr-defined]


def test_known_fields_are_accepted() -> None:
    check_fields((*known_fields(), *DEFAULT_COLUMNS, "params.plan", "params.a.b"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("stauts", "did you mean status?"),
        ("STATUS", "did you mean status?"),
        ("dependencies", "did you mean needs?"),
        ("artifacts", "did you mean produces?"),
        ("run.exitcode", "did you mean run.exit_code?"),
        ("run.", "did you mean run?"),
        ("params.", "did you mean params?"),
        ("xyzzy", "known fields: mark, title, why, time, id, name"),
    ],
)
def test_unknown_field_is_refused_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_fields(("id", name))
    assert refused.value.message.startswith(f"unknown field {name!r}; {hint}")


def test_empty_field_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="empty field name; write fields as id,status,wait"):
        check_fields(("id", "", "status"))
