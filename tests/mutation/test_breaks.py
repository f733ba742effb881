"""The list of breaks fits the code. That each is caught is shown by `make mutation`, which takes minutes."""

from __future__ import annotations

import ast

import pytest

from mutation.breaks import ROOT, Break, load

BREAKS = load()


def test_names_are_told_apart() -> None:
    assert len({each.name for each in BREAKS}) == len(BREAKS)


@pytest.mark.parametrize("each", BREAKS, ids=lambda each: each.name)
def test_it_can_be_made_and_its_test_exists(each: Break) -> None:
    text = (ROOT / "src" / "rota" / each.file).read_text()
    broken = each.broken(text)
    assert broken != text
    if each.file.endswith(".py"):
        ast.parse(broken)  # what cannot even be read is caught by anything
    file, _, name = each.test.partition("::")
    defined = {
        node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)
    }
    assert name.partition("[")[0] in defined


def test_a_text_that_is_gone_is_said() -> None:
    gone = Break(name="x", why="", file="ids.py", old="not there", new="", test="")
    with pytest.raises(ValueError, match=r"x: the text to replace is 0 times in ids\.py; bring breaks\.toml up"):
        gone.broken("something else")
