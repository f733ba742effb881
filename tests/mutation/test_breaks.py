"""The list of breaks matches the code. `make mutation`, which takes minutes, checks that each break is caught."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.mutation.breaks import PAGE, ROOT, Break, load, render_rows

BREAKS = load()


def test_names_are_unique() -> None:
    assert len({each.name for each in BREAKS}) == len(BREAKS)


@pytest.mark.parametrize("each", BREAKS, ids=lambda each: each.name)
def test_break_applies_to_the_source(each: Break) -> None:
    text = (ROOT / "src" / "rota" / each.file).read_text()
    broken = each.replace_in(text)
    assert broken != text
    if each.file.endswith(".py"):
        ast.parse(broken)  # any test would catch a syntax error


def test_every_named_test_exists() -> None:
    """Pytest collects the tests, because a parameter in an id can be outdated."""
    tests = sorted({each.test for each in BREAKS})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *tests]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_missing_text_is_reported() -> None:
    outdated = Break(name="x", why="", file="ids.py", old="not there", new="", test="")
    with pytest.raises(ValueError, match=r"x: the text to replace occurs 0 times in ids\.py; update breaks\.toml"):
        outdated.replace_in("something else")


def test_documentation_lists_all_breaks() -> None:
    assert PAGE.read_text().endswith(f"|---|---|---|\n{render_rows(BREAKS)}"), (
        "docs/dev/reliability.md differs from breaks.toml; `python -m tests.mutation --write` updates it"
    )
