"""The schema in the OpenAPI document accepts the same texts and numbers as the commands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.errors import InvalidInput
from rota.jobs.submission import Submission, check_cwd, check_fields, check_limits
from rota.kernel.queue import collect_unique_keys
from rota.kernel.retry import RetryPolicies

_SCHEMAS = msgspec.json.schema_components([Submission], ref_template="#/components/schemas/{name}")[1]
_VALIDATOR = jsonschema_rs.Draft202012Validator(
    {"$ref": "#/components/schemas/Submission", "components": {"schemas": _SCHEMAS}}
)
_NOW = datetime(2026, 11, 16, tzinfo=UTC)


def is_accepted(**fields: Any) -> bool:
    """Return whether the commands accept a submit, as far as they check single fields."""
    try:
        job = msgspec.convert({"command": ["true"], **fields}, Submission)
        check_fields(job)
        check_limits(job, RetryPolicies(), _NOW)
        check_cwd(job.cwd)
        collect_unique_keys([job.unique])
    except (InvalidInput, msgspec.ValidationError):
        return False
    return True


def matches_schema(**fields: Any) -> bool:
    return _VALIDATOR.is_valid({"command": ["true"], **fields})


@pytest.mark.parametrize(
    ("field", "valid", "invalid"),
    [
        ("type", ["story", "a/b", "ß", "x" * 200], ["", "a b", "*", "/a", "x" * 201, "a\n", "a\u0000"]),
        ("timeout", ["300ms", "1.5s", "2m30s", "7d"], ["", "5", "1 s", "-1s", "s", "1.s", "1s\n", "1S"]),
        ("delay", ["0s", "10m"], ["soon"]),
        ("unique", ["k", "a b", "x" * 200], ["", "x" * 201, "a\u0000"]),
        ("priority", [-1_000_000, 0, 1_000_000], [-1_000_001, 1_000_001, 0.5, "1"]),
        ("retries", [0, 1000], [-1, 1001]),
        ("cwd", ["/", "/srv/web"], ["/" + "x" * 4096, "", "srv", "./a", "/a\u0000"]),
        ("name", ["", "any thing", "ß" * 500], ["a\u0000", "x" * 501]),
        ("skip_if", ["test -e a", "x" * 65_536], ["a\u0000", "x" * 65_537]),
        ("base", ["main", "x" * 1000], ["x" * 1001]),
        ("template", ["x" * 200], ["x" * 201]),
        ("group", ["x" * 200], ["x" * 201]),
        ("retry", [], ["x" * 201]),
        ("webhooks", [["http://a"], ["http://a/" + "x" * 2039]], [["http://a/" + "x" * 2040]]),
        ("pools", [{"global": 1}, {"flow/a": 1_000_000}], [{"global": 0}, {"global": 1_000_001}]),
        (
            "locks",
            [[{"key": "repo"}], [{"key": "x" * 200}]],
            [[{"key": ""}], [{"key": "x" * 201}], [{"key": "\u0000"}]],
        ),
        ("env", [{"A": "b"}], [{"A": "\u0000"}]),
    ],
)
def test_schema_and_commands_accept_the_same_values(field: str, valid: list[Any], invalid: list[Any]) -> None:
    assert [(value, is_accepted(**{field: value}), matches_schema(**{field: value})) for value in valid] == [
        (value, True, True) for value in valid
    ]
    assert [(value, is_accepted(**{field: value}), matches_schema(**{field: value})) for value in invalid] == [
        (value, False, False) for value in invalid
    ]


def _assert_agreement(make_fields: Callable[[str], dict[str, Any]], text: str) -> None:
    assert is_accepted(**make_fields(text)) == matches_schema(**make_fields(text))


@given(st.text(max_size=12))
def test_schema_and_commands_agree_on_names(text: str) -> None:
    _assert_agreement(lambda name: {"flow": name}, text)
    _assert_agreement(lambda name: {"flow": "f", "phase": name}, text)


@given(st.from_regex(r"[0-9.]{0,3}(ms|s|m|h|)[0-9]{0,2}(s|x|)", fullmatch=True))
def test_schema_and_commands_agree_on_durations(text: str) -> None:
    _assert_agreement(lambda duration: {"delay": duration}, text)
