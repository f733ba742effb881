"""Addresses of PostgreSQL stores, and their redacted form."""

from __future__ import annotations

import pytest

from rota.db.postgres.address import parse_address
from rota.errors import ConfigError


def test_schema_defaults_to_rota() -> None:
    assert parse_address("postgresql://db/work").schema == "rota"
    address = parse_address("postgres://db/work?search_path=night&sslmode=require&application_name=me")
    assert address.schema == "night"
    assert address.parameters["sslmode"] == "require"
    assert address.parameters["application_name"] == "me"
    assert "search_path" not in address.parameters


def test_redacted_url_has_no_password() -> None:
    address = parse_address("postgresql://me:secret@db:5433/work?search_path=night")
    assert address.parameters["password"] == "secret"
    assert address.redacted_url == "postgresql://db:5433/work?search_path=night"


@pytest.mark.parametrize(
    ("url", "schema", "parameters"),
    [
        ("postgresql://", "rota", {}),
        (
            "postgresql:///db?host=/tmp/x&port=5432&user=u",
            "rota",
            {"dbname": "db", "host": "/tmp/x", "port": "5432", "user": "u"},
        ),
        ("postgresql://db?search_path=a&&options=-c%20work_mem%3D8MB", "a", {"options": "-c work_mem=8MB"}),
        ("postgresql://db/x?application_name=my%20app&search_path=a", "a", {"application_name": "my app"}),
        ("postgresql://db/x?application_name=a+b", "rota", {"application_name": "a+b"}),
        ("postgresql://db/x?search%5Fpath=%61&user=u", "a", {"user": "u"}),
        ("postgresql://me:a?search_path=b@db/x", "rota", {"password": "a?search_path=b", "host": "db"}),
    ],
)
def test_other_parameters_are_passed_to_libpq_unchanged(url: str, schema: str, parameters: dict[str, str]) -> None:
    address = parse_address(url)
    assert address.schema == schema
    assert address.parameters.items() >= parameters.items()


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("postgresql://", "postgresql:///"),
        ("postgresql://me:secret@/db?host=/tmp/x&port=5432", "postgresql:///db?host=/tmp/x&port=5432"),
        (
            "postgresql://%2Ftmp%2Fx/db?search_path=night&password=secret",
            "postgresql:///db?host=/tmp/x&search_path=night",
        ),
        ("postgresql:///db?port=5433", "postgresql:///db?port=5433"),
        ("postgresql://me:secret@a:1,b:2/db", "postgresql:///db?host=a,b&port=1,2"),
        ("postgresql://me:secret@[::1]:5433/my%20db%3F", "postgresql://[::1]:5433/my%20db%3F"),
        ("postgresql://db.example.org/work", "postgresql://db.example.org/work"),
    ],
)
def test_redacted_url_can_be_parsed_again(url: str, redacted: str) -> None:
    address = parse_address(url)
    assert address.redacted_url == redacted
    reparsed = parse_address(redacted)
    assert reparsed.redacted_url == redacted
    assert reparsed.schema == address.schema
    assert reparsed.parameters == {
        name: value for name, value in address.parameters.items() if name not in ("user", "password")
    }


def test_several_hosts_are_passed_to_libpq() -> None:
    assert parse_address("postgresql://a:1,b:2/work").parameters["host"] == "a,b"


def test_stores_in_one_database_have_separate_locks() -> None:
    first, second = (
        parse_address("postgresql://db/work?search_path=one"),
        parse_address("postgresql://db/work?search_path=other"),
    )
    assert first.lock_key != second.lock_key
    assert -(2**63) <= first.lock_key < 2**63
    assert parse_address("postgresql://elsewhere/x?search_path=one").lock_key == first.lock_key


@pytest.mark.parametrize(
    "url",
    [
        "mysql://db/work",
        "postgresql://db/work?search_path=a,b",
        "postgresql://db/work?search_path=",
        'postgresql://db/work?search_path=a"b',
        "postgresql://me:secret@db/work?no_such_thing=1",
        "postgresql://me:secret%zz@db/work",
        "postgresql://me:secret/more@db/work",
        "postgresql://me:secret@[::1/work",
        "postgresql://db/work?password=my&secret",
        "postgresql://db/work?password=my&secret=1",
        "postgresql://db/work?password=my secret",
        "postgresql://me:my secret@db/work",
        "postgresql://me:my@secret@db/work",
        "postgresql://me:123/secret@db/work",
        "postgresql://me:/secret@db/work",
        f"postgresql://db/work?search_path={'a' * 49}",
    ],
)
def test_invalid_url_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_address(url)
    assert "secret" not in refused.value.message
