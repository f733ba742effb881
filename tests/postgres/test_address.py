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
        f"postgresql://db/work?search_path={'a' * 49}",
    ],
)
def test_what_cannot_be_used_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(url)
    assert "secret" not in refused.value.message
