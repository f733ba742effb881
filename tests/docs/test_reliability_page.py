"""Tests and tables in docs/dev/reliability.md exist and are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.crash.judge import KINDS
from tests.crash.point import POINTS

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs/dev/reliability.md").read_text()
_NAMED = sorted(set(re.findall(r"`((?:tests/[\w/.]+)?(?:(?:::)?test_\w+)?)`", _PAGE)) - {""})


def _table_rows(header: str) -> list[str]:
    """Return the rows of every table whose header starts with this cell."""
    tables = re.findall(rf"^\| {header} .*\n\|-.*\n((?:\|.*\n)+)", _PAGE, re.MULTILINE)
    return [row for table in tables for row in table.splitlines()]


def test_every_promise_names_a_test() -> None:
    rows = _table_rows("promise")
    assert len(rows) > 20
    assert [row for row in rows if "test_" not in row.rsplit("|", 2)[1]] == []


def test_page_lists_the_crash_points() -> None:
    rows = [tuple(cell.strip() for cell in row.split("|")[1:4]) for row in _table_rows("point")]
    assert rows == [(f"`{point.name}`", point.state, point.outcome) for point in POINTS]


def test_page_lists_the_counts_of_the_judge() -> None:
    assert [row.split("|")[1].strip() for row in _table_rows("count")] == list(KINDS)


@pytest.mark.parametrize("named", _NAMED)
def test_named_test_exists(named: str) -> None:
    file, _, name = named.rpartition("::") if "::" in named else ("", "", named)
    if named.startswith("tests/") and not file:
        assert (_ROOT / named).exists()
        return
    files = [_ROOT / file] if file else (_ROOT / "tests").rglob("test_*.py")
    assert any(re.search(rf"^def {name}\(", path.read_text(), re.MULTILINE) for path in files)
