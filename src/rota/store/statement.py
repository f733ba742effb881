"""SQL by name, from the files in `store/sql`, in one dialect.

The two databases read the same text but for a few words that start with `@`, which each dialect replaces
where they stand: `@in(ids)` is membership in a list parameter, the others belong to the schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import TypeVar

T = TypeVar("T")

_NAME = re.compile(r"^-- name: (\w+).*$", re.MULTILINE)
_FILES = ("submit", "look", "claim", "retry", "edit", "breaker", "view")


def load(translate: Callable[[str], T]) -> Mapping[str, T]:
    """Every statement by its name, translated."""
    statements: dict[str, T] = {}
    for file in _FILES:
        parts = _NAME.split((files("rota.store.sql") / f"{file}.sql").read_text("utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            statements[name] = translate(text.strip())
    return statements


def migrations(translate: Callable[[str], str]) -> list[str]:
    """The migration scripts in order."""
    scripts = sorted(entry.name for entry in files("rota.store.migrations").iterdir() if entry.name.endswith(".sql"))
    return [translate((files("rota.store.migrations") / name).read_text("utf-8")) for name in scripts]
