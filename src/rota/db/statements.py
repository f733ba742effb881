"""SQL statements by name, and migrations, loaded for one dialect.

The statements are in `db/sql`, and in the packages of the nouns that have a repository of their own. Both databases use
the same text except for the words that start with `@`, which each dialect replaces: `@in(ids)` is membership in a list
parameter, and the others occur in the schema. A `part` is text that several statements of a file share.

The `@refuse` directive is a change that the schema rejects from every writer (INV-001, INV-002).

    @refuse run_worker UPDATE OF worker ON run WHEN NEW.worker <> OLD.worker MESSAGE 'Cannot modify …';

Each dialect turns the directive into a trigger. The trigger fires only for statements that set the named columns, so
statements that set other columns, such as those of an ordinary job, do not pay for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TypeVar

T = TypeVar("T")

REFUSE_DIRECTIVE = re.compile(
    r"^@refuse (?P<name>\w+) (?P<event>UPDATE OF [\w, ]+ ON \w+) WHEN (?P<when>.+?)\s+MESSAGE (?P<text>'[^']*');$",
    re.MULTILINE | re.DOTALL,
)
_HEADER = re.compile(r"^-- (name|part): (\w+).*$", re.MULTILINE)
_PART_REFERENCE = re.compile(r"@part\((\w+)\)")
_FILES = (
    "db/sql/submit.sql",
    "db/sql/evaluate.sql",
    "db/sql/claim.sql",
    "db/sql/prefetch.sql",
    "db/sql/reservation.sql",
    "db/sql/retry.sql",
    "db/sql/rewind.sql",
    "db/sql/edit.sql",
    "db/sql/move.sql",
    "db/sql/lock.sql",
    "db/sql/artifact.sql",
    "db/sql/breaker.sql",
    "db/sql/control.sql",
    "retention/retention.sql",
    "graph/graph.sql",
    "db/sql/view.sql",
    "db/sql/group.sql",
    "db/sql/progress.sql",
    "templates/templates.sql",
    "webhooks/webhooks.sql",
    "schedules/schedules.sql",
    "db/sql/event.sql",
    "db/sql/due.sql",
)


def load_statements(translate: Callable[[str], T]) -> Mapping[str, T]:
    """Return every statement by its name, translated."""
    statements: dict[str, T] = {}
    for file in _FILES:
        parts: dict[str, str] = {}
        sections = _HEADER.split((files("rota") / file).read_text("utf-8"))
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
    scripts = sorted(entry.name for entry in files("rota.db.migrations").iterdir() if entry.name.endswith(".sql"))
    return [translate((files("rota.db.migrations") / name).read_text("utf-8")) for name in scripts]


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
