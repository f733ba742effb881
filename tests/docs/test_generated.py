"""The generated sections of the documentation are what the code says."""

from __future__ import annotations

import pytest

from rota.config import Config, list_values
from tests.docs.generate import SECTIONS, replace_section
from tests.docs.page import ROOT


@pytest.mark.parametrize("name", SECTIONS)
def test_section_is_up_to_date(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    page, render = SECTIONS[name]
    text = (ROOT / "docs" / page).read_text()
    assert replace_section(text, name, render()) == text, f"docs/{page} differs from the code; `make openapi` writes it"


def test_configuration_page_has_every_key() -> None:
    text = (ROOT / "docs/reference/configuration.md").read_text()
    for key in list_values(Config()):
        section, _, name = key.rpartition(".")
        section = "retry" if section == "retry.fleet" else section
        if section == "pools":
            continue
        start = next(line for line in text.splitlines() if line.startswith("## ") and f"`[{section}]`" in line)
        body = text.partition(f"{start}\n")[2].partition("\n## ")[0]
        assert f"| `{name}` |" in body, f"docs/reference/configuration.md does not have {key}"
