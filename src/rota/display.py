"""How jobs can be shown: formats, and fields by name. One list for the commands' options and the configuration alike.

Every command that shows jobs loads this: the standard library's cheap parts only.
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.errors import InvalidInput

FORMATS = ("table", "block", "json")

FIELDS = (
    "id", "name", "type", "status", "exit_code", "reason", "wait", "waited_on", "command", "params", "priority",
    "position", "created_at", "queued_at", "started_at", "finished_at", "not_before", "after", "needs",
    "produces", "locks", "pools", "pinned_head", "flow", "phase", "target", "unique", "group", "sequence",
    "template", "schedule", "work", "retry_of", "chain", "attempt", "permanently_failed", "dispatch_failures",
    "last_failure", "cwd", "worktree", "pid", "session_path", "outcome_path", "run",
)  # fmt: skip
"""What the job's JSON has, in the order in which a person wants to read it."""

PARTS = {
    "wait": ("kind", "detail", "on"),
    "pinned_head": ("branch", "oid"),
    "run": (
        "id", "job", "worker", "status", "started_at", "finished_at", "exit_code", "error", "artifacts", "log_paths",
        "superseded",
    ),
}  # fmt: skip
"""`run.exit_code` and its like. `params.NAME` is one too, whatever the name."""

MADE = ("mark", "title", "why", "time")
"""Made from several others: whether it is ready, name or command, what it waits for or how it ended, how long."""

COLUMNS = ("id", "status", "title", "priority", "why", "time")
"""A table's, where nobody says otherwise."""

_ELSEWHERE = {
    "dependencies": "needs", "artifacts": "produces", "state": "status", "pinned": "pinned_head", "cmd": "command",
    "deps": "needs", "prio": "priority", "age": "time", "duration": "time", "label": "title", "error": "run.error",
    "worker": "run.worker",
}  # fmt: skip
"""What others call it."""


_NAMELESS = "a field without a name; write them as id,status,wait"


def known_fields() -> tuple[str, ...]:
    return (*MADE, *FIELDS, *(f"{name}.{part}" for name, parts in PARTS.items() for part in parts))


def check_fields(names: Iterable[str]) -> None:
    known = frozenset(known_fields())
    for name in names:
        if name not in known and not (name.startswith("params.") and name != "params."):
            raise InvalidInput(f"there is no field {name!r}; {_hint(name)}" if name else _NAMELESS)


def _hint(name: str) -> str:
    from difflib import get_close_matches

    plain = name.strip().lower()
    near = [_ELSEWHERE[plain]] if plain in _ELSEWHERE else get_close_matches(plain, known_fields(), n=1)
    return (
        f"did you mean {near[0]}?" if near else f"known are {', '.join((*MADE, *FIELDS))}, and parts as run.exit_code"
    )
