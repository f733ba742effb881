"""The fields that can be shown are those the job's JSON has."""

from __future__ import annotations

import pytest

from rota.config.section import Format
from rota.display import COLUMNS, FIELDS, FORMATS, PARTS, check_fields, known_fields
from rota.errors import InvalidInput
from rota.wire.job import JobForm, RunForm


def test_every_field_of_the_json_can_be_shown_and_no_other() -> None:
    assert sorted(FIELDS) == sorted(JobForm.__struct_fields__)
    assert sorted(PARTS["run"]) == sorted(RunForm.__struct_fields__)


def test_formats_are_those_the_configuration_takes() -> None:
    assert Format.__origin__.__args__ == FORMATS  # type: ignore[attr-defined]


def test_what_is_known_is_taken() -> None:
    check_fields((*known_fields(), *COLUMNS, "params.plan", "params.a.b"))


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
        ("xyzzy", "known are mark, title, why, time, id, name"),
    ],
)
def test_an_unknown_field_is_named_with_the_nearest_known_one(name: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_fields(("id", name))
    assert refused.value.message.startswith(f"there is no field {name!r}; {hint}")


def test_a_field_without_a_name() -> None:
    with pytest.raises(InvalidInput, match="a field without a name; write them as id,status,wait"):
        check_fields(("id", "", "status"))
