"""What may stand in the places of a path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rota.api.about import FILES
from rota.core.artifact import TYPES
from rota.errors import BY_CODE
from rota.names import POOL_SHOWN

_SEGMENT = r"^[^/\u0000]+$"
_NUMBER = "[1-9][0-9]{0,17}"


class Place(NamedTuple):
    description: str
    example: str
    pattern: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        return {"type": "string", "minLength": 1, **({} if self.pattern is None else {"pattern": self.pattern})}


def _id(noun: str) -> Place:
    return Place(f"The {noun}'s id.", f"{noun}-24", f"^{noun}-{_NUMBER}$")


PLACES: Mapping[str, Place] = {
    "job": _id("job"),
    "run": _id("run"),
    "run_or_job": Place("A run's id, or a job's: one that never ran has no run.", "run-24", f"^(run|job)-{_NUMBER}$"),
    "group": Place("The group's id or name.", "group-3", _SEGMENT),
    "template": Place("The template's id or name.", "agent", _SEGMENT),
    "schedule": Place("The schedule's id or name.", "nightly", _SEGMENT),
    "webhook": _id("webhook"),
    "delivery": _id("delivery"),
    "slot": _id("slot"),
    "stream": Place("Which of the two streams.", "stdout", choices=("stdout", "stderr")),
    "name": Place(
        "The pool's name: `global`, or a kind and a name. Its slash need not be escaped.", "flow/review", POOL_SHOWN
    ),
    "key": Place(
        "The breaker's key: `type/` or `target/` and a name, slash and all; or a job's id.",
        "type/story",
        r"^[^\u0000]+$",
    ),
    "artifact": Place(
        "The artifact, as `type:name`. Its slashes need not be escaped.",
        "file:plan.md",
        f"^({'|'.join(TYPES)}):[^\\u0000]+$",
    ),
    "job_id": Place("The job's id, or its number alone.", "job-24", f"^(job-)?{_NUMBER}$"),
    "batch_id": Place("The id of the batch, or its number alone.", "group-3", f"^(group-)?{_NUMBER}$"),
    "type": Place("A template's name, or a type of which one template makes jobs.", "story", _SEGMENT),
    "file": Place("The file's name.", "docs.css", choices=FILES),
    "code": Place("The problem's code.", "not-found", choices=tuple(sorted(BY_CODE))),
}
