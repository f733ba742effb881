"""Where a store is, and what of it may be shown."""

from __future__ import annotations

import pytest

from rota.errors import ConfigError
from rota.store.postgres.address import parse


def test_the_schema_is_rota_unless_the_url_says_otherwise() -> None:
    assert parse("postgresql://db/work").schema == "rota"
    there = parse("postgres://db/work?search_path=night&sslmode=require&application_name=me")
    assert there.schema == "night"
    assert there.parameters["sslmode"] == "require"
    assert there.parameters["application_name"] == "me"
    assert "search_path" not in there.parameters


def test_what_is_shown_has_no_password() -> None:
    there = parse("postgresql://me:secret@db:5433/work?search_path=night")
    assert there.parameters["password"] == "secret"
    assert there.shown == "postgresql://db:5433/work?search_path=night"


@pytest.mark.parametrize(
    ("url", "schema", "given"),
    [
        ("postgresql://", "rota", {}),
        ("postgresql:///db?host=/tmp/x&port=5432&user=u", "rota",
         {"dbname": "db", "host": "/tmp/x", "port": "5432", "user": "u"}),
        ("postgresql://db?search_path=a&&options=-c%20work_mem%3D8MB", "a", {"options": "-c work_mem=8MB"}),
        ("postgresql://db/x?application_name=my%20app&search_path=a", "a", {"application_name": "my app"}),
        ("postgresql://db/x?application_name=a+b", "rota", {"application_name": "a+b"}),
        ("postgresql://db/x?search%5Fpath=%61&user=u", "a", {"user": "u"}),
        ("postgresql://me:a?search_path=b@db/x", "rota", {"password": "a?search_path=b", "host": "db"}),
    ],
)  # fmt: skip
def test_all_but_the_schema_reaches_libpq_as_it_is_written(url: str, schema: str, given: dict[str, str]) -> None:
    there = parse(url)
    assert there.schema == schema
    assert there.parameters.items() >= given.items()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://", "postgresql:///"),
        ("postgresql://me:secret@/db?host=/tmp/x&port=5432", "postgresql:///db?host=/tmp/x&port=5432"),
        ("postgresql://%2Ftmp%2Fx/db?search_path=night&password=secret",
         "postgresql:///db?host=/tmp/x&search_path=night"),
        ("postgresql:///db?port=5433", "postgresql:///db?port=5433"),
        ("postgresql://me:secret@a:1,b:2/db", "postgresql:///db?host=a,b&port=1,2"),
        ("postgresql://me:secret@[::1]:5433/my%20db%3F", "postgresql://[::1]:5433/my%20db%3F"),
        ("postgresql://db.example.org/work", "postgresql://db.example.org/work"),
    ],
)  # fmt: skip
def test_what_is_shown_can_be_read_again(url: str, shown: str) -> None:
    there = parse(url)
    assert there.shown == shown
    again = parse(shown)
    assert again.shown == shown
    assert again.schema == there.schema
    assert again.parameters == {
        name: value for name, value in there.parameters.items() if name not in ("user", "password")
    }


def test_several_hosts_are_libpqs_to_choose_from() -> None:
    assert parse("postgresql://a:1,b:2/work").parameters["host"] == "a,b"


def test_stores_in_one_database_do_not_share_a_lock() -> None:
    one, other = parse("postgresql://db/work?search_path=one"), parse("postgresql://db/work?search_path=other")
    assert one.lock != other.lock
    assert -(2**63) <= one.lock < 2**63
    assert parse("postgresql://elsewhere/x?search_path=one").lock == one.lock


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
def test_what_cannot_be_used_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(url)
    assert "secret" not in refused.value.message
