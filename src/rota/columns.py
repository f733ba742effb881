"""Output formats and fields of jobs, shared by the options of the commands and the configuration.

Every command that shows jobs imports this module, so it imports only cheap parts of the standard library.
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.errors import InvalidInput

FORMATS = ("table", "block", "json")

FIELDS = (
    "id",
    "name",
    "type",
    "status",
    "exit_code",
    "reason",
    "wait",
    "waited_on",
    "command",
    "params",
    "priority",
    "position",
    "created_at",
    "queued_at",
    "started_at",
    "finished_at",
    "not_before",
    "after",
    "needs",
    "produces",
    "missing_products",
    "locks",
    "pools",
    "pinned_head",
    "flow",
    "phase",
    "target",
    "unique",
    "group",
    "sequence",
    "template",
    "schedule",
    "work",
    "retry_of",
    "chain",
    "attempt",
    "permanently_failed",
    "dispatch_failures",
    "last_failure",
    "cwd",
    "worktree",
    "pid",
    "session_path",
    "outcome_path",
    "run",
    "unreadable",
    "policies",
)
"""Fields of the job's JSON, in reading order."""

SUBFIELDS = {
    "wait": ("kind", "detail", "topics"),
    "pinned_head": ("branch", "oid"),
    "run": (
        "id",
        "job",
        "worker",
        "status",
        "started_at",
        "finished_at",
        "exit_code",
        "error",
        "artifacts",
        "log_paths",
        "superseded",
    ),
}
"""Fields of fields, such as `run.exit_code`. `params.NAME` is also valid, with any name."""

COMPUTED_FIELDS = ("mark", "title", "why", "time")
"""Fields computed from others: the readiness mark, the name or command, the reason it waits or ended, the duration."""

DEFAULT_COLUMNS = ("id", "status", "title", "priority", "why", "time")
"""Columns of a table by default."""

_ALIASES = {
    "dependencies": "needs",
    "artifacts": "produces",
    "state": "status",
    "pinned": "pinned_head",
    "cmd": "command",
    "deps": "needs",
    "prio": "priority",
    "age": "time",
    "duration": "time",
    "label": "title",
    "error": "run.error",
    "worker": "run.worker",
}
"""Names of fields in other schedulers, for suggestions."""

_MISSING_NAME = "empty field name; write fields as id,status,wait"


def known_fields() -> tuple[str, ...]:
    return (*COMPUTED_FIELDS, *FIELDS, *(f"{name}.{part}" for name, parts in SUBFIELDS.items() for part in parts))


def check_fields(names: Iterable[str]) -> None:
    known = frozenset(known_fields())
    for name in names:
        if name not in known and not (name.startswith("params.") and name != "params."):
            raise InvalidInput(f"unknown field {name!r}; {_suggest_field(name)}" if name else _MISSING_NAME)


def _suggest_field(name: str) -> str:
    from difflib import get_close_matches

    plain = name.strip().lower()
    near = [_ALIASES[plain]] if plain in _ALIASES else get_close_matches(plain, known_fields(), n=1)
    return (
        f"did you mean {near[0]}?"
        if near
        else f"known fields: {', '.join((*COMPUTED_FIELDS, *FIELDS))}, and parts such as run.exit_code"
    )
