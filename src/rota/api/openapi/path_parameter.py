"""Descriptions and patterns of path parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rota.api.api_docs import DOCS_FILES
from rota.core.artifact import ARTIFACT_TYPES
from rota.errors import BY_CODE
from rota.naming import POOL_PATTERN

_SEGMENT = r"^[^/\u0000]+$"
_NUMBER = "[1-9][0-9]{0,17}"


class PathParameter(NamedTuple):
    description: str
    example: str
    pattern: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        return {"type": "string", "minLength": 1, **({} if self.pattern is None else {"pattern": self.pattern})}


def _id_parameter(noun: str) -> PathParameter:
    return PathParameter(f"Id of the {noun}.", f"{noun}-24", f"^{noun}-{_NUMBER}$")


PATH_PARAMETERS: Mapping[str, PathParameter] = {
    "job": _id_parameter("job"),
    "run": _id_parameter("run"),
    "run_or_job": PathParameter(
        "Id of a run, or of a job, because a job that never ran has no run.", "run-24", f"^(run|job)-{_NUMBER}$"
    ),
    "group": PathParameter("Id or name of the group.", "group-3", _SEGMENT),
    "template": PathParameter("Id or name of the template.", "agent", _SEGMENT),
    "schedule": PathParameter("Id or name of the schedule.", "nightly", _SEGMENT),
    "webhook": _id_parameter("webhook"),
    "delivery": _id_parameter("delivery"),
    "reservation": _id_parameter("reservation"),
    "stream": PathParameter("Stream to read.", "stdout", choices=("stdout", "stderr")),
    "name": PathParameter(
        "Name of the pool: `global`, or a kind and a name. Its slash need not be escaped.", "flow/review", POOL_PATTERN
    ),
    "key": PathParameter(
        "Key of the breaker: `type/` or `target/` and a name, whose slash need not be escaped. Or the id of a job.",
        "type/story",
        r"^[^\u0000]+$",
    ),
    "artifact": PathParameter(
        "Artifact, as `type:name`. Its slashes need not be escaped.",
        "file:plan.md",
        f"^({'|'.join(ARTIFACT_TYPES)}):[^\\u0000]+$",
    ),
    "job_id": PathParameter("Id of the job, or only its number.", "job-24", f"^(job-)?{_NUMBER}$"),
    "batch_id": PathParameter("Id of the batch, or only its number.", "group-3", f"^(group-)?{_NUMBER}$"),
    "type": PathParameter("Name of a template, or a type that only one template creates jobs of.", "story", _SEGMENT),
    "file": PathParameter("Name of the file.", "docs.css", choices=DOCS_FILES),
    "code": PathParameter("Code of the problem.", "not-found", choices=tuple(sorted(BY_CODE))),
}
