"""What the fields of a form are for: the string below each, which Python throws away. So the source is read."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise

import msgspec

EVERYWHERE: Mapping[str, str] = {
    "id": "Its id.",
    "created_at": "When it was made.",
    "next": "The `cursor` of the page after this; null when this is the last.",
    "warning": "What is worth a second look, though it was done; null where nothing is.",
    "limit": "The most that one page has.",
    "cursor": "The `next` of the page before.",
    "job": "The job's id.",
    "name": "What people call it.",
    "status": "Where it stands.",
    "started_at": "When it began.",
    "finished_at": "When it ended; null while it has not.",
    "exit_code": "128+n for one that was killed by signal n; null where there is none.",
    "reason": "Why it ended as it did.",
    "type": "What kind of work it is: pools and breakers go by it.",
    "priority": "Higher goes first.",
    "flow": "The flow that it is a step of.",
    "phase": "The part of its flow in which jobs run one by one.",
    "parallelizable": "Whether it may run beside others of its phase and flow.",
    "target": "What it works on.",
    "unique": "A key that its chain has to itself as long as it is active.",
    "needs": "Artifacts that have to be there before it starts.",
    "produces": "Artifacts that it is to make.",
    "timeout": "How long it may run, as `2h`.",
    "idle_timeout": "How long it may run without a word on stdout or stderr.",
    "skip_if": "A shell command that is run before it; if that exits with 0, it is skipped.",
    "retries": "How often it is tried again if it fails.",
    "retry": "Which policy of retries it has, by its name in the configuration.",
    "worktree": "Whether it runs in a git worktree and on a branch of its own.",
    "base": "Where that branch begins.",
    "patch": "Whether what it has changed is kept as a patch.",
    "webhooks": "URLs that are told how it ends, beyond the endpoints.",
    "webhook_events": "Of which ends they are told; none named: the usual ones.",
}
"""What a field of this name is for wherever it has no words of its own."""


def fields_of(form: type) -> dict[str, str]:
    """By name, of the form itself and of what it is made from."""
    said: dict[str, str] = {}
    for kind in reversed(form.__mro__):
        if issubclass(kind, msgspec.Struct) and kind is not msgspec.Struct:
            said |= _own(kind)
    return said


def _own(form: type) -> dict[str, str]:
    definition = _classes(form.__module__).get(form.__qualname__)
    return {} if definition is None else dict(_below(definition))


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """By name; none where no source is installed: then there are no words."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


def _below(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(definition.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, _sentence(text)


def _sentence(text: str) -> str:
    """Without the line breaks of the source."""
    return " ".join(inspect.cleandoc(text).split())


def summary(text: str) -> str:
    """The first sentence, without its stop."""
    return " ".join(text.replace(".\n", ". ").partition(". ")[0].removesuffix(".").split())


def paragraphs(text: str | None) -> str:
    """Lines of one paragraph become one."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(part if part.startswith("    ") else " ".join(part.split()) for part in parts)
