"""JSON representations of refusals, by RFC 9457."""

from __future__ import annotations

from typing import Literal

import msgspec

from rota.control.schemas import QueueDepthView
from rota.errors import BY_CODE, RotaError
from rota.jobs.schemas import JobView

PROBLEM_MEDIA_TYPE = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal, as a problem document by RFC 9457. `GET /problems` explains each kind."""

    type: str
    """Kind of the problem: `/problems/` and the code. The same path returns the explanation of the kind."""
    title: str
    """Title of the kind; the same for every problem of the kind."""
    status: int
    """HTTP status of the response."""
    detail: str
    """Description of this problem, and how to resolve it."""
    code: str
    """Stable, machine-readable code: the last part of `type`."""
    path: str | msgspec.UnsetType = msgspec.UNSET
    """Location of the error in the request, such as `$.jobs[3].locks[0]`. Absent if there is none."""
    reasons: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Individual reasons; absent unless there can be several."""


class DeferredProblem(Problem, frozen=True, kw_only=True):
    """A refusal because the queue is full, with the fields of a submit result."""

    result: Literal["deferred"] = "deferred"
    """Always `deferred`."""
    job: JobView | msgspec.UnsetType | None = msgspec.UNSET
    """Always `null`; absent unless a single job was submitted."""
    jobs: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Always empty; absent unless a batch was submitted."""
    group: str | msgspec.UnsetType | None = msgspec.UNSET
    """Always `null`; absent unless a batch with a group was submitted."""
    warning: str
    """Same as `detail`."""
    depth: QueueDepthView
    """Number of ready jobs, and the limits."""


class ProblemKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of problem."""

    type: str
    """Value of `type` in problems of this kind; the path of this explanation."""
    code: str
    """Value of `code` in problems of this kind. The meaning of a code never changes."""
    title: str
    """Value of `title` in problems of this kind."""
    status: int
    """HTTP status of the response."""
    exit_code: int
    """Exit code of the `rota` command."""
    meaning: str
    """Explanation of the problem."""
    remedy: str
    """Instructions to resolve the problem."""


class ProblemKindList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of all kinds of problems."""

    problems: list[ProblemKind]
    """Kinds of problems, sorted by status and code."""


def problem_type(code: str) -> str:
    return f"/problems/{code}"


def describe_problem(error_class: type[RotaError]) -> ProblemKind:
    return ProblemKind(
        type=problem_type(error_class.code),
        code=error_class.code,
        title=error_class.title,
        status=error_class.http_status,
        exit_code=error_class.exit_code,
        meaning=error_class.__doc__ or error_class.title,
        remedy=error_class.remedy,
    )


def list_problem_kinds() -> list[ProblemKind]:
    return sorted(map(describe_problem, BY_CODE.values()), key=lambda kind: (kind.status, kind.code))
