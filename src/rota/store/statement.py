"""SQL statements by name, loaded from the files in `store/sql` for one dialect.

Both databases use the same text except for the words that start with `@`, which each dialect replaces: `@in(ids)` is
membership in a list parameter, and the others occur in the schema. A `part` is text that several statements of a file
share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TypeVar

T = TypeVar("T")

_HEADER = re.compile(r"^-- (name|part): (\w+).*$", re.MULTILINE)
_PART_REFERENCE = re.compile(r"@part\((\w+)\)")
_FILES = (
    "submit",
    "evaluate",
    "claim",
    "prefetch",
    "reservation",
    "retry",
    "rewind",
    "edit",
    "move",
    "lock",
    "artifact",
    "breaker",
    "control",
    "gc",
    "graph",
    "view",
    "group",
    "progress",
    "template",
    "webhook",
    "schedule",
    "event",
    "due",
)


def load_statements(translate: Callable[[str], T]) -> Mapping[str, T]:
    """Return every statement by its name, translated."""
    statements: dict[str, T] = {}
    for file in _FILES:
        parts: dict[str, str] = {}
        sections = _HEADER.split((files("rota.store.sql") / f"{file}.sql").read_text("utf-8"))
        for kind, name, text in zip(sections[1::3], sections[2::3], sections[3::3], strict=True):
            if kind == "part":
                parts[name] = text.strip()
            else:
                statements[name] = translate(
                    _PART_REFERENCE.sub(lambda match, parts=parts: parts[match[1]], text.strip())
                )
    return statements


def load_migrations(translate: Callable[[str], str]) -> list[str]:
    """Return the migration scripts in order, translated."""
    scripts = sorted(entry.name for entry in files("rota.store.migrations").iterdir() if entry.name.endswith(".sql"))
    return [translate((files("rota.store.migrations") / name).read_text("utf-8")) for name in scripts]


def schema_digest(scripts: Sequence[str]) -> str:
    """Return a digest of the schema that these scripts create. Comments and white space do not change it."""
    lines = (line.partition("--")[0] for script in scripts for line in script.splitlines())
    return sha256(" ".join(" ".join(lines).split()).encode()).hexdigest()


def find_schema_mismatch(version: int, digest: str | None, scripts: Sequence[str]) -> str | None:
    """Return why a store with this schema cannot be used and what to do, or None. `scripts` must not be translated."""
    if version > len(scripts):
        return f"was written by a newer version of Rota (schema {version}, this one knows {len(scripts)}); upgrade Rota"
    if version and digest != schema_digest(scripts[:version]):
        return (
            f"was written by another version of Rota (its schema {version} is not this one's schema {version});"
            " use the version that wrote it"
        )
    return None
