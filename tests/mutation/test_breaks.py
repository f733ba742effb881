"""The list of breaks fits the code. That each is caught is shown by `make mutation`, which takes minutes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from mutation.breaks import ROOT, Break, load

BREAKS = load()


def test_names_are_told_apart() -> None:
    assert len({each.name for each in BREAKS}) == len(BREAKS)


@pytest.mark.parametrize("each", BREAKS, ids=lambda each: each.name)
def test_it_can_be_made(each: Break) -> None:
    text = (ROOT / "src" / "rota" / each.file).read_text()
    broken = each.broken(text)
    assert broken != text
    if each.file.endswith(".py"):
        ast.parse(broken)  # what cannot even be read is caught by anything


def test_every_named_test_exists() -> None:
    """Pytest itself is asked: a name may have lost one of its parameters."""
    tests = sorted({each.test for each in BREAKS})
    words = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", *tests]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_a_text_that_is_gone_is_said() -> None:
    gone = Break(name="x", why="", file="ids.py", old="not there", new="", test="")
    with pytest.raises(ValueError, match=r"x: the text to replace is 0 times in ids\.py; bring breaks\.toml up"):
        gone.broken("something else")


def test_the_page_has_all_of_them() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    section = page.partition("## Breaks that are caught")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| (.+?) \| `([^`]+)` \|$", section, re.MULTILINE)
    assert rows == [(each.name, each.why, each.test.partition("[")[0]) for each in BREAKS]
