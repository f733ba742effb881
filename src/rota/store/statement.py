"""SQL by name, from the files in `store/sql`, in one dialect.

The two databases read the same text but for a few words that start with `@`, which each dialect replaces
where they stand: `@in(ids)` is membership in a list parameter, the others belong to the schema. What several
statements of a file begin with is a `part` of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import TypeVar

T = TypeVar("T")

_NAME = re.compile(r"^-- (name|part): (\w+).*$", re.MULTILINE)
_PART = re.compile(r"@part\((\w+)\)")
_FILES = (
    "submit", "look", "claim", "ahead", "slot", "retry", "rewind", "edit", "move", "lock", "artifact", "breaker",
    "control", "gc", "graph", "view", "group", "progress", "template", "webhook", "schedule", "event",
)  # fmt: skip


def load(translate: Callable[[str], T]) -> Mapping[str, T]:
    """Every statement by its name, translated."""
    statements: dict[str, T] = {}
    for file in _FILES:
        parts: dict[str, str] = {}
        read = _NAME.split((files("rota.store.sql") / f"{file}.sql").read_text("utf-8"))
        for kind, name, text in zip(read[1::3], read[2::3], read[3::3], strict=True):
            if kind == "part":
                parts[name] = text.strip()
            else:
                statements[name] = translate(_PART.sub(lambda found, parts=parts: parts[found[1]], text.strip()))
    return statements


def migrations(translate: Callable[[str], str]) -> list[str]:
    """The migration scripts in order."""
    scripts = sorted(entry.name for entry in files("rota.store.migrations").iterdir() if entry.name.endswith(".sql"))
    return [translate((files("rota.store.migrations") / name).read_text("utf-8")) for name in scripts]
