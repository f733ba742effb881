"""Contracts with a parameter of every type, for test_operation.py."""

from __future__ import annotations

from datetime import timedelta

from rota.errors import Conflict
from rota.operation import operation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from typing import Literal

    from rota.schema_types import JobIdText, PageSize
    from tests.operation_schemas import Arguments, Color, NumberPage


@operation(
    "GET /api/jobs/{job}/things/{key:path}",
    cli="thing get",
    help={"job": "Id of the job.", "key": "Key.", "text": "Match TEXT.", "wait": "Wait for DURATION."},
)
def get_thing(
    job: JobIdText,
    key: str,
    *,
    text: str | None = None,
    count: int = 3,
    ratio: float | None = None,
    flag: bool = False,
    default_on: bool = True,
    wait: timedelta = timedelta(seconds=90),
    order: Literal["up", "down"] = "up",
    color: Color | None = None,
    jobs: Sequence[JobIdText] = (),
    sizes: Sequence[int] = (),
    pauses: Sequence[timedelta] = (),
) -> Arguments:
    """Get a thing. It has many parameters."""


@operation(
    "POST /api/things",
    cli="thing add",
    status=201,
    idempotent=True,
    errors=(Conflict,),
    options={"labels": "-l --label"},
    example={"name": "a", "labels": ["b"]},
)
def add_thing(
    name: str,
    parts: Sequence[str] = (),
    *,
    labels: Sequence[str],
    env: Mapping[str, str] = {},
    size: int | None = None,
    ttl: timedelta | None = None,
    after: JobIdText | None = None,
    force: bool = False,
) -> Arguments:
    """Add a thing."""


@operation("PATCH /api/things/{key}", cli="thing change")
def change_thing(key: str, *, size: int = 1) -> Arguments:
    """Change a thing. Without a body, its size becomes 1."""


@operation("DELETE /api/things/{key}", cli="thing remove")
def remove_thing(key: str, *, force: bool = False) -> Arguments:
    """Remove a thing."""


@operation("POST /api/things/reset", cli="reset")
def reset_things() -> Arguments:
    """Remove all things."""


@operation("GET /api/numbers", cli="number", pages="numbers", help={"limit": "List at most N numbers."})
def list_numbers(*, limit: PageSize = 100, cursor: str | None = None) -> NumberPage:
    """List numbers."""


@operation("GET /api/numbers/live")
def watch_numbers(*, end: int) -> AsyncIterator[int]:
    """Stream numbers up to the end."""
