"""What the document says of texts and numbers is what the commands let through."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota.command.field import check_cwd, check_fields, check_rest
from rota.command.submission import Submission
from rota.core.retry import RetryPolicies
from rota.core.unique import keys_of
from rota.errors import InvalidInput

_SAID = msgspec.json.schema_components([Submission], ref_template="#/components/schemas/{name}")[1]
_SUBMISSION = jsonschema_rs.Draft202012Validator(
    {"$ref": "#/components/schemas/Submission", "components": {"schemas": _SAID}}
)
_NOW = datetime(2026, 11, 16, tzinfo=UTC)


def passes(**fields: Any) -> bool:
    """Whether the commands take it, as far as they look at fields one by one."""
    wanted = {"command": ["true"], **fields}
    try:
        job = msgspec.convert(wanted, Submission)
        check_fields(job)
        check_rest(job, RetryPolicies(), _NOW)
        check_cwd(job.cwd)
        keys_of([job.unique])
    except (InvalidInput, msgspec.ValidationError):
        return False
    return True


def fits(**fields: Any) -> bool:
    return _SUBMISSION.is_valid({"command": ["true"], **fields})


@pytest.mark.parametrize(
    ("field", "good", "bad"),
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
def test_schema_and_commands_say_the_same(field: str, good: list[Any], bad: list[Any]) -> None:
    assert [(value, passes(**{field: value}), fits(**{field: value})) for value in good] == [
        (value, True, True) for value in good
    ]
    assert [(value, passes(**{field: value}), fits(**{field: value})) for value in bad] == [
        (value, False, False) for value in bad
    ]


def _agree(make: Callable[[str], dict[str, Any]], text: str) -> None:
    assert passes(**make(text)) == fits(**make(text))


@given(some.text(max_size=12))
def test_any_text_is_a_name_to_both_or_to_neither(text: str) -> None:
    _agree(lambda name: {"flow": name}, text)
    _agree(lambda name: {"flow": "f", "phase": name}, text)


@given(some.from_regex(r"[0-9.]{0,3}(ms|s|m|h|)[0-9]{0,2}(s|x|)", fullmatch=True))
def test_any_text_is_a_duration_to_both_or_to_neither(text: str) -> None:
    _agree(lambda span: {"delay": span}, text)
