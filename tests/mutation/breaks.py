"""The list in `breaks.toml`, and how one of them is made in a copy of the sources."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("breaks.toml")


class Break(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    why: str
    """What a user would suffer."""
    file: str
    """Below `src/rota`."""
    old: str
    new: str
    test: str
    """The test that fails, as pytest names it."""

    def apply(self, sources: Path) -> None:
        """ValueError where the text is not there, or not once: then the list is behind the code."""
        path = sources / "rota" / self.file
        path.write_text(self.broken(path.read_text()))

    def broken(self, text: str) -> str:
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: the text to replace is {count} times in {self.file}; bring breaks.toml up")
        return text.replace(self.old, self.new)


def load() -> list[Break]:
    return msgspec.convert(tomllib.loads(LIST.read_text())["break"], list[Break])
