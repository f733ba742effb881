"""A refusal as JSON, by RFC 9457."""

from __future__ import annotations

from typing import Literal

import msgspec

from rota.errors import BY_CODE, RotaError
from rota.wire.depth import DepthForm
from rota.wire.job import JobForm

MEDIA = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal, by RFC 9457. `GET /problems` explains each kind."""

    type: str
    """`/problems/` and the code: the page that explains it."""
    title: str
    """What kind of refusal it is: the same words for each of its kind."""
    status: int
    """The HTTP status that it came with."""
    detail: str
    """What is wrong this time, and what to do about it."""
    code: str
    """The last part of `type`, for programs to go by."""
    path: str | msgspec.UnsetType = msgspec.UNSET
    """Where in the request the trouble is, if that can be said: `$.jobs[3].locks[0]`."""
    reasons: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Each by itself, where there may be several."""


class DeferredProblem(Problem, frozen=True, kw_only=True):
    """The queue is full, said in the words of a submit."""

    result: Literal["deferred"] = "deferred"
    """The submit's third answer."""
    job: JobForm | msgspec.UnsetType | None = msgspec.UNSET
    """None, where one was submitted."""
    jobs: list[str] | msgspec.UnsetType = msgspec.UNSET
    """None, where a batch was submitted."""
    group: str | msgspec.UnsetType | None = msgspec.UNSET
    """None, where a batch was to be one."""
    warning: str
    """The same as `detail`."""
    depth: DepthForm
    """How full the queue is, and what its limits are."""


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of problem."""

    type: str
    """What the `type` of such a problem is: the address of this page."""
    code: str
    """What its `code` is. It never changes its meaning."""
    title: str
    """What its `title` is."""
    status: int
    """The HTTP status that it comes with."""
    exit_code: int
    """What a `rota` command leaves with that is refused like this."""
    meaning: str
    """What has happened."""
    remedy: str
    """What to do about it."""


class MeaningsForm(msgspec.Struct, frozen=True, kw_only=True):
    """Every kind of problem there is."""

    problems: list[Meaning]
    """By status, then by code."""


def type_of(code: str) -> str:
    return f"/problems/{code}"


def meaning(kind: type[RotaError]) -> Meaning:
    return Meaning(
        type=type_of(kind.code),
        code=kind.code,
        title=kind.title,
        status=kind.http_status,
        exit_code=kind.exit_code,
        meaning=kind.__doc__ or kind.title,
        remedy=kind.remedy,
    )


def meanings() -> list[Meaning]:
    return sorted(map(meaning, BY_CODE.values()), key=lambda one: (one.status, one.code))
