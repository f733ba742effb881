"""Descriptions of fields, read from the docstring below each field. Python discards these strings, so the source is
read."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

import msgspec

COMMON_DESCRIPTIONS: Mapping[str, str] = {
    "id": "Id.",
    "created_at": "Time of creation.",
    "next": "Cursor of the next page; `null` on the last page.",
    "warning": "Warning about a request that was carried out; `null` if there is none.",
    "limit": "Maximum number of items on the page.",
    "cursor": "Cursor of the page: the `next` of the previous page.",
    "job": "Id of the job.",
    "name": "Display name.",
    "status": "Status.",
    "started_at": "Time of the start; `null` before.",
    "finished_at": "Time of the end; `null` before.",
    "exit_code": "Exit code: 128+n after signal n; `null` if the job has not ended, never ran, or the code is unknown.",
    "reason": "Reason for the outcome.",
    "type": "Kind of work; it has a pool and a breaker.",
    "priority": "Priority; higher priorities start first.",
    "flow": "Flow that the job is a step of.",
    "phase": "Part of the flow in which jobs run one at a time.",
    "parallelizable": "Whether the job may run in parallel with other jobs of its phase and flow.",
    "target": "Object of the work; it has a pool and a breaker.",
    "unique": "Key that only one active chain can have.",
    "needs": "Artifacts that must exist before the job starts.",
    "produces": "Artifacts that the job produces.",
    "timeout": "Maximum run time, such as `2h`.",
    "idle_timeout": "Maximum time without output on stdout or stderr.",
    "skip_if": "Shell command that runs first; the job is skipped if it exits with 0.",
    "retries": "Maximum number of retries after a failure.",
    "retry": "Name of a retry policy in the configuration.",
    "worktree": "Whether the job runs in a git worktree and on a branch of its own.",
    "base": "Commit or branch at which the job's branch starts.",
    "patch": "Whether the changes of the job are kept as a patch.",
    "webhooks": "URLs to notify of the end of the job, in addition to the webhook endpoints.",
    "webhook_events": "Events to notify the URLs in `webhooks` of; empty for the default events.",
}
"""Descriptions of fields that have no docstring, by field name."""


def field_descriptions(struct: type) -> dict[str, str]:
    """Return the descriptions of the fields of a struct by name, inherited fields included."""
    descriptions: dict[str, str] = {}
    for kind in reversed(struct.__mro__):
        if issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct:
            descriptions |= _own_descriptions(kind)
    return descriptions


def _own_descriptions(struct: type) -> dict[str, str]:
    definition = _classes(struct.__module__).get(struct.__qualname__)
    return {} if definition is None else dict(_field_docstrings(definition))


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module by name; empty if no source is installed."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def _field_docstrings(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, docstring in pairwise(definition.body):
        match field, docstring:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, _join_lines(text)


def _join_lines(text: str) -> str:
    """Return the text without the line breaks of the source."""
    return " ".join(inspect.cleandoc(text).split())


def summary(text: str) -> str:
    """Return the first sentence without its period."""
    return " ".join(text.replace(".\n", ". ").partition(". ")[0].removesuffix(".").split())


def paragraphs(text: str | None) -> str:
    """Join the lines of each paragraph."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(part if part.startswith("    ") else " ".join(part.split()) for part in parts)
