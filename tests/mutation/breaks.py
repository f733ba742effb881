"""The list of breaks in `breaks.toml`, and how a break is applied to a copy of the sources."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("breaks.toml")
PAGE = ROOT / "docs" / "dev" / "reliability.md"
_TABLE_HEAD = "| break | consequence for a user | caught by |\n|---|---|---|\n"


class Break(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A deliberate defect, and the test that catches it."""

    name: str
    why: str
    """Consequence for a user."""
    file: str
    """Path below `src/rota`."""
    old: str
    new: str
    test: str
    """Id of the test that fails."""

    def apply(self, sources: Path) -> None:
        """Apply the break. Raise ValueError if the text does not occur exactly once: the list is outdated then."""
        path = sources / "rota" / self.file
        path.write_text(self.replace_in(path.read_text()))

    def replace_in(self, text: str) -> str:
        count = text.count(self.old)
        if count != 1:
            raise ValueError(
                f"{self.name}: the text to replace occurs {count} times in {self.file}; update breaks.toml"
            )
        return text.replace(self.old, self.new)


def load() -> list[Break]:
    return msgspec.convert(tomllib.loads(LIST.read_text())["break"], list[Break])


def render_rows(breaks: list[Break]) -> str:
    """Return the rows of the table in `docs/dev/reliability.md`."""
    return "".join(f"| `{each.name}` | {each.why} | `{each.test.partition('[')[0]}` |\n" for each in breaks)


def write_page() -> None:
    """Write the rows at the end of `docs/dev/reliability.md`."""
    text, head, _ = PAGE.read_text().partition(_TABLE_HEAD)
    PAGE.write_text(f"{text}{head}{render_rows(load())}")
