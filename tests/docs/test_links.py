"""Links between the pages of the repository lead to files and headings that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.page import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.joinpath("docs").rglob("*.md")])
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text) for text in _HEADING.findall(_without_code(page))]
    return frozenset(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings)


@cache
def _without_code(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_without_code(page)):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in _anchors(path)):
            broken.append(link)
    assert broken == []
