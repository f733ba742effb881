"""Tables of the pages under `docs/`, and the tests that they name."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NODE = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table under this heading, without its header."""
    text = (ROOT / "docs" / page).read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert len(lines) > 2, f"no table under {heading!r} in docs/{page}"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@cache
def _functions(path: str) -> dict[str, str]:
    source = (ROOT / "tests" / path).read_text()
    functions = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            text = ast.get_source_segment(source, node)
            assert text is not None
            functions[node.name] = text
    return functions


def named_tests(cell: str) -> list[str]:
    """Return the source of each test that the cell names by its node id, and fail if a test does not exist."""
    sources = []
    for path, name in _NODE.findall(cell):
        assert (ROOT / "tests" / path).is_file(), f"no such file: tests/{path}"
        assert name.startswith("test_"), name
        assert name in _functions(path), f"no such test: tests/{path}::{name}"
        sources.append(_functions(path)[name])
    return sources
