"""docs/reliability.md names its proofs: each of them is there."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs/reliability.md").read_text()
_NAMED = sorted(set(re.findall(r"`((?:tests/[\w/.]+)?(?:(?:::)?test_\w+)?)`", _PAGE)) - {""})


def test_every_promise_names_a_proof() -> None:
    lines = _PAGE.splitlines()
    rows = [row for row, below in pairwise([*lines, ""]) if row.startswith("| ") and not below.startswith("|--")]
    assert len(rows) > 20
    assert [row for row in rows if "test_" not in row.rsplit("|", 2)[1]] == []


@pytest.mark.parametrize("named", _NAMED)
def test_the_proof_is_there(named: str) -> None:
    file, _, name = named.rpartition("::") if "::" in named else ("", "", named)
    if named.startswith("tests/") and not file:
        assert (_ROOT / named).exists()
        return
    files = [_ROOT / file] if file else (_ROOT / "tests").rglob("test_*.py")
    assert any(re.search(rf"^def {name}\(", path.read_text(), re.MULTILINE) for path in files)
